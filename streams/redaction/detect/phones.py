"""Phone numbers, as the countries of the world write them.

A number with a country code, brackets around its area code, or the groups of a plan that is known
is one by itself. Other groups of digits are one where a word for phones stands near, or where they
stand alone in a line below words.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.checks import digits_of
from streams.redaction.detect.contract import Span

KIND: Final = "PHONE_NUMBER"

#: Looks back over the first character: not inside a word, a longer number or a decimal.
_AFTER: Final = r"(?![A-Za-z0-9_])(?![.-]\d)"
_EXTENSION: Final = (
    r"(?:,? ?(?:x|ext(?:ension|n)?\.?:? ?|poste |int\.? |anexo |durchwahl |dw\.? ?|#)\d{1,6})?"
)
_START: Final = re.compile(r"[+(\d](?<!\d\d)")
_PHONE: Final = re.compile(
    r"(?<![A-Za-z0-9_+\]])(?<!\d[.)-])(?<![a-z]/(?=\d{6,12}/))(?:"
    r"(?:\+ ?|00 ?)(?:[1-9]\d{0,2}|(?<=\+)\([1-9]\d{0,2}\))(?:[ ./-]{0,2}\(?\d{1,5}\)?){2,7}"
    r"|\(\+?\d{1,5}\)(?: ?[ ./-]? ?\d{2,9})(?: ?[ ./-] ?\d{2,6}){0,4}"
    r"|(?:1[ .-])?\([2-9]\d{2}\)[ .-]{0,2}\d{3}[ .-]?\d{4}"
    r"|\(0\d{0,2}[ -]\d{1,4}\) ?\d{2,5}(?:[ -]\d{2,5}){0,3}"
    r"|(?:1[ .-])?[2-9]\d{2}(?P<sep>[ .-])\d{3}(?P=sep)\d{4}"
    r"|(?:1-)?\d{3}(?P<sep5>[.-])\d{3}(?P=sep5)\d{4}"
    r"|1[3-9]\d(?:\d{8}|(?P<sep2>[ -])\d{4}(?P=sep2)?\d{4})"
    r"|0\d{2,3}-?\d{7,8}"
    r"|0[1-9]\d{0,3} ?/ ?\d{2,8}(?:[ -]\d{1,6}){0,3}"
    r"|0[1-9](?:\.\d{2}){4}"
    r"|0[1-9]\d{0,3}(?P<sep4>[ .-])\d{2,4}(?:(?P=sep4)?\d{2,6}){1,3}"
    r"|0[1-9]\d{0,3}-\d{2,4} \d{2,4}(?: \d{2,4}){0,2}"
    r"|0[1-9] \d{3} \d{3}|0[1-9]-\d{2}/\d{3} ?\d{4}"
    r"|0[1-9]\d{0,3} \d{2,4}-\d{2,4}(?:-\d{2,4})?"
    r"|0[1-9]\d{3,4} \d{5,6}"
    r"|0(?P<sep6>[ -])[1-9]\d{3}(?P=sep6)\d{4}"
    r"|0[1-9]-\d/\d{3} \d{4}"
    r"|1-[789]00-\d{3}-\d{3}"
    rf"){_EXTENSION}{_AFTER}",
    re.IGNORECASE,
)
_ISO_DATE: Final = re.compile(r"(?:19|20)\d\d[-. ]\d{1,2}[-. ]\d{1,2}\b")
_YEARS: Final = re.compile(r"(?:19|20)\d\d ?[-/] ?(?:19|20)\d\d")
_COMPACT_DATE: Final = re.compile(r"20[0-3]\d[01]\d[0-3]\d")
_ANY_DATE: Final = re.compile(
    r"(?:19|20)\d\d[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ](?:19|20)\d\d"
)
_LABEL: Final = re.compile(
    r"(?i:(?<![a-z])(?:phone|telephone|telefon|tel|mobile|cell|call|fax|whatsapp|sms|contact"
    r"|answering at|text me|compact|reach me|reach us|dial|desk|office|téléphone|teléfono|telefono"
    r"|móvil|celular|handy|mobil|tlf|puhelin|тел\.|телефон|τηλ|điện thoại|โทร"
    r"|(?:mob|hotline|helpline|landline|switchboard|pager|beeper|toll[- ]free|rsvp|viber"
    r"|missed call|(?:customer|front|help|support|booking|reservation) (?:care|desk|line)"
    r"|recharge|top up|(?:direct|private|new|personal) number|(?:hit|holler at|try) me"
    r"|sim (?:card )?for)(?![a-z]))"
    r"|电话|手机|号码|联系|電話|携帯|연락처|전화)[^\d+(]{0,24}$"
)
_LABEL_REACH: Final = 44
_VALUE: Final = re.compile(
    r"[+(\d](?<![\d+(].)(?:(?<=[+(])\d)?[\d ()./-]{4,18}\d(?:,? ?(?:x|ext\.? ?)\d{1,6})?"
    r"(?![A-Za-z0-9_])"
)
#: Immediately before a number in groups: "T: ", "(m) ", "you have reached ".
_SHORT_LABEL: Final = re.compile(
    r"(?i)(?:(?<![\w$.'\"])(?:[tpmfhw]|ph|mob|home|work|direct|enquiries|inquiries|support|info"
    r"|questions|signal|telegram|skype|emergency|reception|digits|from|to|number)"
    r" ?(?:[:.?|)#][:.|]? ?|- )"
    r"|(?:have reached|sen[dt](?: it)? to|(?:messages?|texts?) from|(?:it|number) (?:from|to)"
    r"|contacted on|available at|reply to|register|unlock|(?:his|hers|mine|new one|that)(?: is|'s)"
    r"|recogni[sz]e|this is) )$"
)
_SHORT_REACH: Final = 20
#: Immediately behind it.
_TAIL: Final = re.compile(
    r"(?i) (?:is|was) (?:my|his|her|their|our|your|the|still valid|engaged)\b"
    r"(?! (?:order|account|tracking|reference|case|booking))|,? ?(?:x|ext\.?) ?\d{1,5}\b"
    r"| speaking\b|,? ask for\b| (?:keeps|kept) (?:calling|ringing|texting)\b"
    r"| (?:called|texted|rang) me\b"
    r"|(?: or |[ ,;/|-]{1,4})[\w.+-]{1,64}@[a-z]"
)
_BEHIND_MAIL: Final = re.compile(r"@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}(?: or |[ ,;/|-]{1,4})$")
_MAIL_REACH: Final = 90
_UNITS: Final = (
    r"(?! ?(?:km|kg|USD|EUR|GBP|[$€£¥%]|items?|points?|rows?|bytes|[kKmMgG]?B\b|ms|seconds|records"
    r"|lines|tokens|people|dollars|euros|files|users|steps|times|requests|events)\b)(?! ?[%€$£¥])"
)
#: "My new number is 57123456": digits alone, behind whose number they are.
_WHOSE: Final = re.compile(
    r"(?i)\b(?:my|his|her|their|our|your)"
    r"(?: (?!order|account|tracking|reference|case|booking|member)[a-z]{3,10})?"
    r" (?:number|no\.?|line|registered)(?: is| at|:| now| was| to){0,2} $"
)
_WHOSE_VALUE: Final = re.compile(r"\d(?<![\w.,+$€£#/:-].)\d{6,11}(?![\w%])(?![.,:/-]\d)" + _UNITS)
#: Seven to twelve digits without a mark, on the line of a word that phones alone have.
_DIGITS: Final = re.compile(r"\d(?<![\w.,+$€£#/:-].)\d{6,11}(?![\w%])(?![.,:/-]\d)" + _UNITS)
_STRONG_WORD: Final = re.compile(
    r"(?i)(?<![a-z_])(?:(?:tele)?phones?|mobile|cell|call (?:me|us|him|her|them|back)|fax|whatsapp"
    r"|sms|text(?: me)?|ring|notify|otp|(?:a |the )?(?:message|reminder|verification code) to"
    r"|reach (?:me|us|him|her|them)|dial|hotline|voicemail)(?![a-z_])[^\d\n]{0,40}$"
)
_GROUPED: Final = re.compile(r"\d[ ()./-]+\d")
_NO_UNIT: Final = re.compile(_UNITS)
_DECIMAL: Final = re.compile(r"\d+\.\d+")
#: The label may stand behind: `28-64-66-98 office`.
_BEFORE: Final = re.compile(
    r"(?P<value>[+(\d](?<![\w.+-].)(?<!\d,.)[\d ().-]{5,18}\d(?:x\d{1,6})?)(?: ?- ?| ?\(| )"
    r"(?:office|fax|mobile|cell|home|work|desk|direct)\b(?! [a-z])",
    re.IGNORECASE,
)
#: Groups of digits that may be a phone where a word for it stands on the same line, or that stand
#: in a line of their own: nine digits in threes, pairs, a short local number.
_GROUPS: Final = re.compile(
    r"\d(?<![A-Za-z0-9_+#$€£.,:/)\]-].)\d{0,4}(?:(?P<sep>[ .-])\d{2,7}(?:(?P=sep)\d{2,5}){0,3})"
    r"(?![A-Za-z0-9_%€$])(?![.,:/-]\d)" + _UNITS
)
_NEAR_WORD: Final = re.compile(
    r"(?i)(?<![a-z])(?:(?:tele)?phones?|tel|mobiles?|cell|call(?:s|ed|ing)?|fax|whatsapp|sms"
    r"|text(?: me)?|contact|reach|ring|dial|answering|registered|message|voicemail|hotline|helpline"
    r"|téléphone|teléfono|telefono?|móvil|celular|handy|mobil|landline"
    r"|(?<!order )(?<!account )(?<!tracking )(?<!reference )(?<!case )number)(?![a-z])"
)
_NEAR: Final = 64
_NEAR_HERE: Final = re.compile(rf"{_NEAR_WORD.pattern}[^\d\n]{{0,12}}$")
#: Groups of a numbering plan, without a word for phones: nine digits in threes, pairs, and what
#: Spain, Poland, Norway, Switzerland, Belgium, Czechia and others print. Amounts have such groups
#: too; those have a unit or a currency, or other numbers beside them.
_PLAN: Final = re.compile(
    r"[1-9](?<![A-Za-z0-9_+#$€£¥.,:/()\[\]=-].)(?:"
    r"\d{2}(?P<s1>[ -])\d{3}(?P=s1)\d{3}"
    r"|\d{2}(?P<s2>[ -])\d{2}(?P=s2)\d{2}(?P=s2)\d{2}"
    r"|\d{2}(?P<s3>[ -])\d{2}(?P=s3)\d{3}"
    r"|(?<=[6-9])\d{4}[ -]\d{5}"
    r"|\d(?P<s4>[ -])\d{3}(?P=s4)\d{2}(?P=s4)\d{2}"
    r"|\d(?P<s5>[ -])\d{2}(?P=s5)\d{2}(?P=s5)\d{2}(?:(?P=s5)\d{2})?"
    r"|(?<!1)\d(?P<s6>[ -])\d{3,4}(?P=s6)\d{4}"
    r"|\d-\d{3}-\d{3}"
    r"|\d?(?P<s7>[ -])\d{3}(?P=s7)\d{3}(?P=s7)\d{2}(?P=s7)\d{2}"
    r"|\d{2}(?P<s8>[ -])\d{3}(?P=s8)\d{2}(?P=s8)\d{2}"
    r"|\d/\d{3}[ -]\d{4}|\d (?:\d )?9?\d{4}-\d{4}"
    r")(?![A-Za-z0-9_%€$£¥])(?![.,:/-]\d)(?! \d)" + _UNITS
)
#: Seven to ten digits in two or three groups, which much else has. They count in sentences only:
#: behind a word, and before a mark or a word that no quantity stands before.
_LOCAL: Final = re.compile(
    r"[2-9](?<=[^\W\d_][ ,:\n].)(?:"
    r"\d{2}[ -]\d{4}|(?!0[012]\d |\d{3} (?:19|20)\d\d)\d{3} \d{4}|\d{2} \d{6,7}|\d \d{5,6}"
    r"|\d \d{3} \d{3}"
    r"|\d{2}-\d{4}|\d{2}-\d{2}-\d{2}|\d{2} \d{2} \d{2}|\d{4} \d{2} \d{3}|\d{2}[2-9]\d{6}"
    r"|(?!0[012]\d-\d{4})\d{3}-\d{4}"
    r")(?=[.,;!?)]?(?:\s*$|\n)|[.;!?)](?!\d)|,(?!\d)| (?:and|or|is|for|to|if|but|please|after"
    r"|before|any|anytime|instead|now|today|tomorrow|thanks|thank|by|when|as|so|because|with|which"
    r"|where|that|asap)\b)"
)
_NUMBER_BEFORE: Final = re.compile(r"(?:\d|[$€£¥]|USD|EUR|GBP) ?$")
#: What stands before two numbers that are no phone.
_COUNTED: Final = re.compile(
    r"(?i)(?:pages?|pp?\.|lines?|rows?|range|ports?|chapters?|sections?|years?|ids?|orders?|invoice"
    r"|tickets?|issue|case|flight|error|code|room|version|part|item|model|no\.|between|from|of|total|sum|amount|reference|ref|booking|confirmation|count|size|about|account|claim)"
    r"(?:[ #:]{0,3}| (?:numbers?|nos?\.?|ids?)[ #:]{0,3})$"
)
_KEY: Final = re.compile(
    r"(?i:phone|(?:^|[._])(?:tel|mobile|cell|fax|msisdn|whats_?app|contact_?(?:no|number)))"
    r"|[a-z](?:Mobile|Tel|Cell|Fax)(?![a-z])"
)
#: Who is called or written to; a number of ten digits is a phone there.
_PARTY_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:to|from|recipients?|number|caller|callee|sender|contact|sms|to_?number)$"
)
_BARE: Final = re.compile(r"[2-9]\d{9}")
_SPELT_JOINT: Final = re.compile(r"\d (?:dot|dash|hyphen|point|space) \d{2}", re.IGNORECASE)
_SPELT_MARK: Final = re.compile(
    r"(?<![A-Za-z0-9_.])\+?\d{1,4}(?: (?:dot|dash|hyphen|point|space) \d{2,5}){2,5}(?!\w)", re.I
)
#: What every form of a number but the spelt ones has in it; most texts hold none.
_DIGITS_TOGETHER: Final = re.compile(r"\d[\d ()./+-]{4,}\d")
_DIGIT_WORDS: Final = (
    "zero", "oh", "nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
_MIN_DIGIT_WORDS: Final = 7
_DIGIT_WORD: Final = f"(?:{'|'.join(_DIGIT_WORDS)})"
_SPELT: Final = re.compile(
    rf"(?<!\w)(?:(?:double |triple )?{_DIGIT_WORD}(?:, |[ -])){{6,18}}"
    rf"(?:double |triple )?{_DIGIT_WORD}(?!\w)", re.IGNORECASE,
)  # fmt: skip
_COUNTING: Final = ("one two three four", "nine eight seven six", "zero one two three")
#: Digit by digit: "4 1 5 5 5 5 0 1 3 2".
_SINGLE: Final = re.compile(r"\d(?<![\w.,].)(?:[ -]\d){6,14}(?![\w.,])(?! \d)")


def find(text: str, context: str | None) -> Iterator[Span]:
    """Phone numbers in `text`."""
    if context is not None and _KEY.search(context) and 6 <= len(digits_of(text)) <= 15:
        yield Span(0, len(text), KIND)
        return
    if _DIGITS_TOGETHER.search(text):
        yield from _written(text)
    if _SPELT_JOINT.search(text):
        yield from _with_spelt_marks(text)
    party = context is None or _PARTY_KEY.search(context)
    if party and _BARE.fullmatch(text.strip()):
        yield Span(0, len(text), KIND, 0.5)


def _written(text: str) -> Iterator[Span]:
    for match in _matches(text):
        num_digits = len(digits_of(match.group()))
        fewest = 8 if match.group()[0] in "(+0" else 9
        if fewest <= num_digits <= 18 and not _ANY_DATE.fullmatch(match.group()):
            yield Span(match.start(), match.end(), KIND, 0.8)
    yield from _in_groups(text)
    yield from _labelled(text)


def _matches(text: str) -> Iterator[re.Match[str]]:
    """As `_PHONE.finditer`, tried only where a number begins: most texts hold few."""
    end = 0
    for start in _START.finditer(text):
        if start.start() >= end and (match := _PHONE.match(text, start.start())):
            end = match.end()
            yield match


def find_spelt(text: str) -> Iterator[Span]:
    """Phone numbers spelt in words: "four one five, five five five ...". Needs no digit."""
    lower = text.lower()
    if sum(map(lower.count, _DIGIT_WORDS)) < _MIN_DIGIT_WORDS:
        return
    for match in _SPELT.finditer(text):
        spoken = re.sub("[, -]+", " ", match.group().lower())
        if not any(each in spoken for each in _COUNTING):
            yield Span(match.start(), match.end(), KIND, 0.7)


def _in_groups(text: str) -> Iterator[Span]:
    for match in _GROUPS.finditer(text):
        if _is_loose(match) and _is_place(text, match.start(), match.end()):
            yield Span(match.start(), match.end(), KIND, 0.5)
    yield from _of_plans(text)
    yield from _without_marks(text)
    for match in _SINGLE.finditer(text):
        near = text[max(0, match.start() - _NEAR) : match.start()]
        if _NEAR_WORD.search(near[near.rfind("\n") + 1 :]):
            yield Span(match.start(), match.end(), KIND, 0.5)


def _with_spelt_marks(text: str) -> Iterator[Span]:
    for match in _SPELT_MARK.finditer(text):
        if len(digits_of(match.group())) >= 7:
            yield Span(match.start(), match.end(), KIND, 0.6)


def _without_marks(text: str) -> Iterator[Span]:
    for match in _DIGITS.finditer(text):
        near = max(0, match.start() - _NEAR)
        if _STRONG_WORD.search(text, near, match.start()) and not (
            _COUNTED.search(text, near, match.start()) or _COMPACT_DATE.fullmatch(match.group())
        ):
            yield Span(match.start(), match.end(), KIND, 0.5)


def _of_plans(text: str) -> Iterator[Span]:
    for match in (*_PLAN.finditer(text), *_LOCAL.finditer(text)):
        before = text[max(0, match.start() - 24) : match.start()]
        counted = _NUMBER_BEFORE.search(before) or _COUNTED.search(before)
        if counted is None and not _ANY_DATE.fullmatch(match.group()):
            yield Span(match.start(), match.end(), KIND, 0.5)


def _labelled(text: str) -> Iterator[Span]:
    for match in _VALUE.finditer(text):
        near = max(0, match.start() - _LABEL_REACH)
        if not _is_labelled(match.group()):
            continue
        if _LABEL.search(text, near, match.start()) or _is_marked(text, match):
            yield Span(match.start(), match.end(), KIND, 0.7)
    for match in _WHOSE_VALUE.finditer(text):
        if _WHOSE.search(text, max(0, match.start() - _NEAR), match.start()):
            yield Span(match.start(), match.end(), KIND, 0.6)
    for match in _BEFORE.finditer(text):
        if _is_labelled(match["value"]):
            yield Span(*match.span("value"), KIND, 0.7)


def _is_marked(text: str, value: re.Match[str]) -> bool:
    """Whether a number of seven digits in groups, no quantity, has a mark of a phone beside it."""
    start, end = value.span()
    written = value.group()
    if not _GROUPED.search(written) or len(digits_of(written)) < 7:
        return False
    if _DECIMAL.fullmatch(written) or not _NO_UNIT.match(text, end):
        return False
    if _SHORT_LABEL.search(text, max(0, start - _SHORT_REACH), start) or _TAIL.match(text, end):
        return True
    near = max(0, start - _NEAR)
    if _WHOSE.search(text, near, start) or (
        "." not in written and _NEAR_HERE.search(text, near, start)
    ):
        return True
    return "@" in text and _BEHIND_MAIL.search(text, max(0, start - _MAIL_REACH), start) is not None


def _is_loose(match: re.Match[str]) -> bool:
    """Six digits or more, no date and no number that is only written in groups."""
    groups = re.split(r"[ .-]", match.group())
    if match["sep"] == "." and (len(groups) == 2 or len(groups) == 4):
        return False  # a decimal, or a version or internet address
    is_amount = match["sep"] != "-" and len(groups[0]) < 3 and {*map(len, groups[1:])} == {3}
    return _is_labelled(match.group()) and not (is_amount and len(groups) == 2)


def _is_place(text: str, start: int, end: int) -> bool:
    """Behind a word for phones on the same line, or alone in a line below one of words."""
    near = max(0, start - _NEAR)
    line = text.rfind("\n", near, start) + 1  # not from its far beginning: a line may be a megabyte
    before = text[max(line, near) : start]
    if before.strip():
        return _NEAR_WORD.search(before) is not None
    above = text[text.rfind("\n", 0, max(0, line - 1)) + 1 : max(0, line - 1)]
    is_alone = text[end : end + 2].strip(" \r")[:1] in ("", "\n")
    return is_alone and any(letter.isalpha() for letter in above)


def _is_labelled(value: str) -> bool:
    separated = re.search(r"\d[ ()./-]+\d", value) is not None
    return (
        (6 if separated else 7) <= len(digits_of(value)) <= 15
        and _ISO_DATE.match(value) is None
        and _YEARS.fullmatch(value) is None
        and _ANY_DATE.fullmatch(value) is None
    )
