"""Text that carries no language: data URIs, base64, hashes, UUIDs.

Detectors look at a copy of the text in which these are blanked, character for character, so that
digits inside a hash are not taken for a card and 100 kB of an image cost one scan.
"""

import re
from typing import Final

_BLANK: Final = "\x00"
_DATA_URI: Final = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,80}(?:;[\w=.+-]{1,60}){0,4};base64,")
_BASE64_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z0-9+/]{100,}|[A-Za-z0-9_-]{100,})={0,2}"
)
_HASH: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?=[0-9]{0,40}[A-Fa-f])(?:[0-9a-f]{32,}|[0-9A-F]{32,}))(?![A-Za-z0-9])"
)
_SHORTEST: Final = 32


def blank_opaque(text: str) -> str:
    """`text` with every opaque run replaced by as many NUL characters."""
    longest = len(text)
    if longest >= _SHORTEST:
        longest = max(map(len, text.split()), default=0)  # no run holds a blank
    if longest < _SHORTEST:
        return text
    if longest >= 100:
        if ";base64," in text:
            text = _DATA_URI.sub(_blank, text)
        text = _BASE64_RUN.sub(_blank_if_mixed, text)
    return _HASH.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return _BLANK * len(match.group())


def _blank_if_mixed(match: re.Match[str]) -> str:
    """Base64 of that length mixes the three classes and has few slashes; a path has many."""
    run = match.group()
    head = run[:512]
    mixed = (
        any("a" <= character <= "z" for character in head)
        and any("A" <= character <= "Z" for character in head)
        and any("0" <= character <= "9" for character in head)
    )
    return _BLANK * len(run) if mixed and head.count("/") * 24 <= len(head) else run
