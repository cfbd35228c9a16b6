"""The fast tier: the regex tier, and names by lists and by their place in the sentence. No model.

A word that is in a name list and is no everyday word is a name by itself; every other capitalised
word needs a neighbour that is one, an ending that only names have, or a word that people do.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from streams.redaction.detect import eastern_names, encoded
from streams.redaction.detect.contract import Span
from streams.redaction.detect.everyday import EVERYDAY
from streams.redaction.detect.name_lists import NameLists, name_lists
from streams.redaction.detect.opaque import blank_opaque
from streams.redaction.detect.person_cues import is_spoken_of, named_beside
from streams.redaction.detect.places import COUNTRIES
from streams.redaction.detect.regex import REGEX_VERSION, RegexDetector
from streams.redaction.detect.words import (
    AMBIGUOUS_NAMES,
    NOT_NAMES,
    NOT_PEOPLE,
    ORGANISATIONS,
    THINGS,
    TOWNS,
)

#: Spans become part of stored data: raise this with every change of what this tier keeps.
FAST_VERSION: Final = "fast-2"

_FULL_NAME_SCORE: Final = 0.85
_WORD_SCORE: Final = 0.6
#: A letter of a script with blanks between words: Chinese touches the names in it.
_LETTER: Final = r"[^\W\d_\u2e80-\ud7ff\uf900-\ufaff]"
_TOKEN: Final = re.compile(rf"{_LETTER}+(?:['’-]{_LETTER}+)*")
_POSSESSIVE: Final = re.compile(r"['’]s?$")
#: The same without words that begin with a small Latin letter: most words of most lines.
_CAPITAL: Final = re.compile(
    rf"(?<!{_LETTER})(?<!\d)(?<![^\W_]['’-])(?![a-z]){_LETTER}+(?:['’-]{_LETTER}+)*"
)
#: Between two words of one name.
_GAP: Final = re.compile(
    r"(?:\.? {1,2}|-)(?:(?:van|von|de|der|den|del|della|di|da|dos|la|le|bin|ibn|al|el|ten|ter|af|zu"
    r"|y) ){0,2}"
)
#: Endings that family names have and other words do not.
_ENDING: Final = re.compile(
    r"[^\W\d_]{2,}(?:ová|sson|ssen|dóttir|ović|ović|evič|ovič|evich|ovich|ovna|evna|ishvili|adze|yan"
    r"|oğlu|escu|opoulos|opoulou|enko|czyk|owski|ewski|owska|ewska|inski|inska|ński|ńska|quist"
    r"|kvist"
    r"|gård|berg|strøm|ström|nen|ić|ğlu|eva|ova|ev|ov|sen|mann|stein|sky|ski|sdottir)"
)
_CONTRACTION: Final = re.compile(r"['’](?:m|d|ll|ve|re|t)$")
#: Letters that English words do not have.
_ACCENTED: Final = re.compile(r"[à-öø-ÿā-ž]")
#: Those that stand alone.
_PATRONYMIC: Final = re.compile(r"[^\W\d_]{3}(?:ová|sson|dóttir|sdottir|ović|ovich|evich|ishvili)$")
#: Where a line looks like a program, one capitalised word is a type or the start of a comment.
CODE: Final = re.compile(
    r"^\s*(?:#|//|/?\*|--|\"\"\"|@|def |class |import |from |raise |except |return |async |if )"
    r"|[({\[]\)|\w\(|->|=>|::|[=!<>]=|\w=|\s=\s|`|[{};]\s*$|\"\"\"|#:|\w\.\w+\("
)
_ABOVE_ADDRESS: Final = re.compile(
    r"^[ ?>*-]{0,6}(?P<value>[A-Z\u00c0-\u00de][^\W\d_]+(?: [A-Z]\.?)?"
    r"(?: [A-Z\u00c0-\u00de][\w'’-]+){1,2})"
    r"[ ,]{0,4}\n{1,3}(?:[^\n\d][^\n]{0,40}\n{1,3})?[ ?]{0,6}\d{1,5}[ -][^\W\d_\d]",
    re.MULTILINE,
)
_LINE: Final = re.compile(r"[^\n]{1,2000}(?!\S)|\S[^\n]{0,2000}")

_NAME, _EVERYDAY_NAME, _ENDED, _UNKNOWN, _INITIAL, _OTHER = "GASUI-"


class FastDetector:
    """The regex tier plus names by list. Every language; time linear in the text."""

    def __init__(self) -> None:
        """Loads the name lists. ConfigError where they are not installed."""
        self._regex = RegexDetector()
        self._lists = name_lists()
        self.version = f"{FAST_VERSION}+{self._lists.version}+{REGEX_VERSION}"

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Never raises."""
        found = self._plain(text, context)
        found.extend(encoded.find(text, self._plain))
        return found

    def _plain(self, text: str, context: str | None = None) -> list[Span]:
        found = self._regex.plain(text, context)
        if len(text) > 1:
            found.extend(self._people(text))
        return found

    def _people(self, text: str) -> Iterator[Span]:
        visible = blank_opaque(text)
        for line in _LINE.finditer(visible):
            yield from _Line(line.group(), line.start(), self._lists).people()
        if "\n" in text:
            yield from _above_addresses(visible)
        if not text.isascii():
            yield from eastern_names.find(visible, self._lists)


