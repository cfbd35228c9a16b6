"""Avro → row without making the event: what a sink does most, at a third of the price.

For ordinary events of the kinds that come with each call. Whatever is not ordinary (a value out of
range, another encoding, another kind) is left to `rows.to_row`, which refuses or converts it; the
two give the same row.
"""

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from schemas.atdp import avro
from schemas.atdp.internal import TrajectorySummary
from schemas.atdp.limits import EARLIEST, LATEST, MAX_INT64, MAX_UINT32
from schemas.atdp.types import Coordinates, Message, Reward, Step
from schemas.clock import to_us
from schemas.codec import decode_plain
from schemas.errors import PermanentError
from streams.sink.rows import (
    CONVERT,
    ROLES,
    TABLE_OF,
    Row,
    policy_versions,
    row_of_cells,
    without_none,
)

_CLASSES = frozenset({Step, Reward, TrajectorySummary})
_EARLIEST_US = to_us(EARLIEST)
_LATEST_US = to_us(LATEST)

Plain = dict[str, Any]
Take = Callable[[Plain, list[Any]], None]
"""Appends values of some columns, in their order."""


class _NotOrdinary(Exception):  # noqa: N818 - no failure: the other way takes it
    """The long way decides."""


def straight_row(value: bytes | None, at: Coordinates, recorded_at: datetime) -> Row | None:
    """The row of an event in framed Avro that was read at `at`; None where `to_row` has to say."""
    found = decode_plain(value or b"", _CLASSES)
    if found is None:
        return None
    cls, plain = found
    way = _way(cls)
    values: list[Any] = []
    try:
        for take in way.takes:
            take(plain, values)
        cells = dict(zip(way.columns, values, strict=True))
        for column, convert in way.converted:
            cells[column] = convert(cells[column])
        if cls is Step:
            cells["policy_versions"] = policy_versions(cells)
        return row_of_cells(TABLE_OF[cls], cells, at, recorded_at)
    except (_NotOrdinary, PermanentError):
        return None


@dataclass(frozen=True, slots=True)
class _Way:
    """From plain values to cells: columns, who takes their values, and what is done to some."""

    columns: tuple[str, ...]
    takes: tuple[Take, ...]
    converted: tuple[tuple[str, Callable[[Any], Any]], ...]


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its columns, how their values are taken if not as they are, and conversions."""

    name: str
    columns: tuple[str, ...]
    take: Take | None = None
    converted: tuple[tuple[str, Callable[[Any], Any]], ...] = ()


@functools.cache
def _way(cls: type) -> _Way:
    hints = typing.get_type_hints(cls)
    fields = [_field(field.name, hints[field.name]) for field in dataclasses.fields(cls)]
    return _Way(
        columns=tuple(column for field in fields for column in field.columns),
        takes=tuple(_takes(fields)),
        converted=tuple(pair for field in fields for pair in field.converted),
    )


def _takes(fields: list[_Field]) -> Iterator[Take]:
    """Values that are taken as they are, one after the other, are taken at once."""
    for is_plain, run in groupby(fields, key=lambda field: field.take is None):
        group = list(run)
        if is_plain:
            yield _take_run(tuple(field.name for field in group))
        else:
            yield from (field.take for field in group if field.take is not None)


def _take_run(names: tuple[str, ...]) -> Take:
    if len(names) == 1:  # `itemgetter` of one name gives no tuple
        return lambda plain, values: values.append(plain[names[0]])
    get = operator.itemgetter(*names)
    return lambda plain, values: values.extend(get(plain))


def _field(name: str, hint: Any) -> _Field:
    kind, _ = without_none(hint)
    if typing.get_origin(kind) is tuple:
        return _list_field(name, typing.get_args(kind)[0])
    if kind is Coordinates:
        columns = tuple(f"raw_{part}" for part in ("topic", "partition", "offset"))
        return _Field(name, columns, functools.partial(_take_coordinates, name))
    if kind == bool | float:
        return _Field(name, (name, f"{name}_type"), functools.partial(_take_signal, name))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        way = _way(kind)
        return _Field(name, way.columns, functools.partial(_descend, name, way), way.converted)
    return _Field(name, (name,), None, _looks(name, kind))


def _looks(name: str, kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Avro holds the type already; these hold what the store could not take unchanged."""
    looks: dict[Any, Callable[[Any], Any]] = {int: _integer, float: _number, datetime: _time}
    if kind in looks:
        return ((name, looks[kind]),)
    if kind in (str, bool) or issubclass(kind, StrEnum):
        return ()
    raise TypeError(f"{name}: {kind} has no straight way")


def _list_field(name: str, item: Any) -> _Field:
    if item is Message:
        return _Field(name, (name, ROLES[name]), functools.partial(_take_messages, name))
    if item is str:
        return _Field(name, (name,))
    if name in ("token_ids", "prompt_token_ids"):
        return _Field(name, (name,), None, ((name, _uint32s),))
    if item is float:
        return _Field(name, (name,), None, ((name, _numbers),))
    if not isinstance(item, type) or not dataclasses.is_dataclass(item):
        raise TypeError(f"{name}: a list of {item} has no straight way")
    convert = CONVERT[item]

    def records(values: Any) -> list[Any]:
        return [convert(name, avro.from_plain(item, value)) for value in values]

    return _Field(name, (name,), None, ((name, records),))


def _descend(name: str, way: _Way, plain: Plain, values: list[Any]) -> None:
    inner = plain[name]
    for take in way.takes:
        take(inner, values)


def _take_coordinates(name: str, plain: Plain, values: list[Any]) -> None:
    at = plain[name]
    values += (None,) * 3 if at is None else (at["topic"], at["partition"], at["offset"])


def _take_signal(name: str, plain: Plain, values: list[Any]) -> None:
    value = plain[name]
    if value is None:
        values += (None, "none")
    else:
        values += (_number(value), "boolean" if isinstance(value, bool) else "number")


def _take_messages(name: str, plain: Plain, values: list[Any]) -> None:
    messages = plain[name]
    values.append([message["body"] for message in messages])
    values.append([message["role"] for message in messages])


def _integer(value: Any) -> Any:
    if value is None or -MAX_INT64 <= value <= MAX_INT64:
        return value
    raise _NotOrdinary


def _number(value: Any) -> Any:
    if value is None:
        return None
    if math.isfinite(value):
        return float(value)
    raise _NotOrdinary


def _time(value: Any) -> Any:
    if value is None or _EARLIEST_US <= value < _LATEST_US:
        return value
    raise _NotOrdinary


def _uint32s(values: Any) -> Any:
    if not values or (min(values) >= 0 and max(values) <= MAX_UINT32):
        return values
    raise _NotOrdinary


def _numbers(values: Any) -> Any:
    if all(map(math.isfinite, values)):
        return values
    raise _NotOrdinary
