"""Values that stand beside their key in plain text: `dob=…`, `Phone: …`, columns of a table.

What a JSON key says of its value, a column's heading says of its cells, and so does a word before
an equals sign in a line of a log. The same recognisers read them, with that word as the context.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect import contacts, dates, documents, names, numbers, secrets
from streams.redaction.detect.contract import Span

#: Keys that may say something about their value; all others cost nothing.
_TELLING: Final = re.compile(
    r"(?i)name|dob|birth|born|phone|mobile|\btel\b|cell|fax|address|street|\bzip|postal|postcode"
    r"|passport|licen[sc]e|plate|ssn|social|e?mail|user|login|handle|passw|token|secret|api_?key"
    r"|\bid_?(?:card|number)|national|tax_?id|account_?n|姓名|电话|手机|邮箱|地址|生日|身份证|护照|氏名|電話|住所"
)
_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{1,40})=(?:\"(?P<quoted>[^\"\n]{1,120})\"|'(?P<single>[^'\n]{1,120})'"
    r"|(?P<value>[^\s\"',;&|()\[\]{}<>=]{1,120}))"
)
_LINE: Final = re.compile(
    r"^[ \t>*-]{0,8}(?P<key>[^\W\d][\w /.'-]{1,40}?)[*\"']{0,3} ?[:：][*\"']{0,3}[ \t]{1,8}"
    r"(?P<value>[^\n]{1,120}?)"
    r"[*\"',]{0,4}[ \t]*$",
    re.MULTILINE,
)
#: Between a key and its value, and between rows. Most texts of one line hold none.
_MARKS: Final = ("=", ":", "\uff1a", "\n")
_DELIMITERS: Final = ("|", "\t", ",", ";")
_MAX_COLUMNS: Final = 60
_DIGIT: Final = re.compile(r"\d")
_BLANK: Final = re.compile(r"[ \t\"']*")


def find(text: str) -> Iterator[Span]:
    """Values whose key, heading or label says that they are private."""
    if not any(mark in text for mark in _MARKS) or _TELLING.search(text) is None:
        return
    for key, start, end in _values(text):
        value = text[start:end]
        for span in _by_key(value, re.sub(r"[ /'-]+", "_", key.strip())):
            if span.start == 0 and span.end == len(value):
                yield Span(start, end, span.kind, span.score)


def _values(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of each value beside a telling key."""
    if "=" in text:
        for match in _ASSIGNED.finditer(text):
            if _TELLING.search(match["key"]):
                group = next(name for name in ("quoted", "single", "value") if match[name])
                yield match["key"], *match.span(group)
    if ":" in text or "：" in text:
        for match in _LINE.finditer(text):
            if _TELLING.search(match["key"]):
                yield match["key"], *match.span("value")
    if "\n" in text:
        yield from _cells(text)


def _cells(text: str) -> Iterator[tuple[str, int, int]]:
    """The cells of tables below headings of which one tells something."""
    headings: list[str] = []
    delimiter = ""
    position = 0
    for line in text.split("\n"):
        if headings and line.count(delimiter) == len(headings) - 1:
            yield from _row(line, position, headings, delimiter)
        else:
            delimiter = _delimiter(line)
            headings = [_bare(each) for each in line.split(delimiter)] if delimiter else []
        position += len(line) + 1


def _delimiter(line: str) -> str:
    """What separates the headings in a line; empty if it is no line of headings."""
    if len(line) > 2_000 or _TELLING.search(line) is None:
        return ""
    for delimiter in _DELIMITERS:
        cells = [_bare(each) for each in line.split(delimiter)]
        inner = cells[1:-1] if delimiter == "|" and len(cells) > 2 and not cells[0] else cells
        if 2 <= len(inner) <= _MAX_COLUMNS and all(_is_heading(each) for each in inner):
            return delimiter
    return ""


def _bare(cell: str) -> str:
    return cell.strip(" \t\"'*\r\ufeff")


def _is_heading(cell: str) -> bool:
    return (
        1 <= len(cell) <= 40 and not cell[0].isdigit() and "@" not in cell and len(cell.split()) < 5
    )


def _row(
    line: str, position: int, headings: list[str], delimiter: str
) -> Iterator[tuple[str, int, int]]:
    for heading, cell in zip(headings, line.split(delimiter), strict=True):
        bare = _bare(cell)
        if bare and _TELLING.search(heading):
            start = position + cell.index(bare)
            yield heading, start, start + len(bare)
        position += len(cell) + len(delimiter)


def _by_key(value: str, context: str) -> Iterator[Span]:
    yield from secrets.find(value, context)
    yield from contacts.find(value, context)
    yield from names.find(value, context)
    if _DIGIT.search(value):
        yield from dates.find(value, context)
        yield from numbers.find(value, context)
        yield from documents.find(value, context)
