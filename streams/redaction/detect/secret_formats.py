"""Keys and tokens that their issuers gave a form of their own: a prefix, a length, an alphabet."""

import re
from typing import Final

#: Prefix as it stands in text → what follows it. Lengths are the least that is issued, or less.
_FORMATS: Final = (
    (r"sk-", r"(?:[A-Za-z0-9]{2,12}-)*[A-Za-z0-9_-]{20,200}"),
    (r"[sr]k_(?:live|test|prod)_|whsec_|EZ[AT]K", r"[A-Za-z0-9+/]{10,200}"),
    (r"A(?:KIA|SIA|BIA|CCA|3T[A-Z0-9])", r"[0-9A-Z]{16}"),
    (r"gh[pousr]_", r"[A-Za-z0-9_]{36,255}"),
    (r"github_pat_|dckr_(?:pat|oat)_|hf_|api_org_|hr_", r"[A-Za-z0-9_-]{20,255}"),
    (r"gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct|rtr)-|GR1348941",
     r"[A-Za-z0-9_.-]{20,300}"),
    (r"(?i:xox[a-z]-|xox[a-z]\.xox[a-z]-|xapp-)", r"[A-Za-z0-9-]{10,250}"),
    (r"AIza", r"[0-9A-Za-z_-]{35}"),
    (r"GOCSPX-|ya29\.|1//0", r"[A-Za-z0-9_-]{24,500}"),
    (r"npm_|rubygems_", r"[A-Za-z0-9]{36,64}"),
    (r"pypi-", r"[A-Za-z0-9_-]{50,250}"),
    (r"SG\.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    (r"do[opr]_v1_|shp(?:at|ss|ca|pa)_|pul-|sbp_|sb_secret_|dapi|key-", r"[a-f0-9]{32,64}(?:-\d)?"),
    (r"hv[sbr]\.", r"[A-Za-z0-9_-]{20,300}"),
    (r"dp\.(?:pt|st|ct|sa|scim|audit)\.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    (r"AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    (r"PMAK-|NRAK-|NRII-|NRJS-|NRSP-|CFPAT-|HRKU-|CLOJARS_", r"[A-Za-z0-9_-]{19,90}"),
    (r"lin_(?:api|oauth)_|ntn_|secret_|figd_|gsk_|tvly-|r8_|nvapi-|pcsk_|fw_|csk-|pplx-|xai-|pa-",
     r"(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{24,200}"),
    (r"sntry[su]_|gls?[ac]_|glc_|bkua_|CCIPAT_|CCIPRJ_|sgp_|pnu_|tfp_|nfp_|rdme_|phx_|fio-u-|re_",
     r"(?=[A-Za-z_+/=-]{0,60}\d)[A-Za-z0-9_+/=-]{24,400}"),
    (r"pscale_(?:tkn|pw|oauth)_|duffel_(?:test|live)_|shippo_(?:live|test)_|tskey-(?:[a-z]+-)?",
     r"[A-Za-z0-9_=.-]{16,120}"),
    (r"EAA[A-Z]", r"[A-Za-z0-9]{60,400}"),
    (r"EAACEdEose0cBA", r"[A-Za-z0-9]{8,400}"),
    (r"sq0(?:atp|csp|idp)-", r"[A-Za-z0-9_-]{22,60}"),
    (r"access_token\$(?:production|sandbox)\$", r"[a-z0-9]{16}\$[a-f0-9]{32}"),
    (r"LTAI|AKID", r"[A-Za-z0-9]{16,40}"),
    (r"AT(?:ATT3|CTT3|BB)|BBDC-", r"[A-Za-z0-9_=-]{20,250}"),
    (r"ops_eyJ|[ps]k\.eyJ", r"[A-Za-z0-9+/_.=-]{30,2000}"),
    (r"A3-[A-Z0-9]{6}-", r"(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    (r"p8e-|ico-", r"[A-Za-z0-9]{32}"),
    (r"dt0[cs]\d{2}\.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    (r"FLW(?:PUB|SEC)K(?:_TEST)?-", r"[A-Za-z0-9-]{12,64}"),
    (r"xkeysib-|xsmtpsib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    (r"AKC", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{10,80}"),
    (r"sl\.(?:[Bu]\.)?", r"(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{100,300}"),
    (r"(?:AC|SK|SN)(?=[a-z]{0,31}\d)", r"[a-z0-9]{32}"),
    (r"pat(?=[A-Za-z0-9]{14}\.)", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    (r"v1\.0-", r"[a-f0-9]{24}-[a-f0-9]{146}"),
    (r"ghs_|lsv2_(?:pt|sk)_|apify_api_|shpit_|ATAT", r"[A-Za-z0-9_]{32,200}"),
)  # fmt: skip
#: Forms without a prefix.
_OTHERS: Final = (
    r"\d{8,10}:(?=[A-Z0-9_-]{0,34}[a-z])(?=[a-z0-9_-]{0,34}[A-Z])[A-Za-z0-9_-]{35}",
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
    r"[0-9a-z]{32}-us\d{1,2}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}",
    r"[A-Za-z0-9]{3}\dQ~[A-Za-z0-9_.~-]{31,34}",
)
KNOWN: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    + "|".join(f"(?:{prefix}){rest}" for prefix, rest in _FORMATS)
    + "|"
    + "|".join(_OTHERS)
    + r")(?![A-Za-z0-9])"
)
#: A stretch that could be one of them: the long pattern runs only where one of these is.
CANDIDATE: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z_.-]{0,28}[0-9A-Z$/:])[A-Za-z0-9][A-Za-z0-9_.$/:+~-]{17}"
)
#: Those whose letters may all be small for long.
SMALL_HINTS: Final = ("sk-", "ghp_", "hf_", "gsk_")
SMALL: Final = re.compile(r"[sgh](?<![A-Za-z0-9_-].)(?:k-|hp_|f_|sk_)")
#: Addresses that are secrets as a whole: whoever has one may post.
WEBHOOK: Final = re.compile(
    r"(?i)https://(?:hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{20,120}"
    r"|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks/\d{15,22}/[A-Za-z0-9_-]{40,100}"
    r"|[a-z0-9-]{1,40}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{30,250}"
    r"|hooks\.zapier\.com/hooks/catch/\d{4,12}/[a-z0-9]{5,12}"
    r"|api\.telegram\.org/bot\d{8,10}:[A-Za-z0-9_-]{35})"
)
