"""Texts as they are meant: escapes, entities and invisible marks undone for looking, never in what
is stored.

    \\u0061lice@…   jane%40…   jane&#64;…   jane\\_roe   ja<zero width>ne   letters of two scripts

Each character of the reading remembers where it was written, so only what must go is replaced.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from streams.redaction.fragment import Fragment

#: What is coded twice or three times is read; deeper nothing decodes it again.
_MAX_ROUNDS: Final = 3
_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\ufe00-\ufe0f\ufeff"
)
_SIMPLE: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CODED: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}"
    r"|u\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[\"\\/bfnrt_*@.+()~#!-])"
    r"|(?:%[0-9A-Fa-f]{2})+"
    r"|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});"
    r"|[^\W\d_][\u0300-\u036f]+"
    rf"|[{_INVISIBLE}]+"
)
#: Most texts hold none of these, and are read as they stand.
_MARKS: Final = re.compile(rf"[\\%&\u0300-\u036f{_INVISIBLE}]")
#: Blanks, hyphens and letters for formulas that stand for plain ones, one for one.
_PLAIN: Final = str.maketrans(
    dict.fromkeys("\u00a0\u1680\u2002\u2003\u2004\u2005\u2007\u2008\u2009\u200a\u202f\u205f", " ")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2043\u2212\ufe63", "-")
    | {
        chr(code): unicodedata.normalize("NFKC", chr(code))
        for code in (*range(0x1D400, 0x1D800), *range(0x24B6, 0x24EA))
        if len(unicodedata.normalize("NFKC", chr(code))) == 1
    }
)
_OTHER_SCRIPT: Final = re.compile("[\u0370-\u03ff\u0400-\u04ff]")
_MIXED_WORD: Final = re.compile(r"(?=[^\W\d_]*[A-Za-z])(?=[^\W\d_]*[\u0370-\u04ff])[^\W\d_]{2,64}")
#: Greek and Cyrillic letters that look like Latin ones, one for one.
_LOOKALIKES: Final = str.maketrans(
    "АВЕКМНОРСТУХаеорсухіјѕԁԛԝӏАΑΒΕΖΗΙΚΜΝΟΡΤΥΧονικρυχ",
    "ABEKMHOPCTYXaeopcyxijsdqwlAABEZHIKMNOPTYXovikpux",
)

_Piece = tuple[str, int, int]
"""A character, and where its writing begins and ends in the text."""


def as_meant(fragment: Fragment) -> Fragment:
    """The fragment as a reader takes it; the same object where nothing in it is coded."""
    for _ in range(_MAX_ROUNDS):
        text = fragment.text
        if not _is_coded(text):
            break
        decoded = _decoded(fragment)
        if decoded.text == text:
            break
        fragment = decoded
    return fragment if fragment.text.isascii() else _in_plain_letters(fragment)


def _is_coded(text: str) -> bool:
    if text.isascii():
        return "\\" in text or "%" in text or "&" in text
    return _MARKS.search(text) is not None


def _in_plain_letters(fragment: Fragment) -> Fragment:
    text = fragment.text.translate(_PLAIN)
    if _OTHER_SCRIPT.search(text):
        text = _MIXED_WORD.sub(_latin, text)
    return fragment if text == fragment.text else fragment.reading(text)


def _latin(match: re.Match[str]) -> str:
    return match.group().translate(_LOOKALIKES)


def _decoded(fragment: Fragment) -> Fragment:
    text = fragment.text
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    for match in _CODED.finditer(text):
        _plain(text, position, match.start(), pieces, starts, ends)
        for character, start, end in _read(match):
            pieces.append(character)
            starts.append(start)
            ends.append(end)
        position = match.end()
    _plain(text, position, len(text), pieces, starts, ends)
    return fragment.reading("".join(pieces), starts, ends)


def _plain(
    text: str, start: int, end: int, pieces: list[str], starts: list[int], ends: list[int]
) -> None:
    pieces.append(text[start:end])
    starts.extend(range(start, end))
    ends.extend(range(start + 1, end + 1))


def _read(match: re.Match[str]) -> Iterator[_Piece]:
    """What one coded piece stands for; itself where it stands for nothing."""
    written, start = match.group(), match.start()
    first = written[0]
    if first == "%":
        yield from _percent(written, start)
        return
    if first == "\\":
        meant = character(written)
    elif first == "&":
        meant = html.unescape(written)
    else:
        composed = unicodedata.normalize("NFC", written)
        meant = "" if _is_invisible(first) else composed
    if len(meant) == 1:
        yield meant, start, match.end()
    elif meant:
        yield from ((each, start + i, start + i + 1) for i, each in enumerate(written))


def _is_invisible(letter: str) -> bool:
    return not letter.isalpha()


def _percent(written: str, start: int) -> Iterator[_Piece]:
    """The characters of a run such as `%E5%BC%A0`; the run itself where it is no UTF-8."""
    try:
        text = bytes.fromhex(written.replace("%", "")).decode()
    except UnicodeDecodeError:
        yield from ((each, start + i, start + i + 1) for i, each in enumerate(written))
        return
    for each in text:
        end = start + 3 * len(each.encode())
        yield each, start, end
        start = end


def character(escape: str) -> str:
    """The one character an escape stands for; half a surrogate pair stays half."""
    kind = escape[1]
    if kind == "x":
        return chr(int(escape[2:], 16))
    if kind != "u":
        return _SIMPLE.get(kind, kind)
    if len(escape) == 12 and escape[6] == "\\":
        high, low = int(escape[2:6], 16), int(escape[8:12], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    code = int(escape[2:].strip("{}"), 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
