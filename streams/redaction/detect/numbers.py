"""Numbers that name a person: cards, accounts, ids, phones, internet addresses."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

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
_PHONE: Final = re.compile(
    r"(?<![A-Za-z0-9_+\]])(?<!\d[.)-])(?:"
    r"(?:\+|00)[1-9]\d{0,2}(?:[ .-]?\(?\d{1,4}\)?){2,6}"
    r"|(?:1[ .-])?\([2-9]\d{2}\) ?\d{3}[ .-]?\d{4}"
    r"|(?:1[ .-])?[2-9]\d{2}(?P<sep>[ .-])\d{3}(?P=sep)\d{4}"
    r"|1[3-9]\d(?:\d{8}|(?P<sep2>[ -])\d{4}(?P=sep2)?\d{4})"
    r"|\(0?\d{1,4}\) ?\d{2,4}(?:[ -]?\d{2,4}){1,3}"
    r"|[2-9]\d{2}(?P<sep3>[ .-])\d{3}(?P=sep3)\d{4}"
    r"|0\d{2,3}-?\d{7,8}"
    r"|0[1-9](?:\.\d{2}){4}"
    r"|0[1-9]\d{0,3}(?P<sep4>[ -])\d{2,4}(?:(?P=sep4)?\d{2,6}){1,3}"
    rf")(?: ?(?:x|ext\.? ?|#)\d{{1,6}})?{_AFTER}"
)
_ISO_DATE: Final = re.compile(r"(?:19|20)\d\d[-. ]\d{1,2}[-. ]\d{1,2}\b")
_PHONE_LABELS: Final = (
    "phone", "telephone", "telefon", "tel", "mobile", "cell", "call", "fax", "whatsapp", "sms",
    "contact", "answering at", "text me", "compact", "reach me", "reach us", "dial", "desk",
    "office", "电话", "手机", "号码", "联系", "電話", "携帯", "연락처", "전화",
)  # fmt: skip
_PHONE_VALUE: Final = re.compile(
    r"[^\d+(]{0,24}(?P<value>[+(]?\d[\d ().-]{5,18}\d(?:x\d{1,6})?)(?![A-Za-z0-9_])"
)
#: The label may stand behind: `28-64-66-98 office`.
_PHONE_BEFORE: Final = re.compile(
    r"(?<![\w.,+-])(?P<value>[+(]?\d[\d ().-]{5,17}\d(?:x\d{1,6})?) \(?"
    r"(?:office|fax|mobile|cell|home|work|desk|direct)\b(?! [a-z])",
    re.IGNORECASE,
)
#: Groups of digits that may be a phone where a word for it stands on the same line, or that stand
#: in a line of their own: nine digits in threes, pairs, a short local number.
_GROUPS: Final = re.compile(
    r"\d(?<![A-Za-z0-9_+#$€£.,:/)\]-].)\d{1,3}(?:(?P<sep>[ .-])\d{2,4}(?:(?P=sep)\d{2,4}){0,3})"
    r"(?![A-Za-z0-9_%€$])(?![.,:/-]\d)"
    r"(?! (?:km|kg|USD|EUR|items?|points?|rows?|bytes|ms|seconds)\b)"
)
_PHONE_NEAR: Final = re.compile(
    r"(?i)(?<![a-z])(?:phones?|telephone|tel|mobile|cell|call(?:s|ed|ing)?|fax|whatsapp|sms"
    r"|text(?: me)?|contact|reach|ring|dial|answering|registered|message|voicemail|hotline|helpline"
    r"|(?<!order )(?<!account )(?<!tracking )(?<!reference )(?<!case )number)(?![a-z])"
)
_NEAR: Final = 64
_PHONE_KEY: Final = re.compile(r"(?i)(?:^|[._])(?:phone|tel|telephone|mobile|cell|fax|msisdn)")
_BARE_PHONE: Final = re.compile(r"[2-9]\d{9}")
_IPV4: Final = re.compile(r"\d(?<![\w.-].)\d{0,2}(?:\.\d{1,3}){3}(?![\w-])(?!\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{1,38}(?![\w:])")
_VERSION: Final = re.compile(r"(?i)(?:\bv|version|release|build)[ :=]{0,2}$")


def find(text: str, context: str | None) -> Iterator[Span]:
    """Numbers that name a person in `text`, which has at least one digit."""
    yield from _identifiers(text)
    yield from _phones(text, context)
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
    for match in _IBAN.finditer(text):
        length = iban_length(re.sub("[ -]", "", match.group()).upper())
        if length:
            yield Span(match.start(), match.start() + _reach(match.group(), length), "IBAN_CODE")


def _reach(written: str, num_characters: int) -> int:
    """How far into `written` its first `num_characters` letters or digits reach."""
    seen = 0
    for position, character in enumerate(written):
        seen += character not in " -"
        if seen == num_characters:
            return position + 1
    return len(written)


def _phones(text: str, context: str | None) -> Iterator[Span]:
    if context is not None and _PHONE_KEY.search(context) and 6 <= len(digits_of(text)) <= 15:
        yield Span(0, len(text), "PHONE_NUMBER")
        return
    for match in _PHONE.finditer(text):
        num_digits = len(digits_of(match.group()))
        if 9 - match.group().startswith("(") <= num_digits <= 18:
            yield Span(match.start(), match.end(), "PHONE_NUMBER", 0.8)
    for match in _GROUPS.finditer(text):
        if _is_loose_phone(match) and _is_phone_place(text, match.start(), match.end()):
            yield Span(match.start(), match.end(), "PHONE_NUMBER", 0.5)
    if context is None and _BARE_PHONE.fullmatch(text.strip()):
        yield Span(0, len(text), "PHONE_NUMBER", 0.5)


def _labelled(text: str) -> Iterator[Span]:
    lower = text.lower()
    for end in label_ends(lower, _PHONE_LABELS):
        match = _PHONE_VALUE.match(text, end)
        if match and _is_labelled_phone(match["value"]):
            yield Span(*match.span("value"), "PHONE_NUMBER", 0.7)
    for match in _PHONE_BEFORE.finditer(text):
        if _is_labelled_phone(match["value"]):
            yield Span(*match.span("value"), "PHONE_NUMBER", 0.7)
    for end in label_ends(lower, _SSN_LABELS):
        match = _SSN_VALUE.match(text, end)
        if match and social_security(digits_of(match["value"])):
            yield Span(*match.span("value"), "US_SSN")


def _is_loose_phone(match: re.Match[str]) -> bool:
    """Seven digits or more, no date and no number that is only written in groups."""
    groups = re.split(r"[ .-]", match.group())
    if match["sep"] == "." and (len(groups) == 2 or len(groups) == 4):
        return False  # a decimal, or a version or internet address
    is_amount = match["sep"] != "-" and len(groups[0]) < 3 and {*map(len, groups[1:])} == {3}
    return _is_labelled_phone(match.group()) and not (is_amount and len(groups) == 2)


def _is_phone_place(text: str, start: int, end: int) -> bool:
    """Behind a word for phones on the same line, or alone in a line below one of words."""
    near = max(0, start - _NEAR)
    line = text.rfind("\n", near, start) + 1  # not from its far beginning: a line may be a megabyte
    before = text[max(line, near) : start]
    if before.strip():
        return _PHONE_NEAR.search(before) is not None
    above = text[text.rfind("\n", 0, max(0, line - 1)) + 1 : max(0, line - 1)]
    is_alone = text[end : end + 2].strip(" \r")[:1] in ("", "\n")
    return is_alone and any(letter.isalpha() for letter in above)


def _is_labelled_phone(value: str) -> bool:
    return 7 <= len(digits_of(value)) <= 15 and _ISO_DATE.match(value) is None


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
