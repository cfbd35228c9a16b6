"""Finding the names of one document again in its other texts.

A profile says `"first_name": "Mia"`, a handle says `mia_li_3668`; the reply that begins with
"Thank you, Mia" is private for the same reason.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.names import KIND
from streams.redaction.detect.words import AMBIGUOUS_NAMES, NOT_NAMES

#: Surer than this, a finding lends its words to other texts.
MIN_SCORE: Final = 0.7
#: A letter of a script with blanks between words: Chinese touches the names in it.
_LETTER: Final = r"[^\W\d_\u2e80-\ud7ff\uf900-\ufaff]"
#: Letters that no letter or digit stands before.
_RUN: Final = re.compile(rf"(?<!{_LETTER})(?<!\d){_LETTER}+")
_EASTERN: Final = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff]{2,12}")
_EASTERN_RUN: Final = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff]+")
_GOES_ON: Final = re.compile(rf"{_LETTER}|\d")
_PART: Final = re.compile(r"[^\W\d_]{2,24}(?:['’-][^\W\d_]{1,24})*")


class KnownNames:
    """Words seen as names in one document. Built anew for each: nothing is remembered."""

    def __init__(self) -> None:
        self._words: set[str] = set()
        self._forms: dict[str, _Forms] | None = None
        self._eastern: dict[str, list[str]] = {}
        self._canonical: bytes | None = None

    def learn(self, text: str, spans: Iterable[Span]) -> None:
        """Take the words of the names and handles among the findings in `text`."""
        for span in spans:
            if span.score >= MIN_SCORE and span.kind in (KIND, "USER_HANDLE"):
                self.add(_name_words(text[span.start : span.end]))

    @property
    def words(self) -> frozenset[str]:
        """The words learnt so far."""
        return frozenset(self._words)

    @property
    def canonical(self) -> bytes:
        """The same 32 bytes for the same words, to be digested; only for use in this process."""
        if self._canonical is None:
            text = "\n".join(sorted(self._words)).encode("utf-8", "surrogatepass")
            self._canonical = hashlib.sha256(text).digest()
        return self._canonical

    def add(self, words: Iterable[str]) -> None:
        """Take words that were learnt elsewhere."""
        self._words.update(words)
        self._forms = self._canonical = None

    def find(self, text: str) -> Iterator[Span]:
        """Where `text` holds learnt words written as names are: capitalised or in capitals.

        A list of customers lends thousands of words, so each is looked up, not tried in turn.
        """
        if not self._words:
            return
        if self._forms is None:
            self._forms = _by_first_run(self._words)
            self._eastern = _by_first_letter(self._words)
        if self._eastern and not text.isascii():
            yield from self._without_blanks(text)
        end = 0
        for run in _RUN.finditer(text):
            if run.start() < end:
                continue
            found = self._end_of_name(text, run)
            if found is not None:
                end = found
                yield Span(run.start(), end, KIND, 0.6)

    def _without_blanks(self, text: str) -> Iterator[Span]:
        """Names in scripts that write no blanks: wherever their letters stand."""
        for run in _EASTERN_RUN.finditer(text):
            position = run.start()
            while position < run.end():
                names = self._eastern.get(text[position], ())
                name = next((n for n in names if text.startswith(n, position)), None)
                if name is not None:
                    yield Span(position, position + len(name), KIND, 0.6)
                position += len(name) if name else 1

    def _end_of_name(self, text: str, run: re.Match[str]) -> int | None:
        """Where the words that begin at `run` end, joined by single spaces or hyphens."""
        end = self._end_of_word(text, run)
        following: int | None = end
        while following is not None:
            end, following = following, None
            if text[end : end + 1] in (" ", "-") and (after := _RUN.match(text, end + 1)):
                following = self._end_of_word(text, after)
        return end

    def _end_of_word(self, text: str, run: re.Match[str]) -> int | None:
        assert self._forms is not None
        forms = self._forms.get(run.group())
        if forms is None:
            return None
        start = run.start()
        for length in forms.lengths:
            end = start + length
            is_whole = end <= len(text) and _GOES_ON.match(text, end) is None
            if is_whole and text[start:end] in forms.words:
                return end
        return None


@dataclass(slots=True)
class _Forms:
    """Words that begin with the same run of letters; their lengths, the longest first."""

    words: set[str] = field(default_factory=set)
    lengths: list[int] = field(default_factory=list)


def _name_words(name: str) -> Iterator[str]:
    for match in _PART.finditer(name.replace("_", " ")):
        word = match.group().casefold()
        if word not in NOT_NAMES and word not in AMBIGUOUS_NAMES:
            yield word


def _by_first_letter(words: set[str]) -> dict[str, list[str]]:
    """The names in scripts without blanks, the longest first."""
    found: dict[str, list[str]] = {}
    for word in sorted(words, key=len, reverse=True):
        if _EASTERN.fullmatch(word):
            found.setdefault(word[0], []).append(word)
    return found


def _by_first_run(words: set[str]) -> dict[str, _Forms]:
    # Three capitals are an airport more often than a shouted name.
    written = {word.title() for word in words} | {word.upper() for word in words if len(word) > 4}
    found: dict[str, _Forms] = {}
    for word in written:
        run = _RUN.match(word)
        if run is not None:
            found.setdefault(run.group(), _Forms()).words.add(word)
    for forms in found.values():
        forms.lengths = sorted({len(word) for word in forms.words}, reverse=True)
    return found
