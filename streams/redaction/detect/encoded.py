"""Texts written as base64 or as hexadecimal digits, read as what they say.

An attachment, a header or an opaque cursor may say whose it is. What reads as text is given to the
detectors; pictures and digests do not and cost the look at their first letters.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from streams.redaction.detect.contract import Span, severity_rank

#: No look back: patterns that begin with a class of characters are searched much faster.
_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{12,}+={0,2}(?![A-Za-z0-9_=.-])")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9+_-]{12,}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){10,}|(?:[0-9A-F]{2}){10,}")
_HEAD: Final = 32
_LIKE_BASE64: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z0-9])")
_MIN_LETTERS: Final = 6


def texts(text: str) -> Iterator[tuple[int, int, str]]:
    """Where an encoded text stands, and what it says."""
    for match in _RUN.finditer(text):
        if text[match.start() - 1 : match.start()] == ".":
            continue  # a part of a longer token
        said = _meant(match.group())
        if said:
            yield match.start(), match.end(), said
        elif "/" in match.group():
            # Perhaps a path with an encoded text in it.
            for part in _SEGMENT.finditer(text, *match.span()):
                if part_said := _meant(part.group()):
                    yield part.start(), part.end(), part_said


def _meant(written: str) -> str:
    """What a run says; empty where it is no text."""
    if _LIKE_BASE64.match(written[:_HEAD]) is None and not _HEX.fullmatch(written):
        return ""
    for decode in (_from_hex, _from_base64):
        if _said(decode(written[:_HEAD]), is_head=True):
            return _said(decode(written), is_head=False)
    return ""


def find(text: str, look: Callable[[str], Iterable[Span]]) -> Iterator[Span]:
    """Encoded texts in which `look` finds something: the whole is private, as its worst part."""
    for start, end, said in texts(text):
        kinds = [span.kind for span in look(said)]
        if kinds:
            yield Span(start, end, min(kinds, key=severity_rank), 0.8)


def _from_hex(written: str) -> bytes:
    return bytes.fromhex(written) if _HEX.fullmatch(written) else b""


def _from_base64(written: str) -> bytes:
    plain = written.rstrip("=").replace("-", "+").replace("_", "/")
    if len(plain) % 4 == 1:
        return b""
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return b""


def _said(data: bytes, *, is_head: bool) -> str:
    """The bytes as text; empty where they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_head or error.start < len(data) - 3:
            return ""
        text = data[: error.start].decode()
    if sum(letter.isalnum() for letter in text) < _MIN_LETTERS:
        return ""
    return text if all(each.isprintable() or each in "\n\r\t" for each in text) else ""
