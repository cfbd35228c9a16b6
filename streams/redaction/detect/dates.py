"""Dates of birth.

A date is one of a birth if its label or JSON key says so, or if its year is one in which people
who talk to agents were born. Dates of flights, orders and logs are later and stay.
"""

import re
from collections.abc import Iterator
from typing import Final

from streams.redaction.detect.checks import is_calendar_date
from streams.redaction.detect.contract import Span
from streams.redaction.detect.labels import label_ends

KIND: Final = "DATE_OF_BIRTH"
#: Calendar dates in these years are taken for dates of birth wherever they stand.
BIRTH_YEARS: Final = range(1900, 2013)

_MONTH_NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_YEAR: Final = r"(?:19|20)\d\d"
_ANY_YEAR: Final = re.compile(_YEAR)
#: A clock time after the date makes it a time stamp; midnight is how databases write a day.
_NO_CLOCK: Final = r"(?![ T](?!00:00)\d\d:\d\d)(?!\d)"
_DATE: Final = re.compile(
    rf"(?<![\dA-Za-z])(?<!\d[-/.])(?:"
    rf"(?P<iso>{_YEAR}[-/._]\d{{1,2}}[-/._]\d{{1,2}})"
    rf"|(?P<numeric>\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR})"
    rf"|(?P<month_first>{_MONTH}[ -]?\d{{1,2}}(?:st|nd|rd|th)?,?[ -]{{0,2}}{_YEAR})"
    rf"|(?P<day_first>\d{{1,2}}(?:st|nd|rd|th)?(?: of)?[ -]?{_MONTH},?[ -]?{_YEAR})"
    rf"|(?P<cjk>{_YEAR}\s?年\s?\d{{1,2}}\s?月\s?\d{{1,2}}\s?[日号])"
    rf"){_NO_CLOCK}",
    re.IGNORECASE,
)
_LABELLED_SHORT: Final = re.compile(
    r"(?<![\dA-Za-z])(?:(?P<compact>(?:19|20)\d{6})|(?P<short>\d{1,2}[-/.]\d{1,2}[-/.]\d\d)"
    rf"|(?P<no_year>{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?))(?!\d)(?![-/.]\d)",
    re.IGNORECASE,
)
_LABELS: Final = (
    "dob", "d.o.b", "birth", "date of birth", "birthday", "born", "geboren", "geb.", "geburts",
    "生年月日", "出生", "生日", "nacimiento", "naissance",
)  # fmt: skip
_KEY: Final = re.compile(r"(?i)(?:^|[._])(?:dob|bday|born)(?:$|[._])|birth|geburts")
#: A label speaks for the date that follows it within this many characters.
LABEL_REACH: Final = 40


def has_birth_key(context: str | None) -> bool:
    """Whether the JSON keys above a text say that it is a date of birth."""
    return context is not None and _KEY.search(context) is not None


def find(text: str, context: str | None) -> Iterator[Span]:
    """Dates of birth in `text`."""
    by_key = has_birth_key(context)
    if by_key and len(text) <= LABEL_REACH and re.search(r"\d", text):
        yield Span(0, len(text), KIND)
        return
    ends = list(label_ends(text.lower(), _LABELS))
    for match in _DATE.finditer(text) if _ANY_YEAR.search(text) else ():
        parts = calendar_parts(match.group())
        if parts is None:
            continue
        if parts[0] in BIRTH_YEARS or by_key or _follows(match.start(), ends):
            yield Span(match.start(), match.end(), KIND)
    for end in ends:
        for match in _LABELLED_SHORT.finditer(text, end, end + LABEL_REACH):
            yield Span(match.start(), match.end(), KIND, 0.8)


def _follows(start: int, ends: list[int]) -> bool:
    return any(0 <= start - end <= LABEL_REACH for end in ends)


def calendar_parts(written: str) -> tuple[int, int, int] | None:
    """Year, month and day of a written date with a four-digit year; None if there is no such day.

    `3/4/1990` is read month first, as in the United States, unless only day first is a day.
    """
    numbers = [int(number) for number in re.findall(r"\d+", written)]
    name = re.search(r"[A-Za-z]{3,}", re.sub(r"(?i)\d(?:st|nd|rd|th)\b|\bof\b", "", written))
    if name is not None and len(numbers) == 2:
        candidates = [(numbers[1], _MONTH_NUMBERS.get(name.group()[:3].lower(), 0), numbers[0])]
    elif len(numbers) != 3:
        return None
    elif numbers[0] > 31:
        candidates = [(numbers[0], numbers[1], numbers[2]), (numbers[0], numbers[2], numbers[1])]
    else:
        candidates = [(numbers[2], numbers[0], numbers[1]), (numbers[2], numbers[1], numbers[0])]
    return next((parts for parts in candidates if is_calendar_date(*parts)), None)
