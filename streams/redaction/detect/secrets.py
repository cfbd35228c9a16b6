"""Credentials: keys of known formats, tokens, private keys, passwords by their label or place."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect import entropy
from streams.redaction.detect.contract import Span
from streams.redaction.detect.secret_formats import CANDIDATE, KNOWN, SMALL, SMALL_HINTS, WEBHOOK

KIND: Final = "SECRET"

_JWT: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(eyJ[A-Za-z0-9_-]{2,4000})\.[A-Za-z0-9_-]{2,20000}\.[A-Za-z0-9_-]{2,4000}"
)
_PEM: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:.{1,20000}?-----END (?P=label)-----|[A-Za-z0-9+/=\s]{64,20000})",
    re.DOTALL,
)
_AUTHORIZATION: Final = re.compile(
    r"(?i)\b(?:bearer|basic)\s+(?P<value>(?=[A-Za-z0-9._~+/-]*\d)[A-Za-z0-9._~+/-]{16,4096}=*)"
)
_URL_USER: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<value>[^\s:/@\"'<>]{0,128}:[^\s/@\"'<>]{1,256})@"
)
#: A key alone where a name stands: `https://6f1c…@errors.example.com/7`.
_URL_KEY: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<value>(?=[A-Za-z_-]{0,100}\d)[A-Za-z0-9_-]{16,128})@"
)
#: Hashes of passwords as systems keep them, which are guessed offline.
_CRYPT: Final = re.compile(
    r"\$(?:[156y]|2[abxy]|apr1|argon2(?:id|i|d)|pbkdf2-sha\d{1,3}|scrypt)\$"
    r"[A-Za-z0-9./$=,+_-]{20,256}"
)
#: `docker login -u ci -p value`, `mysql -pvalue`, `sshpass -p 'value'`.
_SHORT_FLAG: Final = re.compile(
    r"\b(?:(?:docker|podman|helm|az|oc|skopeo|heroku|cf)\b[^\n|;&]{0,80}?\slogin\b"
    r"[^\n|;&]{0,80}?\s-p[ =]?"
    r"|(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&]{0,80}?\s-p|sshpass\s{1,3}-p ?)"
    r"[\"']?(?P<value>[^\s\"'$<{-][^\s\"']{3,256})"
)
#: "the password for the router is value", "token value expires".
_SPOKEN: Final = re.compile(
    r"(?i)\b(?:password|passphrase|passcode|pin|secret|api key|access key|token)"
    r"(?:(?: [a-z]{2,14}){1,6} (?:is|was)(?: now)?:? |,? namely )[\"']?"
    r"(?P<value>(?=[^\s\"']{0,64}\d)[^\s\"',;]{6,128})"
)
_SPOKEN_HINTS: Final = (
    "password", "passphrase", "passcode", " pin ", "secret", "api key", "access key", "token",
)  # fmt: skip
_TOKEN_HEX: Final = re.compile(
    r"(?i)\b(?:token|secret|api key)[ :=]{1,3}(?P<value>[0-9a-f]{32,64})\b"
)

_LABEL: Final = (
    r"(?:[A-Za-z_]{0,20}(?:password|passwd|pwd|passphrase|passcode)|secret(?:[_-]?(?:access)?[_-]?key)?|api[_-]?key"
    r"|(?:access|auth|refresh|client|session|bearer|private|secret|signing|encryption|master|shared"
    r"|account|deploy|service|user|app|bot|api|storage|webhook|jwt|csrf|oauth|id)"
    r"[_-]?(?:access[_-]?)?(?:token|secret|key|password|pass|credentials?)"
    r"|_auth(?:token)?|credentials?|authtoken|SharedAccessSignature|密码|口令|密钥|令牌|パスワード"
    r"|비밀번호|passwort|contraseña|mot de passe)"
)
_ASSIGNED: Final = re.compile(
    rf"(?i)(?<![A-Za-z]){_LABEL}s?(?:[\"'\]]{{0,3}}\s{{0,20}}(?:[:=]=|=>|[:=：])\s{{0,20}}|\s(?:is|was)\s)[\"']?"
    r"(?P<value>[^\s\"'`,;<>(){}\[\]$]{6,256})(?=[\s\"'`,;<]|$)"
)
#: Parts of every spelling the label has; "pass" and "key" alone are everyday words.
_LABEL_HINTS: Final = (
    "passw", "passphrase", "passcode", "pwd", "secret", "token", "密码", "口令", "密钥", "令牌",
    "_key", "-key", "ekey", "hkey", "ikey", "nkey", "rkey", "skey", "tkey", "pkey", "dkey", "gkey",
    "_auth", "credential", "_pass", "userpass", "accesssignature", "パスワード", "비밀번호",
    "contraseña", "mot de passe",
)  # fmt: skip
#: `-u name:password`, `--password value`, `sig=…` of a signed address, `password value` of a netrc.
_FLAGS: Final = re.compile(
    r"(?:(?<!\S)(?:-u|--user)[ =][\"']?[^\s:\"'@/]{1,64}:(?P<user>[^\s\"']{4,128})"
    r"|(?<!\S)--?(?:password|passwd|token|secret|api-key|apikey|pass|auth)[ =][\"']?"
    r"(?P<flag>[^\s\"'$<{-][^\s\"']{5,256})"
    r"|[?&;](?:sig|signature|X-Amz-Signature|access_token|token|key|apikey|api_key|auth|code|password"
    r"|passwd|secret|client_secret)=(?P<query>[A-Za-z0-9%+/=_~.-]{12,512})"
    r"|\bmachine \S{1,100}\s+login \S{1,100}\s+password (?P<netrc>\S{4,128}))"
)
_KEY: Final = re.compile(rf"(?i)(?:^|[._-]){_LABEL}$|(?:^|\.)(?:authorization|x-api-key)$")
_NO_SECRET: Final = re.compile(
    r"(?i)\*+|x+|(?:your|my|the|an?|example|test|none|null|true|false|string|required|optional"
    r"|process|os|env|self|config|settings)\b.*|[a-z]+(?:[_-](?:here|key|token|password))+"
)


def find(text: str, context: str | None) -> Iterator[Span]:
    """Credentials in `text`."""
    if context is not None and _KEY.search(context) and _is_secret_value(text.strip()):
        yield Span(0, len(text), KIND)
        return
    yield from _by_form(text)
    yield from _by_label(text)
    yield from _by_place(text)


def _by_form(text: str) -> Iterator[Span]:
    for start in _stretches(text):
        match = KNOWN.match(text, start)
        if match is not None:
            yield Span(start, match.end(), KIND)
    if "eyJ" in text:
        for match in _JWT.finditer(text):
            if _is_jwt_header(match.group(1)):
                yield Span(match.start(), match.end(), KIND)
    for pattern in _whole_patterns(text):
        for match in pattern.finditer(text):
            yield Span(match.start(), match.end(), KIND)


def _whole_patterns(text: str) -> Iterator[re.Pattern[str]]:
    if "://" in text:
        yield WEBHOOK
    if "PRIVATE KEY" in text:
        yield _PEM
    if text.count("$") >= 2:
        yield _CRYPT


def _stretches(text: str) -> Iterator[int]:
    """Where a word begins that is long and mixed enough for a key."""
    for match in CANDIDATE.finditer(text):
        yield match.start()
    if any(hint in text for hint in SMALL_HINTS):
        for match in SMALL.finditer(text):
            yield match.start()


def _by_place(text: str) -> Iterator[Span]:
    """Values of flags and of signed addresses, and random letters near a word for keys."""
    is_netrc = "machine " in text and "login " in text
    if is_netrc or "-u" in text or "--" in text or "=" in text:
        for match in _FLAGS.finditer(text):
            group = match.lastgroup
            if group is not None and _is_secret_value(match[group]):
                yield Span(*match.span(group), KIND, 0.9)
    for pattern in _place_patterns(text):
        for match in pattern.finditer(text):
            if _is_secret_value(match["value"].rstrip(".!?")):
                yield Span(*match.span("value"), KIND, 0.9)
    for start, end in entropy.find(text):
        yield Span(start, end, KIND, 0.8)


def _place_patterns(text: str) -> Iterator[re.Pattern[str]]:
    lower = text.lower()
    if " -p" in text:
        yield _SHORT_FLAG
    if any(hint in lower for hint in _SPOKEN_HINTS):
        yield _SPOKEN
        yield _TOKEN_HEX
    if "://" in text and "@" in text:
        yield _URL_KEY


def _by_label(text: str) -> Iterator[Span]:
    lower = text.lower()
    patterns = []
    if any(hint in lower for hint in _LABEL_HINTS):
        patterns.append(_ASSIGNED)
    if "bearer" in lower or "basic" in lower:
        patterns.append(_AUTHORIZATION)
    if "://" in text and "@" in text:
        patterns.append(_URL_USER)
    for pattern in patterns:
        for match in pattern.finditer(text):
            start, end = match.span("value")
            if pattern is not _ASSIGNED or _is_assigned_secret(match):
                yield Span(start, end, KIND, 0.9)


def _is_assigned_secret(match: re.Match[str]) -> bool:
    """`password: hunter22` is one; `the password is required` is not."""
    value = match.group("value").rstrip(".!?")
    spoken = re.search(r"\s(?:is|was)\s[\"']?$", match.string[match.start() : match.start("value")])
    return _is_secret_value(value) and (spoken is None or re.search(r"\d", value) is not None)


def _is_secret_value(value: str) -> bool:
    return len(value) >= 6 and _NO_SECRET.fullmatch(value) is None


def _is_jwt_header(header: str) -> bool:
    try:
        decoded = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))
    except (binascii.Error, ValueError):
        return False
    return b'"alg"' in decoded
