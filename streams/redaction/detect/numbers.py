"""Numbers that name a person: cards, accounts, ids, phones, internet addresses."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from streams.redaction.detect import phones
from streams.redaction.detect.checks import (
    digits_of,
    iban_length,
    old_resident_id,
    payment_card,
    resident_id,
    social_security,
)
from streams.redaction.detect.contract import Span
from streams.redaction.detect.labels import label_ends

#: Looks back over the first digit: not inside a word, a longer number or a decimal. CJK letters
#: may touch a number. (Patterns that begin with a class of characters are searched much faster
#: than patterns that begin with a look back.)
_BEFORE: Final = r"(?<![A-Za-z0-9_].)(?<!\d[.-].)"
_AFTER: Final = r"(?![A-Za-z0-9_])(?![.-]\d)"

_CARD: Final = re.compile(rf"[1-6]{_BEFORE}(?:(?<!1)\d{{3}}|(?<=1)800)(?:[ -]?\d){{8,15}}{_AFTER}")
_IBAN: Final = re.compile(
    r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?:[ -]?[A-Z0-9]){11,30}(?![A-Za-z0-9])", re.IGNORECASE
)
_CHECK_DIGITS: Final = re.compile(r"\d(?<=[A-Za-z]{2}\d)\d")
_SSN: Final = re.compile(rf"\d{_BEFORE}\d{{2}}([- ])\d{{2}}\1\d{{4}}{_AFTER}")
_SSN_LABELS: Final = ("ssn", "social security")
_SSN_VALUE: Final = re.compile(r"[^\d\n]{0,24}(?P<value>\d{9}|\d{3}[- ]?\d{2}[- ]?\d{4})(?!\d)")
_RESIDENT_ID: Final = re.compile(
    r"[1-9](?<![A-Za-z0-9_].)(?:[ -]?\d){16}[ -]?[\dXx](?![A-Za-z0-9_])"
)
_OLD_RESIDENT_ID: Final = re.compile(r"[1-6](?<![A-Za-z0-9_.-].)\d{14}(?![A-Za-z0-9_.-])")
_KOREAN_ID: Final = re.compile(rf"\d{_BEFORE}\d[01]\d[0-3]\d-[1-8]\d{{6}}{_AFTER}")
_UK_INSURANCE: Final = re.compile(
    r"[A-CEGHJ-PR-TW-Z](?<!\w.)[A-CEGHJ-NPR-TW-Z](?<!BG|GB|KN|NK|NT|TN|ZZ)"
    r" ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b"
)
_IPV4: Final = re.compile(r"\d(?<![\w.-].)\d{0,2}(?:\.\d{1,3}){3}(?![\w-])(?!\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{1,38}(?![\w:])")
_VERSION: Final = re.compile(r"(?i)(?:\bv|version|release|build)[ :=]{0,2}$")


def find(text: str, context: str | None) -> Iterator[Span]:
    """Numbers that name a person in `text`, which has at least one digit."""
    yield from _identifiers(text)
    yield from phones.find(text, context)
    yield from _labelled(text)
    yield from _addresses(text)


#: Pattern, kind, what must hold for the characters without separators, score.
_Checked: TypeAlias = tuple[re.Pattern[str], str, Callable[[str], bool], float]
_CHECKED: Final[tuple[_Checked, ...]] = (
    (_CARD, "CREDIT_CARD", payment_card, 1.0),
    (_SSN, "US_SSN", social_security, 1.0),
    (_UK_INSURANCE, "NATIONAL_ID", bool, 0.8),
)
#: The same, tried only in texts with six digits in a row.
_CHECKED_LONG: Final[tuple[_Checked, ...]] = (
    (_RESIDENT_ID, "NATIONAL_ID", resident_id, 1.0),
    (_OLD_RESIDENT_ID, "NATIONAL_ID", old_resident_id, 0.6),
    (_KOREAN_ID, "NATIONAL_ID", bool, 0.8),
)
_SIX_DIGITS: Final = re.compile(r"\d{6}")


def _identifiers(text: str) -> Iterator[Span]:
    checked = _CHECKED + _CHECKED_LONG if _SIX_DIGITS.search(text) else _CHECKED
    for pattern, kind, holds, score in checked:
        for match in pattern.finditer(text):
            if holds(re.sub("[ -]", "", match.group())):
                yield Span(match.start(), match.end(), kind, score)
    for match in _ibans(text):
        length = iban_length(re.sub("[ -]", "", match.group()).upper())
        if length:
            yield Span(match.start(), match.start() + _reach(match.group(), length), "IBAN_CODE")


def _ibans(text: str) -> Iterator[re.Match[str]]:
    """As `_IBAN.finditer`, tried only where two digits follow two letters: most texts hold few."""
    end = 0
    for digits in _CHECK_DIGITS.finditer(text):
        start = digits.start() - 2
        if start >= end and (match := _IBAN.match(text, start)):
            end = match.end()
            yield match


def _reach(written: str, num_characters: int) -> int:
    """How far into `written` its first `num_characters` letters or digits reach."""
    seen = 0
    for position, character in enumerate(written):
        seen += character not in " -"
        if seen == num_characters:
            return position + 1
    return len(written)


def _labelled(text: str) -> Iterator[Span]:
    lower = text.lower()
    for end in label_ends(lower, _SSN_LABELS):
        match = _SSN_VALUE.match(text, end)
        if match and social_security(digits_of(match["value"])):
            yield Span(*match.span("value"), "US_SSN")


def _addresses(text: str) -> Iterator[Span]:
    for match in _IPV4.finditer(text) if text.count(".") >= 3 else ():
        if _is_host(match.group()) and not _VERSION.search(text[: match.start()][-12:]):
            yield Span(match.start(), match.end(), "IP_ADDRESS")
    if text.count(":") >= 2:
        for match in _IPV6.finditer(text):
            candidate = match.group()
            if candidate.count(":") >= 2 and re.search(r"\d", candidate) and _is_host(candidate):
                yield Span(match.start(), match.end(), "IP_ADDRESS")


def _is_host(candidate: str) -> bool:
    """Whether this is an address of some machine, not loopback and not "any"."""
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)
