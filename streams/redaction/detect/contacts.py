"""Ways to reach a person: e-mail addresses, user handles, street addresses."""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect import addresses
from streams.redaction.detect.contract import Span
from streams.redaction.detect.labels import label_ends
from streams.redaction.detect.places import STATES
from streams.redaction.detect.words import THINGS

#: Begins with a class of characters: such patterns are searched much faster.
_AT: Final = re.compile(r"[@＠%&](?:(?<=[@＠])|(?<=%)40|(?<=&)#(?:64|[xX]40);)")
_LOCAL: Final = re.compile(r"[0-9A-Za-z\u00c0-\u1fff_+'~.-]")
_CJK: Final = re.compile(r"[\u2e80-\ud7ff\uf900-\ufeff]")
_MAX_LOCAL: Final = 64
_DOMAIN: Final = re.compile(
    r"(?:[0-9A-Za-z\u00c0-\u1fff](?:[0-9A-Za-z\u00c0-\u1fff-]{0,61}[0-9A-Za-z\u00c0-\u1fff])?\.)"
    r"{1,8}[A-Za-z]{2,24}"
)

#: As people hide them from machines: "jane (at) example [dot] com", "jane at example dot com".
_DOT_WORD: Final = r"(?: ?[\[({] ?(?:dot|punkt|point|\.) ?[\])}] ?| dot |(?: ?\. ?))"
_SPELT: Final = re.compile(
    rf"(?<![\w.])[\w+-]{{1,40}}(?:{_DOT_WORD}[\w+-]{{1,40}}){{0,4}} ?"
    rf"(?:[\[({{] ?(?:at|@|ät) ?[\])}}]|[@＠]"
    rf"| at (?!(?:the|a|this|that|my|your) )(?=[\w-]{{1,40}} dot )) ?"
    rf"[\w-]{{1,40}}(?:{_DOT_WORD}[\w-]{{2,40}}){{1,4}}",
    re.IGNORECASE,
)
_SPELT_HINTS: Final = (
    "at)", "at]", "at}", "at )", "at ]", " dot ", "@ ", " @", "@)", "@]", "ät)", "ät]",
)  # fmt: skip

_HANDLE: Final = re.compile(
    r"(?<![A-Za-z0-9_@/.-])(?P<first>[^\W\d_]{2,24})_(?P<last>[^\W\d_]{2,24})_\d{3,5}(?![A-Za-z0-9_])"
)
_HANDLE_END: Final = re.compile(r"_\d{3}")
_HANDLE_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:user_?(?:id|name)|login|handle|screen_name|account_?name)$"
)
_HANDLE_VALUE: Final = re.compile(r"[^\W\d_]{2,24}(?:[._-][^\W\d_]{2,24}){1,3}[._-]?\d{0,8}")
_UNIT_ALONE: Final = re.compile(
    r"\b(?:Suite|Ste|Apartment|Apt|Unit|Room|Flat|Floor)\.? ?(?:No\.? ?|#)?"
    r"(?:\d{1,5}[A-Za-z]?|[A-Z]\d{0,4})\b"
)
_CHINESE_STREET: Final = re.compile(
    r"(?:[\u4e00-\u9fff]{2,8}(?:省|自治区))?(?:[\u4e00-\u9fff]{2,7}市)?(?:[\u4e00-\u9fff]{1,7}[区县])?"
    r"[\u4e00-\u9fff]{1,9}?(?:路|街|道|巷|弄)\d{1,5}号(?:[\u4e00-\u9fff\dA-Za-z]{1,16}[层室楼座栋门厦园村苑城户])?"
)
_ZIP: Final = re.compile(r"(?P<state>[A-Z](?<!\w.)[A-Z]),? (?P<value>\d{5}(?:-\d{4})?)\b")
_ZIP_LABELS: Final = ("zip", "postal code", "postcode", "post code", "邮编", "郵便番号")
_ZIP_VALUE: Final = re.compile(
    r"(?:[^\d\n]{0,12}(?P<value>\d{5,6}(?:-\d{4})?)"
    r"|(?: code)?(?: is|:|=|：){1,2} ?(?P<short>\d{3,4}(?: \d{2,3}| [A-Z]{2}|-\d{3})?))(?![\w-])"
)
_STREET_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:address_?(?:line)?_?[1-4]|street(?:_?address)?)$"
)
_ZIP_KEY: Final = re.compile(r"(?i)(?:^|[._])(?:zip|zip_?code|post(?:al)?_?code|plz)$")
_TOWN_KEY: Final = re.compile(r"(?i)address\.(?:city|town|village)$")
_ADDRESS_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:home_|shipping_|billing_|mailing_|street_)?address$"
)


