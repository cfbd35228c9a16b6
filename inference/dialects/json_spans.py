"""Where the values of a JSON text lie, so that one can be replaced and the rest stay as it is.

Nothing is parsed: a value is found by its brackets and quotes, in one match of a pattern. Whoever
needs to know that a text is JSON has to parse it as well.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Brackets inside brackets that are looked through. A text that is nested deeper is left alone.
_MAX_DEPTH = 40
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = rb"[ \t\r\n]*+"


def _container(depth: int) -> bytes:
    pattern = rb""
    for _ in range(depth):
        inner = rb'[^\[\]{}"]++|' + _STRING + (b"|" + pattern if pattern else b"")
        pattern = rb"[\[{](?:" + inner + rb")*+[\]}]"
    return pattern


_VALUE = b"(" + _STRING + b"|" + _container(_MAX_DEPTH) + rb'|[^\s,:\[\]{}"]++)'
_MEMBER = re.compile(
    _SPACE + b"(" + _STRING + b")" + _SPACE + b":" + _SPACE + _VALUE + _SPACE + b"([,}])", re.DOTALL
)
_ITEM = re.compile(_SPACE + _VALUE + _SPACE + rb"([,\]])", re.DOTALL)
_OPEN = re.compile(_SPACE + rb"([\[{])" + _SPACE + rb"([\]}]?)")


class UnreadableError(ValueError):
    """The text is no JSON of the kind asked for, or it is nested too deeply."""


@dataclass(frozen=True, slots=True)
class Span:
    """A value. `name` is the text between the quotes of its name, escapes and all."""

    start: int
    end: int
    name: bytes = b""


def members(text: bytes, start: int = 0) -> list[Span]:
    """The members of the object that begins at `start`, in order. UnreadableError."""
    return list(_walk(text, start, b"{", _MEMBER))


def items(text: bytes, start: int = 0) -> list[Span]:
    """The items of the array that begins at `start`, in order. UnreadableError."""
    return list(_walk(text, start, b"[", _ITEM))


def _walk(text: bytes, start: int, bracket: bytes, one: re.Pattern[bytes]) -> Iterator[Span]:
    opened = _OPEN.match(text, start)
    if opened is None or opened[1] != bracket:
        raise UnreadableError
    if opened[2]:
        return
    position, more = opened.end(1), True
    while more:
        found = one.match(text, position)
        if found is None:
            raise UnreadableError
        *name, _, mark = found.groups()
        value = 2 if name else 1
        yield Span(found.start(value), found.end(value), name[0][1:-1] if name else b"")
        position, more = found.end(), mark == b","


def replaced(text: bytes, spans: Iterable[Span], value: bytes) -> bytes:
    """The text with that value in the place of each span."""
    pieces, position = [], 0
    for span in sorted(spans, key=lambda span: span.start):
        pieces += [text[position : span.start], value]
        position = span.end
    return b"".join([*pieces, text[position:]])
