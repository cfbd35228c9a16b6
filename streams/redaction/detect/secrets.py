"""Credentials: keys of known formats, tokens, private keys, passwords by their label or place."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.contract import Span

KIND: Final = "SECRET"

#: A cheap look for these decides whether the long pattern runs at all.
_PREFIXES: Final = (
    "sk-", "sk_", "rk_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
    "glpat-", "xox", "AIza", "hf_", "npm_", "pypi-", "SG.", "eyJ", "ya29.", "hr_",
)  # fmt: skip
_KNOWN: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?:ant-|proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{20,200}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{10,200}"
    r"|A[KS]IA[0-9A-Z]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{36,255}"
    r"|github_pat_[A-Za-z0-9_]{20,255}"
    r"|glpat-[A-Za-z0-9_-]{20,200}"
    r"|xox[abposr]-[A-Za-z0-9-]{10,200}"
    r"|AIza[0-9A-Za-z_-]{35}"
    r"|hf_[A-Za-z0-9]{30,100}"
    r"|npm_[A-Za-z0-9]{36}"
    r"|pypi-[A-Za-z0-9_-]{50,250}"
    r"|SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}"
    r"|ya29\.[A-Za-z0-9_-]{20,500}"
    r"|hr_[A-Za-z0-9_-]{24,200}"
    r")(?![A-Za-z0-9])"
)
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
    r"[a-z][a-z0-9+.-]{1,30}://(?P<value>[^\s:/@\"'<>]{0,128}:[^\s/@\"'<>]{1,256})@"
)
_LABEL: Final = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?(?:access)?[_-]?key)?|api[_-]?key"
    r"|(?:access|auth|refresh|client|session|bearer|private)[_-]?(?:token|secret|key)|密码|口令)"
)
_ASSIGNED: Final = re.compile(
    rf"(?i)(?<![A-Za-z]){_LABEL}(?:[\"']?\s?(?:[:=：]|=>)\s?|\s(?:is|was)\s)[\"']?"
    r"(?P<value>[^\s\"'`,;<>(){}\[\]$]{6,256})(?=[\s\"'`,;<]|$)"
)
#: Parts of every spelling the label has; "pass" and "key" alone are everyday words.
_LABEL_HINTS: Final = (
    "passw", "passphrase", "passcode", "pwd", "secret", "token", "密码", "口令",
    "_key", "-key", "ekey", "hkey", "ikey", "nkey", "rkey", "skey", "tkey",
)  # fmt: skip
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
    if any(prefix in text for prefix in _PREFIXES):
        for match in _KNOWN.finditer(text):
            yield Span(match.start(), match.end(), KIND)
        for match in _JWT.finditer(text):
            if _is_jwt_header(match.group(1)):
                yield Span(match.start(), match.end(), KIND)
    if "PRIVATE KEY" in text:
        for match in _PEM.finditer(text):
            yield Span(match.start(), match.end(), KIND)
    yield from _by_label(text)


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
