"""Postal addresses: a house number and a street that look the part, and the lines that follow.

A number before words is common; it counts as an address only with a second sign: a word for
street ("Road", "rue", "-gatan"), a unit ("Apt. 4"), or a postal code, country or state after it.
The lines that follow belong to the address up to the last postal code, country, state or unit.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.contract import Span
from streams.redaction.detect.places import COUNTRIES, STATES
from streams.redaction.detect.words import words

KIND: Final = "STREET_ADDRESS"

_SUFFIXES: Final = words(
    """
    street st avenue ave av drive dr road rd lane ln boulevard blvd court ct place pl way highway
    hwy circle cir terrace ter parkway pkwy square sq trail crescent cres close broadway str straße
    strasse utca útja út rkp tér tere körút sokak caddesi loop union squares prairie point
    mews grove     walk parade esplanade alley row gardens heights hill quay wharf
    """
)
#: Everyday words too: they count only as the last word before a mark, a break or a number.
_WEAK_SUFFIXES: Final = words(
    "union squares prairie point loop row hill walk alley close place way court grove"
)
_AFTER_LAST: Final = ("", ",", "\n", ".", ";", "!", "?", ")", '"')
_PREFIXES: Final = words(
    """
    rue via viale piazza piazzale corso vicolo largo calle carrer avenida paseo plaza camino rua
    travessa praça estrada alameda strada boulevard avenue chemin impasse quai cours allée ul ulica
    aleja plac ulice náměstí bulevar trg λεωφόρος οδός улица ул проспект jalan jl rruga calea
    aleea
    """
)
_GLUED: Final = re.compile(
    r"[^\W\d_]{2,24}(?:straße|strasse|weg|gasse|allee|platz|damm|ufer|graben|straat|laan|plein|kade"
    r"|dijk|gracht|singel|gatan|gata|vägen|väg|stigen|vej|gade|krogen|veien|vegen|veg|gaten|gate"
    r"|vn|kuja|katu|tie|polku|rinne|stígur|gatna|götu|stræde)",
    re.IGNORECASE,
)
_LAST_WORD: Final = re.compile(r"[^\W\d_]{4,32}$")
_UNIT: Final = re.compile(
    r"(?:(?:Suite|Ste|Apartment|Apt|Unit|Room|Flat|Floor)\.? ?(?:No\.? ?|#)?"
    r"(?:\d{1,5}[A-Za-z]?|[A-Z]\d{0,4})|P\.? ?O\.? Box \d{1,6}|Box \d{1,6})\b",
    re.IGNORECASE,
)
_POSTAL: Final = re.compile(
    r"(?:\d{5}-\d{4}|\d{5,6}|\d{4}-\d{3}|\d{4} ?[A-Z]{2}|\d{4}|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}"
    r"|[A-Z]\d[A-Z] ?\d[A-Z]\d)(?![\w/-])"
)
_NUMBER: Final = re.compile(r"\d(?<![\w.,$€£¥#%:/-].)\d{0,4}(?:-\d{1,4})?[A-Za-z]?(?![\w:/%])")
_WORD: Final = re.compile(r" {1,2}(?P<word>[^\W\d_](?:[\w'’-]|\.(?=\w)){0,30}\.?)")
_HOUSE: Final = re.compile(r" (?:\d{1,5}[A-Za-z]?|\d{1,4}[/-]\d{1,4})\b\.?(?![-:/\d])")
_BREAK: Final = re.compile(r"[ \t]{0,4}(?:,|\n{1,2}|\r\n|\?{2,3})[ \t,?\n]{0,12}| {1,2}")
_TOWN: Final = re.compile(
    r"[A-Z\u00c0-\u00de\u0391-\u03a9\u2206\u0410-\u042f](?:[^\W\d_]|['’.-]){0,30}"
    r"(?: \(?[^\W\d_](?:[^\W\d_]|['’.-]){0,30}\)?){0,4}"
)
_TOWN_AND_CODE: Final = re.compile(r"[^\W\d_][\w .'’-]{1,40},? ?[A-Za-z]{2,3},? ?\d{4,6}(?![\w-])")
_POBOX: Final = re.compile(
    r"\b(?:P\.? ?O\.? Box \d{1,6}|PSC \d{3,5},? Box \d{3,5})\b(?:\s{1,3}[A-Z]{3} [A-Z]{2} \d{5})?",
    re.IGNORECASE,
)
_MILITARY: Final = re.compile(
    r"(?:\b(?:PSC|Unit|USS|USNV|USCGC|USNS|CMR) [\w ,]{2,30}\n)?\b(?:APO|FPO|DPO),? A[AEP] \d{5}",
    re.IGNORECASE,
)
_CORNER: Final = re.compile(
    r"\b(?:the )?corner of [^\n,.;!?]{3,60}? and (?:[A-Z\u00c0-\u00de][\w'’-]{1,24}(?: |\b)){1,3}"
    r"(?<! )"
)
_PREFIXED: Final = re.compile(
    r"(?<![\w.])(?:(?:[Rr]ue|Via|Viale|Piazza|Corso|Calle|Carrer|Avenida|Rua|Chemin|Strada|Trg"
    r"|Λεωφόρος|Οδός|[Uu]l\.|[Aa]l\.|C/)) "
    r"(?:[^\W\d_][\w.'’-]{0,24} ){1,4}\d{1,4}[A-Za-z]?(?![\w:/-])"
)
_PREFIX_HINTS: Final = (
    "rue ", "via ", "viale ", "piazza ", "corso ", "calle ", "carrer ", "avenida ", "rua ",
    "chemin ", "strada ", "trg ", "λεωφόρος ", "οδός ", "ul. ", "al. ", "c/ ",
)  # fmt: skip
#: What is said before an address whose street has no word for street in it.
_WHERE: Final = re.compile(
    r"(?i)(?:\b(?:at|address(?: is)?|located (?:at|in|on)|moved to|off at|lives? (?:in|on)|enter on"
    r"|deliver(?:ed)? to|send (?:it|this) to)[:=]?\s{1,4})$"
)
_SECOND: Final = re.compile(r" {1,2}\d{1,5}(?= )")
_CODE: Final = re.compile(r"(?:[A-Z]{2,3}|nan)(?![\w/-])")
_LINE: Final = re.compile(
    r"[^\W\d_][^\W\d_]{0,30}(?:[ '’.-][^\W\d_]{1,30}){0,3}(?=[ \t]*(?:\n|,|$))"
)
_IN_PARENTHESES: Final = re.compile(r" \([^\W\d_]{2,20}\)")
_BOX: Final = re.compile(r" P\.? ?O\.? Box \d{1,6}\b", re.IGNORECASE)
_MAX_WORDS: Final = 6
_MAX_PARTS: Final = 7
_PARTICLES: Final = words(
    "de la le les du des der den dem van von do da dos das del della di of the nad el al y i"
)
#: Words after a number that say what is counted: no street begins with them.
_COUNTED: Final = words(
    """
    year years month months week weeks day days hour hours minute minutes min second seconds
    times percent items item points of in at on and or to for from with is are was were the a an
    people passengers tests passed failed errors warnings files lines bytes kb mb gb ms am pm out
    per more less other free bags bag seats seat adults adult dollars usd euros
    """
)


def find(text: str) -> Iterator[Span]:
    """Postal addresses in `text`, which has at least one digit."""
    end = 0
    for match in _NUMBER.finditer(text):
        if match.start() >= end and (stop := _address_end(text, match.start(), match.end())):
            end = stop
            yield Span(match.start(), end, KIND, 0.8)
    for house in _HOUSE.finditer(text):
        word = _LAST_WORD.search(text, max(0, house.start() - 32), house.start())
        if word is not None and _GLUED.fullmatch(word.group()):
            stop = _tail(text, house.end())[0]
            yield Span(_with_first_words(text, word.start()), stop, KIND, 0.8)
    for pattern in _patterns(text):
        for match in pattern.finditer(text):
            yield Span(match.start(), _tail(text, match.end())[0], KIND, 0.8)


def _patterns(text: str) -> Iterator[re.Pattern[str]]:
    lower = text.lower()
    if any(prefix in lower for prefix in _PREFIX_HINTS):
        yield _PREFIXED
    if "ox " in lower:
        yield _POBOX
    if "po a" in lower:
        yield _MILITARY
    if "corner of" in lower:
        yield _CORNER


def _with_first_words(text: str, start: int) -> int:
    """Capitalised words right before a street belong to it: "Korte Noordsstraat"."""
    match = re.search(
        r"(?:\b\d{1,5} )?(?:[A-Z\u00c0-\u00de][\w.'-]{1,20} ){1,2}$", text[:start][-50:]
    )
    return start - len(match.group()) if match and match.start() > 0 else start


def _address_end(text: str, start: int, position: int) -> int:
    """Where the address whose first number is text[start:position] ends; 0 if it is none."""
    if box := _BOX.match(text, position):
        return _tail(text, box.end())[0]
    second = _SECOND.match(text, position)
    street = _Street(text, second.end() if second else position)
    street.read()
    if not street.words:
        return 0
    end, anchors = _tail(text, street.end)
    if street.is_street:
        return end
    is_name = street.words[0][:1].isupper()
    if street.has_house and is_name and (second or _WHERE.search(text[:start][-30:])):
        return end
    enough = anchors >= 1 and (street.has_house or anchors >= 2 or second is not None)
    return end if enough and (is_name or street.has_house) else 0


class _Street:
    """The words after a house number, read up to what ends a street."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self.end = position
        self.words: list[str] = []
        self.has_house = False
        self.is_street = False

    def read(self) -> None:
        """Read the words. Afterwards `is_street` says whether one of them means a street."""
        while len(self.words) < _MAX_WORDS and not self.is_street:
            if self._unit():
                return
            match = _WORD.match(self._text, self.end)
            if match is None or not self._takes(match["word"]):
                return
            self.words.append(match["word"])
            self.end = match.end() - (1 if match["word"].endswith(".") else 0)
            self._look_at(match["word"].rstrip(".").lower(), match.end())
            if house := _HOUSE.match(self._text, match.end()):
                self.has_house, self.end = True, house.end()
                self._unit()
                return

    def _takes(self, word: str) -> bool:
        lower = word.rstrip(".").lower()
        if not self.words:
            return lower not in _COUNTED
        if lower in _PARTICLES:
            return True
        if self.words[0].rstrip(".").lower() in _PREFIXES:
            return word[0].isupper() or len(self.words) == 1
        return lower not in _COUNTED

    def _look_at(self, lower: str, end: int) -> None:
        first = self.words[0].rstrip(".").lower()
        if first in _PREFIXES and len(self.words) > 1:
            follows = _WORD.match(self._text, end)
            self.is_street = follows is None or not self._takes(follows["word"])
        elif lower in _SUFFIXES and len(self.words) > 1:
            named = self.words[-2][:1].isupper() or lower not in _WEAK_SUFFIXES
            self.is_street = named and (lower not in _WEAK_SUFFIXES or self._is_last(end))
        elif lower == "broadway":
            self.is_street = True
        elif _GLUED.fullmatch(lower) is not None:
            self.is_street = self.words[-1][:1].isupper()
        if self.is_street and self._text[end - 1] == ".":
            self.end = end

    def _is_last(self, end: int) -> bool:
        # None of the everyday words is an abbreviation, so a full stop behind one ends a sentence.
        if self._text[end - 1] == "." or self._text[end : end + 1] in _AFTER_LAST:
            return True
        return bool(_HOUSE.match(self._text, end) or _UNIT.match(self._text, end + 1))

    def _unit(self) -> bool:
        match = re.compile(r"[ ,\n]{1,4}").match(self._text, self.end)
        unit = _UNIT.match(self._text, match.end()) if match and self.words else None
        if unit is None:
            return False
        self.is_street, self.end = True, unit.end()
        return True


