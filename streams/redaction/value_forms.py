"""Private values in all ways in which a rendered prompt may write them.

A list of customers lends thousands of values, so each place of a text is looked up, not each value
tried in turn. Pure.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

#: Values shorter than this are left to the detector: they stand in too many words.
_MIN_VALUE_LETTERS: Final = 2
#: A value with a digit or an @ of this length or more is nowhere in a clean text by chance.
_MIN_TELLING_LETTERS: Final = 6
_TELLING: Final = re.compile(r"[\d@]")
_NUM_PREFIX_LETTERS: Final = 2


class ValueForms:
    """What is looked for in one call. Original text: for looking, never for keeping."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are private values with what goes in their place."""
        self._made: dict[str, str] = {}
        for value, made in values.items():
            text = value.strip()
            if sum(letter.isalnum() for letter in text) >= _MIN_VALUE_LETTERS:
                self._made |= dict.fromkeys((text, *escaped(text)), made)
        lengths: dict[str, set[int]] = {}
        for form in self._made:
            lengths.setdefault(form[:_NUM_PREFIX_LETTERS], set()).add(len(form))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        first_letters = "".join(re.escape(letter) for letter in {form[0] for form in self._made})
        self._first = re.compile(f"[{first_letters}]" if first_letters else r"(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where the text holds one as whole words, from and to, and what goes there. In order and
        disjoint, the longest of those that begin at one place."""
        last = 0
        for match in self._first.finditer(text):
            start = match.start()
            if start < last:
                continue
            for form in self._at(text, start):
                if _is_whole(text, start, start + len(form)):
                    last = start + len(form)
                    yield start, last, self._made[form]
                    break

    def are_left_in(self, text: str) -> bool:
        """Whether the text holds one, even inside a word where that is no chance."""
        return next(self.find(text), None) is not None or any(
            _is_telling(form)
            for match in self._first.finditer(text)
            for form in self._at(text, match.start())
        )

    def _at(self, text: str, start: int) -> Iterator[str]:
        """Those that the text holds at this place, the longest first."""
        for length in self._lengths.get(text[start : start + _NUM_PREFIX_LETTERS], ()):
            form = text[start : start + length]
            if form in self._made:
                yield form


def escaped(text: str) -> Iterator[str]:
    """The text as JSON writes it, once and twice."""
    once = json.dumps(text)[1:-1]
    yield from {once, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(once)[1:-1]} - {text}


def _is_telling(form: str) -> bool:
    return len(form) >= _MIN_TELLING_LETTERS and _TELLING.search(form) is not None


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether no word goes on at either side; an escape such as `\\n` is no part of a word."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    goes_on_before = _is_word(before) and _is_word(text[start])
    if goes_on_before and not (before in "nrt" and text[start - 2 : start - 1] == "\\"):
        return False
    return not (_is_word(after) and _is_word(text[end - 1]))


def _is_word(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()
