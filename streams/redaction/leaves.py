"""The texts inside a document: JSON leaves, JSON text inside leaves, escapes undone.

A leaf may itself be JSON text (tool arguments, tool results). Its strings are read decoded, so
`\\u0061lice@example.com` is seen as it is meant, and every decoded character remembers where it
was written, so that only what must go is replaced and all other bytes stay as they were.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from streams.redaction.as_meant import as_meant, character
from streams.redaction.fragment import Fragment

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Path: TypeAlias = tuple[str | int, ...]

#: JSON text inside JSON text inside ...; what lies deeper is replaced whole.
MAX_TEXT_DEPTH: Final = 6
_NUM_CONTEXT_KEYS: Final = 3


class PathRule(Protocol):
    """Says which string leaves are left alone because they cannot hold private data."""

    def __call__(self, path: Path, siblings: Mapping[str, JsonValue]) -> bool:
        """Whether to leave the leaf at `path`; `siblings` is the object that holds it."""


_TOKEN: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|(?<![\w.+-])\d{7,19}(?![\w.])', re.DOTALL
)
_ESCAPE: Final = re.compile(
    r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_DECODER: Final = json.JSONDecoder(strict=False)


def fragments(text: str, context: str | None) -> Iterator[Fragment]:
    """The texts to scan in one leaf; each character of private data lies in exactly one."""
    whole = Fragment(text, context, None)
    yield from _expand(whole, _keys_of(context), 0)


def _keys_of(context: str | None) -> tuple[str, ...]:
    return tuple(context.split(".")) if context else ()


def _expand(fragment: Fragment, keys: tuple[str, ...], depth: int) -> Iterator[Fragment]:
    if not _holds_json(fragment.text):
        yield as_meant(fragment)
    elif depth == MAX_TEXT_DEPTH:
        yield replace(fragment, is_opaque=True)
    else:
        for start, end, inner_keys, is_key in _strings(fragment.text):
            inner = _string(fragment, start, end, keys + inner_keys, is_key=is_key)
            if is_key:
                yield as_meant(inner)
            elif start == 0 or fragment.text[start - 1] != '"':
                yield replace(inner, is_number=True)
            else:
                yield from _expand(inner, keys + inner_keys, depth + 1)


def _holds_json(text: str) -> bool:
    """Whether the text is a JSON object, array or string that itself holds text."""
    stripped = text.lstrip()
    if stripped[:1] not in ("{", "[", '"') or '"' not in stripped:
        return False
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _strings(text: str) -> Iterator[tuple[int, int, tuple[str, ...], bool]]:
    """Start and end of every string's body and long number, the keys above, and if it is one.

    Only the innermost keys are given: text nests up to a thousand deep.
    """
    levels: list[_Level] = [_Level(())]
    pending: tuple[int, int] | None = None
    for match in _TOKEN.finditer(text):
        mark = match.group()
        if mark[0] == '"':
            pending = (match.start() + 1, match.end() - 1)
            continue
        if pending is not None:
            is_key = mark == ":"
            yield (*pending, levels[-1].above if is_key else levels[-1].keys, is_key)
        elif mark[0].isdigit():
            yield match.start(), match.end(), levels[-1].keys, False
        _step(levels, mark, "" if pending is None else text[slice(*pending)])
        pending = None
    if pending is not None:
        yield (*pending, (), False)


def _step(levels: list["_Level"], mark: str, before: str) -> None:
    """Go into or out of an object or array, or behind the key `before`."""
    if mark in "{[":
        levels.append(_Level(levels[-1].keys))
    elif mark in "}]":
        levels.pop()
    elif mark == ":":
        levels[-1] = _Level(levels[-1].above, _decoded(before))


class _Level:
    """An object or array: the keys above it, and those above the value that comes next in it."""

    __slots__ = ("above", "keys")

    def __init__(self, above: tuple[str, ...], key: str = "") -> None:
        self.above = above
        self.keys = (*above, key)[-_NUM_CONTEXT_KEYS:] if key else above


def _decoded(body: str) -> str:
    return body if "\\" not in body else _ESCAPE.sub(lambda match: character(match.group()), body)


def _string(
    outer: Fragment, start: int, end: int, keys: tuple[str, ...], *, is_key: bool
) -> Fragment:
    context = None if is_key else joined_context(keys)
    inner = outer.part(start, end, context, is_key=is_key)
    return _unescaped(inner) if "\\" in inner.text else inner


def _unescaped(fragment: Fragment) -> Fragment:
    """The fragment with its JSON escapes undone, once: what it holds may be JSON again."""
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    for match in _ESCAPE.finditer(fragment.text):
        pieces += fragment.text[position : match.start()], character(match.group())
        starts += range(position, match.start() + 1)
        ends += range(position + 1, match.start() + 1)
        ends.append(match.end())
        position = match.end()
    pieces.append(fragment.text[position:])
    starts += range(position, len(fragment.text))
    ends += range(position + 1, len(fragment.text) + 1)
    return fragment.reading("".join(pieces), starts, ends)


def joined_context(keys: tuple[str, ...]) -> str | None:
    """The innermost keys, as detectors take them."""
    return ".".join(keys[-_NUM_CONTEXT_KEYS:]) or None


def pointer(path: Path) -> str:
    """RFC 6901 pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