def _tail(text: str, position: int) -> tuple[int, int]:
    """Where the lines after a street end, and how many of their parts are beyond doubt."""
    end, anchors, follows_town = position, 0, False
    for _ in range(_MAX_PARTS):
        gap = _BREAK.match(text, position)
        if gap is None:
            break
        part = _part(text, gap.end(), follows_town=follows_town, is_line="\n" in gap.group())
        if part is None:
            break
        position, is_anchor = part
        follows_town = not is_anchor
        if is_anchor:
            end, anchors = position, anchors + 1
    return end, anchors


def _part(text: str, start: int, *, follows_town: bool, is_line: bool) -> tuple[int, bool] | None:
    """The end of one part of the lines after a street, and whether only an address has such."""
    for pattern in (_UNIT, _POSTAL, _TOWN_AND_CODE):
        if match := pattern.match(text, start):
            return match.end(), True
    if match := _CODE.match(text, start):
        return match.end(), follows_town or match.group() in STATES
    town = _TOWN.match(text, start)
    if town is not None:
        return _town(text, start, town.group())
    line = _LINE.match(text, start) if is_line else None
    return None if line is None else (line.end(), line.group().lower() in COUNTRIES)


def _town(text: str, start: int, written: str) -> tuple[int, bool]:
    """Capitalised words after a street: a country if they begin or end with one, else a town."""
    words_of = written.split(" ")
    for count in range(len(words_of), 0, -1):
        name = " ".join(words_of[:count]).rstrip(".")
        if name.lower() in COUNTRIES:
            end = start + len(name)
            aside = _IN_PARENTHESES.match(text, end)
            return aside.end() if aside else end, True
    kept = words_of[:1]
    for word in words_of[1:]:
        if not (word.lstrip("(")[:1].isupper() or word in _PARTICLES) or _CODE.fullmatch(word):
            break
        kept.append(word)
        if word.rstrip(".").lower() in COUNTRIES:
            return start + len(" ".join(kept).rstrip(".")), True
    return start + len(" ".join(kept)), False
