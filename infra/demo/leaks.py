"""Whether planted private values are found in a text, by word boundary.

A text is looked at as it stands and once more with its JSON escapes undone, however deep, since
`\\u0061lice@…` inside a string inside a string is still the address.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from infra.demo.private_data import MONTHS, Planted

# Chinese and Japanese write no spaces: there every character counts as a word of its own.
_CJK = "\u2e80-\ud7ff\uf900-\ufeff"
_WORD = re.compile(rf"[^\W{_CJK}]+|[{_CJK}]")
_ESCAPE = re.compile(r'\\+(?:u([0-9a-fA-F]{4})|(["/bfnrt]))')
_CASE_MATTERS = ("PERSON", "LOCATION")
# Binary records put one or two length bytes before a text, and those may look like letters.
_MAX_GLUED_BYTES = 2


def unescaped(text: str) -> str:
    """`text` with JSON escapes of any depth replaced by what they stand for."""

    def replaced(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else (match[2] if match[2] in '"/' else " ")

    return _ESCAPE.sub(replaced, text)


def forms_of(planted: Planted) -> list[str]:
    """The ways in which a planted value may be written: a date in several, all else in one."""
    if planted.kind != "DATE_OF_BIRTH":
        return [planted.value]
    try:
        day = datetime.date.fromisoformat(planted.value)
    except ValueError:
        return [planted.value]
    month = MONTHS[day.month - 1]
    return [
        planted.value,
        f"{month} {day.day}, {day.year}",
        f"{month} {day.day:02d}, {day.year}",
        f"{day.day} {month} {day.year}",
        f"{day.month:02d}/{day.day:02d}/{day.year}",
        f"{day.month}/{day.day}/{day.year}",
        f"{month[:3]} {day.day}, {day.year}",
    ]


class LeakScanner:
    """Finds planted values. Time is linear in the text, however many values there are."""

    def __init__(self, planted: Iterable[Planted]) -> None:
        self._by_first_word: defaultdict[str, list[tuple[str, Planted]]] = defaultdict(list)
        for item in planted:
            for form in forms_of(item):
                first = _WORD.search(form)
                if first is not None:
                    entry = (form[first.start() :], item)
                    self._by_first_word[first.group().lower()].append(entry)

    def scan(self, text: str, *, binary: bool = False) -> set[Planted]:
        """The planted values in `text`; `binary` allows a length byte glued to their front."""
        found = set(self._found(text, binary=binary))
        if "\\" in text:
            found.update(self._found(unescaped(text), binary=binary))
        return found

    def _found(self, text: str, *, binary: bool) -> Iterator[Planted]:
        for match in _WORD.finditer(text):
            for skipped in range(_MAX_GLUED_BYTES + 1 if binary else 1):
                word = match.group()[skipped:].lower()
                for form, item in self._by_first_word.get(word, ()):
                    if _stands_at(text, match.start() + skipped, form, item.kind):
                        yield item


def _stands_at(text: str, start: int, form: str, kind: str) -> bool:
    end = start + len(form)
    there = text[start:end]
    same = there == form if kind in _CASE_MATTERS else there.lower() == form.lower()
    if not same:
        return False
    after = _WORD.match(text, end)
    ends_inside_a_word = after is not None and re.match(rf"[^\W{_CJK}]", form[-1]) is not None
    return not (ends_inside_a_word and re.match(rf"[^\W{_CJK}]", text[end]) is not None)
