"""Finding the names of one document again in its other texts.

A profile says `"first_name": "Mia"`, a handle says `mia_li_3668`; the reply that begins with
"Thank you, Mia" is private for the same reason.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.names import KIND
from streams.redaction.detect.words import AMBIGUOUS_NAMES, NOT_NAMES

#: Surer than this, a finding lends its words to other texts.
MIN_SCORE: Final = 0.7
_PART: Final = re.compile(r"[^\W\d_]{2,24}(?:['’-][^\W\d_]{1,24})*")


class KnownNames:
    """Words seen as names in one document. Built anew for each: nothing is remembered."""

    def __init__(self) -> None:
        self._words: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._canonical: bytes | None = None

    def learn(self, text: str, spans: Iterable[Span]) -> None:
        """Take the words of the names and handles among the findings in `text`."""
        for span in spans:
            if span.score >= MIN_SCORE and span.kind in (KIND, "USER_HANDLE"):
                self._words.update(_name_words(text[span.start : span.end]))
                self._canonical = None

    @property
    def words(self) -> frozenset[str]:
        """The words learnt so far."""
        return frozenset(self._words)

    @property
    def canonical(self) -> bytes:
        """The same bytes for the same words, to be digested."""
        if self._canonical is None:
            self._canonical = "\n".join(sorted(self._words)).encode("utf-8", "surrogatepass")
        return self._canonical

    def add(self, words: Iterable[str]) -> None:
        """Take words that were learnt elsewhere."""
        self._words.update(words)
        self._pattern = self._canonical = None

    def find(self, text: str) -> Iterator[Span]:
        """Where `text` holds learnt words written as names are: capitalised or in capitals."""
        if not self._words:
            return
        if self._pattern is None:
            self._pattern = _compiled(self._words)
        for match in self._pattern.finditer(text):
            yield Span(match.start(), match.end(), KIND, 0.6)


def _name_words(name: str) -> Iterator[str]:
    for match in _PART.finditer(name.replace("_", " ")):
        word = match.group().casefold()
        if word not in NOT_NAMES and word not in AMBIGUOUS_NAMES:
            yield word


def _compiled(words: set[str]) -> re.Pattern[str]:
    # Three capitals are an airport more often than a shouted name.
    forms = {word.title() for word in words} | {word.upper() for word in words if len(word) > 4}
    either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{either})(?:[ -](?:{either}))*(?![^\W_])")
