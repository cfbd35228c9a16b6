"""Numbers and marks that a state, a bank or an insurer gives to a person.

Formats with a check digit or an unmistakable form are found anywhere; all others only after a word
that says what follows ("passport", "Aadhaar", 护照).
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.labels import label_ends

KIND: Final = "NATIONAL_ID"

_LABELS: Final = (
    "passport", "护照", "護照", "パスポート", "여권", "reisepass", "ausweis", "pasaporte",
    "driver's license", "drivers license", "driver license", "driver’s license", "driving licence",
    "driving license", "driver licence", "driver's licence", "driver_license", "license number",
    "licence number", "führerschein", "permis de conduire", "驾驶证", "驾照",
    "aadhaar", "aadhar", "pan card", "pan number", "voter id",
    "nhs number", "nhs no", "nino", "national insurance",
    "マイナンバー", "個人番号", "my number",
    "steuer-id", "steuer-identifikationsnummer", "steueridentifikationsnummer", "steuernummer",
    "sozialversicherungsnummer", "krankenversicherungsnr", "krankenversicherungsnummer",
    "versichertennummer", "tax id", "tax_id", "taxpayer id", "tin", "itin", "ein",
    "national id", "national_id", "id card", "identity card", "id number", "id_number",
    "identity number", "证件号", "社保号", "医保号", "学号", "军官证",
    "medical record", "mrn", "member id", "policy number", "insurance number", "medicare",
    "license plate", "licence plate", "number plate", "plate number", "registration plate",
    "kennzeichen", "车牌",
    "account number", "account no", "account", "acct", "routing number", "routing", "sort code",
    "kontonummer", "卡号", "账号", "帐号", "口座番号", "계좌", "주민등록번호", "외국인등록번호",
)  # fmt: skip
#: Everyday words too: only a sign of assignment makes them labels.
_WEAK_LABELS: Final = frozenset(("account", "acct", "routing", "tin", "ein", "my number", "学号"))
_VALUE: Final = re.compile(
    r"(?P<between>(?i:[ _]?(?:number|num|no|nr|code|card|id|号码|号|號))?\.?\s{0,2}"
    r"(?:is|was|[:=：#]|は)?"
    r"[\s\"'*]{0,4}(?:[:=：#])?\s{0,2}[\"'(]?)"
    r"(?P<value>[A-Z0-9](?<![A-Za-z0-9_].)[A-Z0-9]{0,14}(?:[ /.-]?[A-Z0-9]{1,12}){0,5})"
    r"(?![A-Za-z0-9_])"
)
_DIGITS: Final = re.compile(r"\d+")
#: A label, what may stand between, and letters of the value before its first digit.
_LABEL_REACH: Final = 160
_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:passport(?:_?(?:no|num|number))?|(?:driver'?s?_?)?licen[sc]e_?(?:no|num|number)"
    r"|(?:national|citizen|resident|identity)_?(?:id|no|number)|id_?(?:card|number)|ssn|nino|aadhaar"
    r"|tax_?(?:id|number)|licen[sc]e_?plate|plate(?:_?(?:no|number))?|身份证号?|护照号?|证件号码?"
    r"|account_?(?:no|number)|routing_?number|medical_?record_?(?:no|number)|mrn|policy_?number)$"
)
_PLATE: Final = re.compile(
    r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-HJ-NP-Z][·•・ -]?"
    r"(?=[A-HJ-NP-Z]{0,5}\d)[A-HJ-NP-Z0-9]{4,5}[A-HJ-NP-Z0-9挂学警港澳](?![A-Za-z0-9])"
)
_PERMANENT_ACCOUNT: Final = re.compile(r"[A-Z](?<!\w.)[A-Z]{2}[ABCFGHJLPT][A-Z]\d{4}[A-Z](?!\w)")
_AADHAAR: Final = re.compile(r"[2-9](?<![\w.,+-].)\d{3}([ -])\d{4}\1\d{4}(?![\w-])(?! \d{4})")
_SPANISH: Final = re.compile(r"[\dXYZ](?<!\w.)\d{7}-?[A-HJ-NP-TV-Z](?!\w)")
_ITALIAN: Final = re.compile(r"[A-Z](?<!\w.)[A-Z]{5}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?!\w)")
_BRAZILIAN: Final = re.compile(r"\d(?<![\w.].)\d{2}\.\d{3}\.\d{3}-\d{2}(?!\w)")
_TAIWANESE: Final = re.compile(r"[A-Z](?<!\w.)[12]\d{8}(?!\w)")
_HONG_KONG: Final = re.compile(r"[A-Z](?<!\w.)[A-Z]?\d{6}\([0-9A]\)")
_SWEDISH: Final = re.compile(r"\d(?<![\w.-].)(?:\d{2})?\d[01]\d[0-3]\d[-+]\d{4}(?![\w-])")
_SINGAPORE: Final = re.compile(r"[STFG](?<!\w.)\d{7}[A-Z](?!\w)")


#: What one of the formats has in it; most texts hold none of these.
_FORMED: Final = re.compile(
    r"\d(?:\d{5}|\d{3}[ -]\d{4}|\d{3}(?<=[A-Z]{5}\d{4})"
    r"|\d{2}(?:\.\d{3}|(?<=[A-Z]\d{3})[A-Z])|\d\.\d{3}\.)"
)


def find(text: str, context: str | None) -> Iterator[Span]:
    """Numbers and marks of official documents in `text`, which has at least one digit."""
    if context is not None and _KEY.search(context) and _is_mark(text.strip(), weak=False):
        yield Span(0, len(text), KIND)
        return
    for pattern, holds in _FORMS if _FORMED.search(text) else ():
        for match in pattern.finditer(text):
            if holds(re.sub("[ .-]", "", match.group())):
                yield Span(match.start(), match.end(), KIND, 0.9)
    if not text.isascii():
        for match in _PLATE.finditer(text):
            yield Span(match.start(), match.end(), KIND, 0.9)
    yield from _labelled(text)


def _labelled(text: str) -> Iterator[Span]:
    lower = text.lower()
    near = _before_digits(lower)
    for label in _LABELS:
        if label not in near:
            continue
        for end in label_ends(lower, (label,)):
            match = _VALUE.match(text, end)
            if match is None:
                continue
            weak = label in _WEAK_LABELS and not re.search("[:=：#は]|number|no", match["between"])
            if _is_mark(match["value"], weak=weak or not match["between"]):
                yield Span(*match.span("value"), KIND, 0.8)


def _before_digits(lower: str) -> str:
    """What stands before digits no further than a label may: most texts hold few digits."""
    pieces: list[str] = []
    seen = 0
    for digits in _DIGITS.finditer(lower):
        pieces.append(lower[max(seen, digits.start() - _LABEL_REACH) : digits.start()])
        if seen < digits.start() - _LABEL_REACH:
            pieces.insert(-1, "\n")
        seen = digits.start()
    return "".join(pieces)


def _is_mark(value: str, *, weak: bool) -> bool:
    """Enough digits for a number that was issued, and not too many for one."""
    marks = re.sub(r"[ /.-]", "", value)
    digits = sum(character.isdigit() for character in marks)
    return (digits >= (7 if weak else 4)) and 5 <= len(marks) <= 22 and len(value) <= 34


def verhoeff(digits: str) -> bool:
    """Whether a string of digits passes the checksum of Aadhaar numbers."""
    check = 0
    for place, character in enumerate(reversed(digits)):
        check = _DIHEDRAL[check][_permuted(place, int(character))]
    return check == 0


_DIHEDRAL: Final = tuple(
    tuple(
        (a + b) % 5 if a < 5 and b < 5
        else 5 + (a + b) % 5 if a < 5
        else 5 + (a - b) % 5 if b < 5
        else (a - b) % 5
        for b in range(10)
    )
    for a in range(10)
)  # fmt: skip
_PERMUTATION: Final = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)


def _permuted(place: int, digit: int) -> int:
    for _ in range(place % 8):
        digit = _PERMUTATION[digit]
    return digit


def _spanish(mark: str) -> bool:
    number = mark[:-1].translate(str.maketrans("XYZ", "012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == mark[-1]


def _brazilian(digits: str) -> bool:
    if len(set(digits)) == 1:
        return False
    for length in (9, 10):
        total = sum(int(digits[i]) * (length + 1 - i) for i in range(length))
        if total * 10 % 11 % 10 != int(digits[length]):
            return False
    return True


def _taiwanese(mark: str) -> bool:
    area = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(mark[0]) + 10
    weights = (8, 7, 6, 5, 4, 3, 2, 1, 1)
    total = area // 10 + area % 10 * 9
    return (total + sum(int(d) * w for d, w in zip(mark[1:], weights, strict=True))) % 10 == 0


def _swedish(mark: str) -> bool:
    digits = re.sub("[^0-9]", "", mark)[-10:]
    total = 0
    for place, character in enumerate(digits):
        value = int(character) * (2 - place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = (
    (_PERMANENT_ACCOUNT, bool),
    (_AADHAAR, verhoeff),
    (_SPANISH, _spanish),
    (_ITALIAN, bool),
    (_BRAZILIAN, _brazilian),
    (_TAIWANESE, _taiwanese),
    (_HONG_KONG, bool),
    (_SWEDISH, _swedish),
    (_SINGAPORE, bool),
)
