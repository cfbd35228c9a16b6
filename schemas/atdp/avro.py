"""Avro schemas derived from the record types, and conversion between the two.

`python -m schemas.atdp.avro` writes the schema of every type that has no released version yet
and refuses to change a released one: a changed type needs a new version in `RELEASES`.
"""

import dataclasses
import functools
import json
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from schemas.atdp import internal, training, weights
from schemas.atdp import types as protocol

RELEASED = Path(__file__).parent / "released"
NAMESPACE = "headrace.atdp"
JsonValue = Any

#: schema id → (type, version). Ids are never reused; the file is released/<Type>.<version>.avsc.
RELEASES: dict[int, tuple[type, int]] = {
    1: (protocol.Step, 1),
    2: (protocol.Reward, 1),
    3: (protocol.TrajectoryEnd, 1),
    4: (protocol.Exchange, 1),
    5: (protocol.Feedback, 1),
    6: (internal.Alias, 1),
    7: (internal.UnresolvedFeedback, 1),
    8: (internal.TrajectorySummary, 1),
    9: (internal.Sample, 1),
    10: (internal.Tick, 1),
    11: (internal.DeadLetter, 1),
    12: (internal.Quarantined, 1),
    13: (internal.KeyRecord, 1),
    14: (internal.Replay, 1),
    15: (internal.AuditEvent, 1),
    16: (weights.WeightsManifest, 1),
    17: (weights.Proposal, 1),
    18: (weights.RingAssignment, 1),
    19: (weights.WeightsAck, 1),
    20: (weights.WorkerHeartbeat, 1),
    21: (weights.ProposalAnswer, 1),
    22: (protocol.Exchange, 2),
    23: (internal.Sample, 2),
    24: (training.MicroBatch, 1),
    25: (training.SampleDecision, 1),
    26: (protocol.Step, 2),
    27: (protocol.Exchange, 3),
    28: (protocol.Step, 3),
    29: (internal.Sample, 3),
    30: (training.MicroBatch, 2),
}

_PRIMITIVES: dict[Any, JsonValue] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
    type(None): "null",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
}


def released_file(schema_id: int) -> Path:
    """The file that holds the released schema with that id."""
    cls, version = RELEASES[schema_id]
    return RELEASED / f"{cls.__name__}.{version}.avsc"


def schema_of(cls: type) -> JsonValue:
    """The Avro schema of a record type, named types defined at their first use."""
    return _record_schema(cls, set())


def _record_schema(cls: type, seen: set[str]) -> JsonValue:
    if cls.__name__ in seen:
        return f"{NAMESPACE}.{cls.__name__}"
    seen.add(cls.__name__)
    hints = typing.get_type_hints(cls)
    return {
        "type": "record",
        "name": cls.__name__,
        "namespace": NAMESPACE,
        "doc": (cls.__doc__ or "").strip(),
        "fields": [_field_schema(f, hints[f.name], seen) for f in dataclasses.fields(cls)],
    }


def _field_schema(field: Any, hint: Any, seen: set[str]) -> JsonValue:
    schema = {"name": field.name, "doc": field.metadata["doc"], "type": _type_schema(hint, seen)}
    if field.default is not dataclasses.MISSING:
        schema["default"] = _default(field.default)
    elif field.default_factory is not dataclasses.MISSING:
        schema["default"] = to_plain(field.default_factory())
    return schema


def _default(value: Any) -> JsonValue:
    return [] if value == () else value.decode("latin-1") if isinstance(value, bytes) else value


def _type_schema(hint: Any, seen: set[str]) -> JsonValue:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    origin = typing.get_origin(hint)
    if origin is tuple:
        return {"type": "array", "items": _type_schema(typing.get_args(hint)[0], seen)}
    if origin in (types.UnionType, typing.Union):
        return _union_schema(typing.get_args(hint), seen)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _record_schema(hint, seen)
    return _enum_schema(hint, seen)


def _union_schema(members: tuple[Any, ...], seen: set[str]) -> JsonValue:
    # null first, because every optional field defaults to null
    ordered = sorted(members, key=lambda member: member is not type(None))
    return [_type_schema(member, seen) for member in ordered]


