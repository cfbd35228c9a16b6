"""Names in Chinese, Japanese and Korean script: family name, given name, and what is around.

These scripts write no blanks, so a name needs a border: punctuation, or a word that stands before
or after people.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.name_lists import NameLists

KIND: Final = "PERSON"

_RUN: Final = re.compile(r"[\u4e00-\u9fff\u3005]{2,200}|[\uac00-\ud7a3]{2,60}")
_SURNAMES: Final = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林郑罗梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任"
    "沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严武戴莫孔向汤"
    "張劉陳楊黃趙吳孫馬鄭羅謝許韓馮鄧蕭蔣葉蘇呂盧鍾譚陸賈韋鄒閻賀顧龔萬錢嚴湯温康施洪季傅倪俞柳"
)
_DOUBLE_SURNAMES: Final = (
    "欧阳",
    "上官",
    "司马",
    "诸葛",
    "司徒",
    "東方",
    "东方",
    "夏侯",
    "皇甫",
    "尉迟",
    "公孙",
    "令狐",
)
#: What may stand before a person, and after.
_BEFORE: Final = re.compile(
    r"(?:^|[\s，。；：、,.;:!?！？（(\[【《“\"'’|/·—-]|[给帮由向和与同跟找请让对被替为是叫即及托问告]|姓名|联系人|客户"
    r"|患者|医生|护士|车主|持卡人|登记人|用户|寄件人|收件人|旅客|乘客|买家|卖家|房东|租客|承租方|办理人|经办人"
    r"|申请人|投保人|被保人|员工|同事|经理|老师|同学|先生|女士|朋友|家属|邻居|负责人|法人|代表|嫌疑人|原告|被告"
    r"|我叫|名叫|叫做|本人|签收人|受害人|当事人|主任|教授|律师|司机|学生|职员)$"
)
_AFTER: Final = re.compile(
    r"(?:$|[\s，。；：、,.;:!?！？）)\]】》”\"'’|/·—-]|[的在女男已将把给和与向来说从被因为于有没想要去到]|先生|女士|小姐|老师"
    r"|经理|医生|同学|教授|主任|律师|师傅|总|手机|电话|身份证|邮箱|住|出生|今年|是|需|申请|预订|预约|致电|反映|称"
    r"|1[3-9]\d{9}|联系|签|完|开|通过|提交|办理|购买|支付|转账|报|投诉|本人|さん|様|氏|씨|님)"
)
_MAX_BORDER: Final = 11


def find(text: str, lists: NameLists) -> Iterator[Span]:
    """Names in `text`, which is not all ASCII."""
    for run in _RUN.finditer(text):
        position = run.start()
        while position < run.end() - 1:
            length = _length(text, position, run.end(), lists)
            if length:
                yield Span(position, position + length, KIND, 0.7)
            position += length or 1


def _length(text: str, start: int, end: int, lists: NameLists) -> int:
    """Length of the name that begins at `start`; 0 if there is none."""
    has_left = _BEFORE.search(text[max(0, start - _MAX_BORDER) : start]) is not None
    for family in _families(text, start, end, lists):
        for size in (2, 1, 3):
            stop = start + family + size
            if stop > end:
                continue
            given = text[start + family : stop]
            has_right = _AFTER.match(text[stop : stop + _MAX_BORDER]) is not None
            listed = given in lists.east_given and (has_left or (has_right and size > 1))
            guessed = size < 3 and has_left and has_right and _may_be_given(given)
            if listed or guessed:
                return family + size
    return 0


def _families(text: str, start: int, end: int, lists: NameLists) -> Iterator[int]:
    """Lengths of the family names that may begin at `start`, the longest first."""
    for size in (3, 2):
        written = text[start : start + size]
        if start + size < end and (written in lists.east_family or written in _DOUBLE_SURNAMES):
            yield size
    single = text[start]
    if single in _SURNAMES or (single in lists.east_family and not _HAN_1.fullmatch(single)):
        yield 1


_HAN_1: Final = re.compile(r"[\u4e00-\u9fff]")
#: Characters that given names do not have: those of grammar, of numbers, of offices.
_NOT_GIVEN: Final = frozenset(
    "的了是在有和不这那个们我你他她它吗呢吧啊哦一二三四五六七八九十百千万年月日号时分秒元块第每"
    "上下前后里外中间路街市省县区镇村国际银行公司店厂校院所部门局处科电话手机证件码单费价钱款账户"
    "被把给对为从到向与及或但而且如果因所以就才都也还又再很最更太没无非要会能可应该请让使得着过去来"
    "度假先师总授主任经理老什么怎样么哪些几多少女士小姐您好谢速铁铜钢油价格品质量级产业务服工作人员"
)


def _may_be_given(given: str) -> bool:
    return not any(character in _NOT_GIVEN for character in given)