def find(text: str, context: str | None) -> Iterator[Span]:
    """E-mail addresses, user handles and postal addresses in `text`."""
    yield from _emails(text)
    lower = text.lower()
    if any(hint in lower for hint in _SPELT_HINTS):
        for match in _SPELT.finditer(text):
            yield Span(match.start(), match.end(), "EMAIL_ADDRESS", 0.8)
    if "_" in text and _HANDLE_END.search(text):
        yield from _handles(text)
    if context is not None:
        yield from _by_key(text, context)
    yield from _streets(text)


def _emails(text: str) -> Iterator[Span]:
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end())
        if domain is None:
            continue
        start = _start_of_local_part(text, at.start())
        if start < at.start():
            yield Span(start, domain.end(), "EMAIL_ADDRESS")


def _start_of_local_part(text: str, end: int) -> int:
    """Walk back from the at sign; a name in Chinese letters is taken only without Latin ones."""
    letters = _CJK if end and _CJK.match(text[end - 1]) else _LOCAL
    start = end
    while start > max(0, end - _MAX_LOCAL) and letters.match(text[start - 1]):
        start -= 1
    while start < end and text[start] in ".'-~+":
        start += 1
    return start


def _handles(text: str) -> Iterator[Span]:
    for match in _HANDLE.finditer(text):
        words = {match.group("first").lower(), match.group("last").lower()}
        if not words & THINGS and not any(word.rstrip("s") in THINGS for word in words):
            yield Span(match.start(), match.end(), "USER_HANDLE", 0.9)


def _by_key(text: str, context: str) -> Iterator[Span]:
    """The whole text is private where its key says so."""
    if not text.strip():
        return
    if _STREET_KEY.search(context) or (
        _ADDRESS_KEY.search(context) and re.search(r"(?<![A-Za-z])\d", text)
    ):
        if "@" not in text and "://" not in text and len(text) <= 200 and not _IPISH.match(text):
            yield Span(0, len(text), "STREET_ADDRESS", 0.9)
    elif _ZIP_KEY.search(context) and len(text) <= 12 and re.search(r"\d", text):
        yield Span(0, len(text), "POSTAL_CODE", 0.9)
    elif _TOWN_KEY.search(context) and len(text) <= 60:
        yield Span(0, len(text), "LOCATION", 0.9)
    elif _HANDLE_KEY.search(context) and _HANDLE_VALUE.fullmatch(text):
        yield Span(0, len(text), "USER_HANDLE", 0.8)


_IPISH: Final = re.compile(r"(?:0x)?[0-9a-fA-F.:]+$")


def _streets(text: str) -> Iterator[Span]:
    if not re.search(r"\d", text):
        return
    yield from addresses.find(text)
    for match in _UNIT_ALONE.finditer(text):
        yield Span(match.start(), match.end(), "STREET_ADDRESS", 0.8)
    if "号" in text:
        for match in _CHINESE_STREET.finditer(text):
            yield Span(match.start(), match.end(), "STREET_ADDRESS", 0.7)
    yield from _postal_codes(text)


def _postal_codes(text: str) -> Iterator[Span]:
    for match in _ZIP.finditer(text):
        if match["state"] in STATES:
            yield Span(*match.span("value"), "POSTAL_CODE", 0.8)
    for end in label_ends(text.lower(), _ZIP_LABELS):
        labelled = _ZIP_VALUE.match(text, end)
        if labelled:
            group = "value" if labelled["value"] else "short"
            yield Span(*labelled.span(group), "POSTAL_CODE", 0.8)