def _above_addresses(text: str) -> Iterator[Span]:
    """Names in a line of their own, one or two above a line that begins with a house number."""
    for match in _ABOVE_ADDRESS.finditer(text):
        words_of = {word.lower() for word in match["value"].split()}
        if not words_of & (ORGANISATIONS | NOT_NAMES | NOT_PEOPLE | THINGS):
            yield Span(*match.span("value"), "PERSON", _WORD_SCORE)


class _Line:
    """One line of a text on its way to the names in it."""

    def __init__(self, line: str, offset: int, lists: NameLists) -> None:
        self._line = line
        self._offset = offset
        self._lists = lists
        self._is_code = CODE.search(line) is not None
        self._is_lower = line.islower()

    def people(self) -> Iterator[Span]:
        """The names in the line."""
        for run in self._runs():
            for first, last in self._names(run):
                start, end = run[first][0], run[last][1]
                if title := _TITLE_AFTER.match(self._line, end):
                    end = title.end()
                if _is_whole(self._line, start, end):
                    score = _FULL_NAME_SCORE if last > first else _WORD_SCORE
                    yield Span(self._offset + start, self._offset + end, "PERSON", score)

    def _runs(self) -> Iterator[list[tuple[int, int, str]]]:
        """Words with only blanks between them, each with its class."""
        run: list[tuple[int, int, str]] = []
        for match in (_TOKEN if self._is_lower else _CAPITAL).finditer(self._line):
            word = _POSSESSIVE.sub("", match.group())
            start = match.start()
            each = _OTHER if self._follows_town_word(start) else self._class(word)
            if run and (each == _OTHER or not self._joins(run[-1], start)):
                yield run
                run = []
            if each != _OTHER:
                run.append((start, start + len(word), each))
                if len(word) < len(match.group()):
                    yield run
                    run = []
        if run:
            yield run

    def _follows_town_word(self, start: int) -> bool:
        """`San Diego` and `Fort Wayne` are no people."""
        return _TOWN_WORD.search(self._line[max(0, start - 7) : start]) is not None

    def _joins(self, before: tuple[int, int, str], start: int) -> bool:
        """Whether the word at `start` may go on with the name that `before` is a word of."""
        gap = _GAP.fullmatch(self._line, before[1], start)
        return gap is not None and (gap.group()[0] != "." or before[2] == _INITIAL)

    def _class(self, word: str) -> str:
        lower = word.casefold()
        if _CONTRACTION.search(lower):
            return _OTHER
        if len(word) == 1:
            return _INITIAL if word.isupper() else _OTHER
        if word[0].islower():
            return self._class_in_lower_case(lower) if self._is_lower and len(word) > 2 else _OTHER
        if word.isupper():
            return _NAME if len(word) > 3 and self._is_name(lower) else _OTHER
        if not word[1:].islower() and not _MIXED.fullmatch(word):
            return _OTHER
        return self._class_of_title_case(lower)

    def _class_in_lower_case(self, lower: str) -> str:
        if self._is_name(lower):
            return _NAME
        ended = _ACCENTED.search(lower) or (len(lower) > 5 and _ENDING.fullmatch(lower))
        return _ENDED if ended else _OTHER

    def _class_of_title_case(self, lower: str) -> str:
        if lower in NOT_NAMES or lower in THINGS:
            return _OTHER
        if self._is_name(lower):
            return _NAME
        if self._is_listed(lower):
            return _EVERYDAY_NAME
        if lower in NOT_PEOPLE or lower in ORGANISATIONS or lower in COUNTRIES or lower in TOWNS:
            return _OTHER
        return _ENDED if _ENDING.fullmatch(lower) or _ACCENTED.search(lower) else _UNKNOWN

    def _is_listed(self, lower: str) -> bool:
        parts = lower.split("-")
        return self._lists.holds(lower) or (len(parts) > 1 and all(map(self._lists.holds, parts)))

    def _is_name(self, lower: str) -> bool:
        return (
            self._is_listed(lower)
            and lower not in EVERYDAY
            and lower not in AMBIGUOUS_NAMES
            and lower not in NOT_PEOPLE
            and lower not in ORGANISATIONS
            and lower not in COUNTRIES
            and lower not in TOWNS
            and lower not in NOT_NAMES
        )

    def _names(self, run: list[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
        """First and last word of each name in a run."""
        classes = "".join(each for _, _, each in run)
        for match in _SHAPES.finditer(classes):
            first, last = match.start(), match.end() - 1
            start, end = run[first][0], run[last][1]
            written = self._line[start:end]
            if written.islower() or written.isupper():
                several = last > first or is_spoken_of(self._line, start, end)
                holds = several and _NAME in match.group()
            else:
                holds = self._holds(match.group(), start, end)
            if holds:
                yield first, last

    def _holds(self, shape: str, start: int, end: int) -> bool:
        """Whether words of this shape are a name where they stand."""
        num_words = sum(each != _INITIAL for each in shape)
        after = _ORGANISATION.match(self._line, end)
        if after is not None and after["word"].lower() in ORGANISATIONS:
            return False
        if _NAME in shape:
            return num_words > 1 or not self._is_code
        if self._is_code:
            return False
        written = {word.lower() for word in self._line[start:end].split()}
        twice = shape.count(_EVERYDAY_NAME) > 1 and not written & ORGANISATIONS
        if num_words > 1 and (_ENDED in shape or twice):
            return True
        if "I" in shape and _EVERYDAY_NAME in shape and num_words > 1:
            return True
        if shape == _ENDED and _PATRONYMIC.search(self._line, start, end):
            return True
        if is_spoken_of(self._line, start, end):
            return True
        beside = named_beside(self._line, start, end)
        return bool(beside) and all(map(self._is_name, beside))


_TITLE_AFTER: Final = re.compile(r",? (?:Jr|Sr|MD|PhD|Esq|II|III|IV)\b\.?")
_TOWN_WORD: Final = re.compile(r"\b(?:San|Los|Las|Santa|New|Fort|Port|Mount|Cape|Saint) $")
_ORGANISATION: Final = re.compile(r" (?P<word>[A-Z][a-z]+)\b")
_MIXED: Final = re.compile(
    r"(?:Mc|Mac|De|La|Le|Du|Van|Fitz|O['’]|D['’])[A-Z][^\W\d_]+"
    r"|[A-Z\u00c0-\u00de][^\W\d_]+(?:['’-][A-Z\u00c0-\u00de]?[^\W\d_]+)+"
)
#: Words of one name: known ones first, whatever may stand beside them, and initials.
_SHAPES: Final = re.compile(r"I?[GASU](?:I{0,2}[GASU]){0,3}")


def _is_whole(line: str, start: int, end: int) -> bool:
    """Not a part of an identifier, a path or a call: `Path(`, `user.Name`, `A_Name`."""
    before, after = line[start - 1 : start] if start else "", line[end : end + 1]
    return before not in {"_", ".", "/", "\\", "-", "`", "$", "@", "#"} and after not in {
        "_", "(", "/", "\\", "`", "=", "[", "@",
    }  # fmt: skip
