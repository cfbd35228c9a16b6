"""The tokenizers of the package `tokenizers` behind the port of `retokenise`."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as Engine

from schemas.errors import ConfigError
from streams.redaction.retokenise import Token


class HuggingFaceTokenizer:
    """One `tokenizer.json`. Its own marks around a text (`[CLS]`, `<s>`) are left out."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is used as it is; truncation and padding must be off."""
        if engine.truncation is not None or engine.padding is not None:
            raise ConfigError("The tokenizer truncates or pads; switch both off in its file.")
        self._engine = engine

    @classmethod
    def of_file(cls, path: Path) -> "HuggingFaceTokenizer":
        """The tokenizer in a file. ConfigError where there is none."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            raise ConfigError(f"There is no tokenizer at {path}; name a tokenizer.json.") from None
        return cls(Engine.from_str(text))

    def encode(self, text: str) -> Sequence[Token]:
        """See `Tokenizer.encode`."""
        encoding = self._engine.encode(text, add_special_tokens=False)
        return [
            Token(token_id, start, end)
            for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]