def _enum_schema(cls: type[StrEnum], seen: set[str]) -> JsonValue:
    if cls.__name__ in seen:
        return f"{NAMESPACE}.{cls.__name__}"
    seen.add(cls.__name__)
    symbols = [member.value for member in cls]
    return {
        "type": "enum",
        "name": cls.__name__,
        "namespace": NAMESPACE,
        "doc": (cls.__doc__ or "").strip(),
        "symbols": symbols,
        "default": symbols[0],
    }


def to_plain(event: Any) -> JsonValue:
    """A record as the plain values that fastavro writes. Integers become floats where asked."""
    plan = _plan(event.__class__)
    plain = dict(zip(plan.names, plan.values_of(event), strict=True))
    for name, convert in plan.written:
        plain[name] = convert(plain[name])
    return plain


def from_plain(cls: type, value: Mapping[str, Any]) -> Any:
    """The record that `to_plain` made `value` from; missing optional fields take their default."""
    plain = dict(value)
    for name, parse in _plan(cls).read:
        if name in plain:
            plain[name] = parse(plain[name])
    return cls(**plain)


Converter = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How records of a type are written and read; fields that stay as they are need no call."""

    names: tuple[str, ...]
    values_of: Callable[[Any], tuple[Any, ...]]
    written: tuple[tuple[str, Converter], ...]
    read: tuple[tuple[str, Converter], ...]


@functools.cache
def _plan(cls: type) -> _Plan:
    hints = typing.get_type_hints(cls)
    names = tuple(field.name for field in dataclasses.fields(cls))
    converters = {name: _converters(hints[name]) for name in names}
    return _Plan(
        names=names,
        values_of=_getter(names),
        written=tuple((n, write) for n, (write, _) in converters.items() if write is not _same),
        read=tuple((n, read) for n, (_, read) in converters.items() if read is not _same),
    )


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:  # `attrgetter` of one name gives no tuple
        return lambda event: (getattr(event, names[0]),)
    return operator.attrgetter(*names)


def _same(value: Any) -> Any:
    return value


def _converters(hint: Any) -> tuple[Converter, Converter]:
    """How to write and how to read a value of that type."""
    if typing.get_origin(hint) is tuple:
        write, read = _converters(typing.get_args(hint)[0])
        return _each(list, write), _each(tuple, read)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _union_converters(typing.get_args(hint))
    if hint is float:
        return float, _same
    if hint is datetime:
        return _same, lambda v: v if v.tzinfo else v.replace(tzinfo=UTC)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return to_plain, functools.partial(from_plain, hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return operator.attrgetter("value"), hint
    return _same, _same


def _each(into: type[list[Any]] | type[tuple[Any, ...]], convert: Converter) -> Converter:
    return into if convert is _same else lambda values: into(map(convert, values))


def _union_converters(members: tuple[Any, ...]) -> tuple[Converter, Converter]:
    others = [member for member in members if member is not type(None)]
    if set(others) == {bool, float}:  # True stays a boolean, 1 becomes 1.0
        return (lambda v: float(v) if isinstance(v, int) and not isinstance(v, bool) else v), _same
    write, read = _converters(others[0])
    return _unless_none(write), _unless_none(read)


def _unless_none(convert: Converter) -> Converter:
    return convert if convert is _same else lambda v: None if v is None else convert(v)


def main() -> int:
    """Write schemas that are not released yet; name those that differ from their type."""
    RELEASED.mkdir(exist_ok=True)
    stale = []
    latest = {cls: schema_id for schema_id, (cls, _) in sorted(RELEASES.items())}
    for cls, schema_id in latest.items():
        path = released_file(schema_id)
        text = json.dumps(schema_of(cls), indent=2) + "\n"
        if not path.exists():
            path.write_text(text)
        elif path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.stderr.write(
            f"Changed since their release: {', '.join(stale)}. Add a new version to RELEASES, "
            "or, before the first release of the project, delete the file and run this again.\n"
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
