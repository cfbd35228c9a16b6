"""Names of people as far as patterns can find them: by key, by label, by form of address.

Everything else about names is left to the named-entity tier and to `propagation`, which finds the
names of one document again in its other texts.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.words import NOT_NAMES

KIND: Final = "PERSON"

_WORD: Final = (
    r"[A-Z\u00c0-\u00de][a-z\u00df-\u024f]{1,30}(?:['’-][A-Z]?[a-z\u00df-\u024f]{1,30}){0,3}"
)
_NAME: Final = rf"{_WORD}(?: (?:[A-Z]\. )?(?:(?:van|von|de|del|da|bin|al) )?{_WORD}){{0,3}}"
_KEY: Final = re.compile(
    r"(?i)(?:^|[._])(?:(?:first|last|middle|full|given|family|sur|fore|maiden|nick|display)[_-]?names?"
    r"|(?:customer|passenger|patient|contact|holder|cardholder|person|guest|employee|recipient|sender"
    r"|account_holder|emergency_contact|buyer|owner|user|client)_names?|surname|姓名|氏名)$"
)
_PLAIN_NAME_KEY: Final = re.compile(r"(?i)(?:^|\.)name$")
_PLAIN_NAME: Final = re.compile(rf"{_WORD}(?: (?:[A-Z]\.? )?{_WORD}){{1,3}}")
#: A bare `name` key above a single word names a person only beside people, not beside tools.
_PEOPLE_KEY: Final = re.compile(
    r"(?i)(?:user|customer|passenger|patient|contact|person|people|guest|employee|author|sender"
    r"|recipient|owner|member|attendee|friend|client|traveler|traveller)s?\.name$"
)
_VALUE: Final = re.compile(r"[^\W\d_][\w'’.\- ]{0,60}")
_LABELLED: Final = re.compile(
    rf"(?i:\b(?:first|last|full|middle|given|family|sur|passenger|customer|patient)[ _]?name|\bname"
    rf"|\bpassenger(?: \d)?|\bpatient|\bapplicant|\bpolicyholder|\bcontact(?: person)?|\bcustomer)"
    rf"[*\"']{{0,3}}\s?(?:[:：]|-|\bis\b)\s?[*\"']{{0,3}}\s?(?P<value>{_NAME})"
)
_ADDRESSED: Final = re.compile(
    rf"[MmIDdHhTtSsAaWwUuCcRrPF](?<!\w.)(?:(?<=[Mm])y name(?:['’]s| is)|(?<=I)(?:['’]?m| am)"
    rf"|(?<=[Dd])ear|(?<=[Hh])(?:i|ello|ey)|(?<=[Tt])hank(?: you(?: very much)?|s),|(?<=[Ss])orry,"
    rf"|(?<=[Aa])pologi[sz]e(?: for[^.,]{{0,40}})?,|(?<=[Ww])elcome(?: back)?,"
    rf"|(?<=[Uu])nderstood,|(?<=[Cc])ertainly,|(?<=[Rr])egards,|(?<=[Ss])incerely,"
    rf"|(?:(?<=M)(?:rs?|s|me)|(?<=D)r|(?<=P)rof|(?<=H)err|(?<=F)rau|(?<=S)eñor)\b\.?)"
    rf"\s(?P<value>{_NAME})"
)
_BEFORE_DATE: Final = re.compile(
    rf"(?P<value>{_NAME})\**\s?,?\s?[(\[]?(?i:dob|d\.o\.b|date of birth|born|birth ?date)\b"
)
_LOWER: Final = re.compile(
    r"(?i)\b(?:my|maiden|first|last|family|full) name(?:['’]s| is)\s(?P<value>[^\W\d_]{2,30})"
    r"(?![\w'’])"
)
#: Each pattern with lower-case hints, one of which must occur for the pattern to be tried.
_PATTERNS: Final = (
    (_LABELLED, ("name", "passenger", "patient", "applicant", "holder", "contact", "customer")),
    (_ADDRESSED, None),
    (_BEFORE_DATE, ("dob", "d.o.b", "birth", "born")),
    (_LOWER, (" name is", " name's", " name’s")),
)

_SURNAMES: Final = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林郑罗梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任"
    "沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严武戴莫孔向汤"
)
_CHINESE: Final = re.compile(
    rf"(?:姓名|联系人|客户|患者|医生|车主|持卡人|登记人|用户|寄件人|收件人|旅客|买家|承租方|办理人|经办人)[：:是]?\s?"
    rf"(?P<value>[{_SURNAMES}](?:[\u4e00-\u9fff](?=[，,。；;\s（(先女的完因已]|$|[\u4e00-\u9fff]{{0,2}}[的因已完开])"
    rf"|[\u4e00-\u9fff]{{2}}(?=[，,。；;\s（(先女的因已]|$)))"
    rf"|(?P<titled>[{_SURNAMES}][\u4e00-\u9fff]{{0,2}})(?=先生|女士|老师|经理)"
)
#: A name in Latin letters in a Chinese sentence, where no blank parts them.
_LATIN_IN_CHINESE: Final = re.compile(
    rf"(?:姓名|联系人|客户|患者|医生|车主|持卡人|登记人|用户|寄件人|收件人|旅客|买家)[：:是]?\s?"
    rf"(?P<value>{_WORD}(?: {_WORD}){{1,3}})"
)


def find(text: str, context: str | None) -> Iterator[Span]:
    """Names in `text`."""
    if context is not None and _is_name_value(text, context):
        yield Span(0, len(text), KIND, 0.9)
        return
    lower = text.lower()
    for pattern, hints in _PATTERNS:
        if hints is not None and not any(hint in lower for hint in hints):
            continue
        for match in pattern.finditer(text):
            yield from _trimmed(text, *match.span("value"))
    if not text.isascii():
        for match in _LATIN_IN_CHINESE.finditer(text):
            yield from _trimmed(text, *match.span("value"))
        for match in _CHINESE.finditer(text):
            group = "value" if match.group("value") else "titled"
            yield Span(*match.span(group), KIND, 0.6)


def _is_name_value(text: str, context: str) -> bool:
    value = text.strip()
    if _KEY.search(context):
        return _VALUE.fullmatch(value) is not None and "_" not in value
    if not _PLAIN_NAME_KEY.search(context):
        return False
    if _PEOPLE_KEY.search(context):
        return _VALUE.fullmatch(value) is not None and "_" not in value
    return _PLAIN_NAME.fullmatch(value) is not None


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    """The leading words of text[start:end] that can be parts of a name."""
    stop = start
    for word in re.finditer(r"\S+", text[start:end]):
        if word.group().rstrip(".").lower() in NOT_NAMES:
            break
        stop = start + word.end()
    if stop > start:
        yield Span(start, stop, KIND, 0.7)
