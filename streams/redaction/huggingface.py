"""The tokenizers of the package `tokenizers` behind the port of `retokenise`.

What a token stands for is read off the vocabulary, not off `decode`, which puts blanks in and takes
them out at the ends of a text. Three forms are known: letters that stand for bytes, pieces with `▁`
for a blank, and `<0x0A>` for single bytes. Of any other form (WordPiece, whole words) nothing is
said, so that its ids are withheld.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from schemas.errors import ConfigError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\u2581"


class HuggingFaceTokenizer:
    """One `tokenizer.json`. Its own marks around a text (`[CLS]`, `<s>`) are left out."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is used as it is; truncation and padding must be off."""
        if engine.truncation is not None or engine.padding is not None:
            raise ConfigError("The tokenizer truncates or pads; switch both off in its file.")
        self._engine = engine
        described = json.loads(engine.to_str())
        self._spell = _spelling(described)
        added = engine.get_added_tokens_decoder()
        if described["model"].get("byte_fallback"):  # its bytes are text, even where it marks them
            added = {i: t for i, t in added.items() if not _BYTE.fullmatch(t.content)}
        self._added = {i: token.content.encode() for i, token in added.items()}
        self._marks = frozenset(i for i, token in added.items() if token.special)
        #: Of ids in the vocabulary, so no more than it has.
        self._known: dict[int, bytes] = {}

    @classmethod
    def of_file(cls, path: Path) -> "HuggingFaceTokenizer":
        """The tokenizer in a file. ConfigError where there is none."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"There is no tokenizer at {path}; name a tokenizer.json.") from None
        try:
            engine = Engine.from_str(text)
        except Exception:  # noqa: BLE001 - the package raises nothing more special
            raise ConfigError(f"{path} is not a tokenizer.json that can be read.") from None
        return cls(engine)

    def piece(self, token_id: int) -> bytes | None:
        """See `Tokenizer.piece`."""
        if token_id in self._added:
            return self._added[token_id]
        if token_id in self._known:
            return self._known[token_id]
        text = self._engine.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        piece = None if text is None else self._spell(text)
        if piece is not None:
            self._known[token_id] = piece
        return piece

    def is_mark(self, token_id: int) -> bool:
        """See `Tokenizer.is_mark`."""
        return token_id in self._marks

    def encode(self, text: str) -> Sequence[int]:
        """See `Tokenizer.encode`."""
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return ids


def _spelling(described: Mapping[str, Any]) -> Callable[[str], bytes | None]:
    """How the vocabulary writes bytes; a function that knows nothing where that is not told."""
    kinds = {part["type"] for part in _parts(described.get("decoder"))}
    if kinds == {"ByteLevel"}:
        return _letters_of_bytes()
    if kinds & {"Metaspace", "ByteFallback", "Replace"} and "WordPiece" not in kinds:
        return _with_blanks
    return lambda _token: None


def _parts(decoder: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(decoder, dict):
        return
    if decoder["type"] != "Sequence":
        yield decoder
    for inner in decoder.get("decoders", ()):
        yield from _parts(inner)


def _letters_of_bytes() -> Callable[[str], bytes | None]:
    """As GPT-2 has it: bytes that are no visible letter are written as letters from U+0100 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    byte_of = {chr(byte if byte in visible else next(others)): byte for byte in range(256)}

    def spell(token: str) -> bytes | None:
        found = [byte_of.get(letter) for letter in token]
        return None if None in found else bytes(byte for byte in found if byte is not None)

    return spell


def _with_blanks(token: str) -> bytes | None:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_BLANK, " ").encode()
