"""A file as a row of JSON entries: an array, one value a line, or one single value."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_SAMPLE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One JSON value and where it stands, such as `line 3` or `element 3`."""

    where: str
    value: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something in the file cannot be published. Never quotes the file's text."""

    where: str
    field: str | None
    text: str

    def __str__(self) -> str:
        field = f", field {self.field}" if self.field else ""
        return f"{self.where}{field}: {self.text}"


def read_entries(path: Path) -> Iterator[Entry | Problem]:
    """The entries of a file. Lines are read one by one; an array is read whole."""
    with path.open("rb") as file:
        start = file.read(_SAMPLE_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and _is_json(start.split(b"\n", 1)[0]):
        return _lines(path)
    whole = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        value = orjson.loads(whole)
    except orjson.JSONDecodeError as error:
        return _lines(path) if _first_line_is_json(whole) else iter((_broken("The file", error),))
    return _elements(value)


def is_message(value: Any) -> bool:
    """True for an object that says who speaks."""
    return isinstance(value, dict) and "role" in value and "messages" not in value


def _elements(value: Any) -> Iterator[Entry | Problem]:
    if isinstance(value, list) and value and not is_message(value[0]):
        return (Entry(f"element {number}", item) for number, item in enumerate(value, 1))
    return iter((Entry("element 1", value),))


def _lines(path: Path) -> Iterator[Entry | Problem]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if text:
                yield _line(number, text)


def _line(number: int, line: bytes) -> Entry | Problem:
    try:
        return Entry(f"line {number}", orjson.loads(line))
    except orjson.JSONDecodeError as error:
        return _broken(f"line {number}", error)


def _broken(where: str, error: orjson.JSONDecodeError) -> Problem:
    place = f"line {error.lineno}, " if where == "The file" else ""
    return Problem(
        where,
        None,
        f"not valid JSON at {place}column {error.colno}. NaN, Infinity and unpaired surrogates "
        "are not JSON either. Correct it, or skip it with --keep-going.",
    )


def _first_line_is_json(whole: bytes) -> bool:
    lines = [line for line in whole.splitlines() if line.strip()]
    return len(lines) > 1 and any(_is_json(line) for line in lines[:2])


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
