"""Event → row. Pure; every value is typed and checked before it may reach the store.

A field becomes the column of its name and nested records are flattened. Which of several rows
with one id counts is the highest `row_version`, a number made from the event and, where the last
word counts, from its offset: never from the order in which rows arrive.
"""

import dataclasses
import functools
import hashlib
import marshal
import math
import operator
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from schemas import tables
from schemas.atdp.internal import (
    AuditEvent,
    DeadLetter,
    PartitionOffset,
    Quarantined,
    RewardRef,
    Sample,
    StepRef,
    TrajectorySummary,
)
from schemas.atdp.limits import EARLIEST, LATEST, MAX_INT64, MAX_UINT32
from schemas.atdp.training import Decision, MicroBatch, SampleDecision, TrainingSequence
from schemas.atdp.types import (
    Coordinates,
    Gap,
    Message,
    Outcome,
    RedactedSpan,
    Reward,
    RewardSignal,
    Step,
    TokenSpan,
    VersionSpan,
)
from schemas.atdp.weights import (
    BlobRef,
    ChunkRef,
    Proposal,
    ProposalAnswer,
    RingAssignment,
    Statistic,
    TensorDigest,
    VersionRef,
    WeightsAck,
    WeightsManifest,
)
from schemas.clock import to_us
from schemas.errors import PermanentError, Reason
from schemas.ids import derive_id
from schemas.rings import proposal_id

Cells = dict[str, Any]
"""Column name → value as the client library writes it; times are microseconds since 1970."""

_MAX_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a stored table. `version` decides between rows with the same id."""

    table: tables.Table
    id: str
    version: int
    cells: Cells


#: Of these the row that was emitted last counts.
_LAST_WORD = (
    TrajectorySummary, Sample, MicroBatch,
    WeightsManifest, Proposal, ProposalAnswer, RingAssignment, WeightsAck,
)  # fmt: skip
TABLE_OF = {table.event: table for table in tables.TABLES}


def to_row(event: Any, at: Coordinates, recorded_at: datetime) -> Row:
    """The row of an event that was read at `at`.

    PermanentError names the field whose value the store could not hold unchanged.
    """
    table = TABLE_OF.get(type(event))
    if table is None:
        raise PermanentError(Reason.UNEXPECTED_EVENT)
    cells = _flatten(event)
    cells |= _columns_beside(event, cells)
    return row_of_cells(table, cells, at, recorded_at)


def row_of_cells(table: tables.Table, cells: Cells, at: Coordinates, recorded_at: datetime) -> Row:
    """The row whose `cells` say what the event says; where it was read is added to them."""
    version = _version(table.event, cells, at)
    cells |= {
        "kafka_topic": at.topic,
        "kafka_partition": at.partition,
        "kafka_offset": at.offset,
        "recorded_at": _microseconds("recorded_at", recorded_at),
        "row_version": version,
    }
    return Row(table, table.id_of(cells), version, cells)


def _columns_beside(event: Any, cells: Cells) -> Cells:
    """Columns that are no fields: ids of records that have none, versions of a step."""
    match event:
        case Step():
            return {"policy_versions": policy_versions(cells)}
        case Proposal():
            return {"proposal_id": proposal_id(event)}
        case WeightsAck():
            at = event.occurred_at.isoformat()
            what = (event.worker_id, event.policy, event.version, event.status.value, at)
            return {"ack_id": derive_id("ack", *what)}
    return {}


def policy_versions(cells: Cells) -> list[int]:
    """Versions in the order of their first token; the step's own where no spans are given."""
    spans = sorted(cells["spans"], key=operator.itemgetter(0))
    found = dict.fromkeys(version for _, _, version in spans)
    if not found and cells["policy_version"] is not None:
        return [cells["policy_version"]]
    return list(found)


# -- which row counts --------------------------------------------------------------------------


def _version(cls: type, cells: Cells, at: Coordinates) -> int:
    """32 bits each of first and second rank, 64 of order, 64 of tie-break, 64 of content.

    Reward: the highest revision, then the highest replay epoch, then the latest judgement, then
    the digest. Step: the highest epoch, then a completed one, then the earliest (later ones are
    attempts of it). Assembly decides both alike. Trajectory and sample: the highest epoch, then
    the last one emitted; all of one trajectory lie on one partition, and so does all that is said
    about weights. Decision: that a sample is
    trained is the last word, else as for the sample.
    """
    epoch = _within("replay_epoch", cells.get("replay_epoch", 0), MAX_UINT32)
    ranks, order, tie = (epoch, 0), 0, 0
    if cls is Reward:
        ranks = (_within("revision", cells["revision"], MAX_UINT32), epoch)
        order, tie = cells["occurred_at"], _leading_bits(cells["digest"])
    elif cls is Step:
        ranks = (epoch, int(cells["outcome"] == Outcome.COMPLETE))
        order = _MAX_UINT64 - cells["started_at"]
    elif cls is SampleDecision:
        ranks, order = (int(cells["decision"] == Decision.TRAINED), epoch), at.offset
    elif cls in _LAST_WORD:
        order = at.offset
    elif cls in (DeadLetter, Quarantined, AuditEvent):
        order = cells["occurred_at"]
    content = _content_digest(cls, cells)
    if cls is Reward:  # of two that say the same, the one that knows its trajectory
        content = content >> 1 | bool(cells["trajectory_id"]) << 63
    return ranks[0] << 224 | ranks[1] << 192 | order << 128 | tie << 64 | content


def _content_digest(cls: type, cells: Cells) -> int:
    """64 bits over everything but the traces of one processing."""
    content = _content_of(cls, cells)
    try:
        told = marshal.dumps(content, _MARSHAL_VERSION)
    except ValueError:  # a subclass of a plain type, which no decoder makes
        told = repr(content).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def _content_of(cls: type, cells: Cells) -> tuple[Any, ...]:
    """The values that count. All rows of an event's type have the same columns."""
    take = _CONTENT_OF.get(cls)
    if take is None:
        columns = (column for column in cells if column not in tables.PROCESSING_COLUMNS)
        take = _CONTENT_OF[cls] = operator.itemgetter(*columns)
    return take(cells)


_CONTENT_OF: dict[type, Callable[[Cells], tuple[Any, ...]]] = {}
#: The last one in which equal values have equal bytes, whatever else refers to them.
_MARSHAL_VERSION = 2


def _leading_bits(digest: str) -> int:
    """The first 64 bits of a hexadecimal digest, which sort as its text does."""
    try:
        return int(digest[:16].ljust(16, "0"), 16)
    except ValueError:
        return int.from_bytes(hashlib.blake2b(digest.encode(), digest_size=8).digest(), "big")


# -- values ------------------------------------------------------------------------------------


def _within(field: str, number: int, highest: int) -> int:
    if not 0 <= number <= highest:
        raise PermanentError(Reason.WRONG_TYPE, field)
    return number


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise PermanentError(Reason.WRONG_TYPE, field)
    return value


def _integer(field: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_INT64:
        raise PermanentError(Reason.WRONG_TYPE, field)
    return value


def _number(field: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise PermanentError(Reason.WRONG_TYPE, field)
    if not math.isfinite(value):
        raise PermanentError(Reason.NOT_FINITE, field)
    return float(value)


def _truth(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise PermanentError(Reason.WRONG_TYPE, field)
    return value


def _microseconds(field: str, value: Any) -> int:
    """Exact microseconds since 1970. A naive time would depend on the machine's time zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PermanentError(Reason.WRONG_TYPE, field)
    if not EARLIEST <= value < LATEST:
        raise PermanentError(Reason.WRONG_TYPE, field)
    return to_us(value)


def _signal_value(field: str, value: Any) -> tuple[float | None, str]:
    """A learning signal's value and which kind it is: true is stored as 1 of type boolean."""
    if value is None:
        return None, "none"
    return _number(field, value), "boolean" if isinstance(value, bool) else "number"


def _uint32s(field: str, values: tuple[int, ...]) -> list[int]:
    return [_within(field, _integer(field, value), MAX_UINT32) for value in values]


def _redaction(field: str, span: RedactedSpan) -> tuple[str, str, int, int, str]:
    start, end = _uint32s(field, (span.start, span.end))
    return span.path, span.kind, start, end, span.placeholder


def _version_span(field: str, span: VersionSpan) -> tuple[int, int, int]:
    start, end = _uint32s(field, (span.start, span.end))
    return start, end, _integer(field, span.policy_version)


def _token_span(field: str, span: TokenSpan) -> tuple[int, int]:
    start, end = _uint32s(field, (span.start, span.end))
    return start, end


def _gap(_field: str, gap: Gap) -> tuple[str, str]:
    return gap.field, gap.reason


def _reward_signal(field: str, signal: RewardSignal) -> tuple[str, float | None, str, str | None]:
    return signal.name, *_signal_value(field, signal.value), signal.label


def _reward_ref(field: str, ref: RewardRef) -> tuple[str, int]:
    return ref.reward_id, _integer(field, ref.revision)


def _step_ref(field: str, ref: StepRef) -> tuple[int, int]:
    return _integer(field, ref.partition), _integer(field, ref.offset)


def _statistic(field: str, statistic: Statistic) -> tuple[str, float]:
    return statistic.name, _number(field, statistic.value)


def _partition_offset(field: str, at: PartitionOffset) -> tuple[str, int, int]:
    return at.topic, _integer(field, at.partition), _integer(field, at.offset)


def _version_ref(field: str, ref: VersionRef) -> tuple[int, str]:
    return _integer(field, ref.version), ref.root


# -- flattening --------------------------------------------------------------------------------

Put = Callable[[Any, Cells], None]
Convert = Callable[[str, Any], Any]

CONVERT: dict[Any, Convert] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _truth,
    datetime: _microseconds,
    RedactedSpan: _redaction,
    VersionSpan: _version_span,
    TokenSpan: _token_span,
    Gap: _gap,
    RewardSignal: _reward_signal,
    RewardRef: _reward_ref,
    StepRef: _step_ref,
    Statistic: _statistic,
    PartitionOffset: _partition_offset,
    VersionRef: _version_ref,
}
#: What no table holds: the tokens of a micro-batch, where a version's payload lies, and the
#: digests of its tensors.
_LEFT_OUT = (TrainingSequence, ChunkRef, BlobRef, TensorDigest)
#: Singular of the field of messages, for the column that holds their roles.
ROLES = {"new_messages": "new_message_roles", "output": "output_roles"}


def _flatten(event: Any) -> Cells:
    cells: Cells = {}
    for put in _plan(event.__class__):
        put(event, cells)
    return cells


@functools.cache
def _plan(cls: type) -> tuple[Put, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_put(cls, field.name, hints[field.name]) for field in dataclasses.fields(cls))


def _put(cls: type, name: str, hint: Any) -> Put:
    kind, optional = without_none(hint)
    if typing.get_origin(kind) is tuple:
        return _put_list(name, typing.get_args(kind)[0])
    if kind is Coordinates:
        return _put_coordinates(name, "source" if cls in (DeadLetter, Quarantined) else "raw")
    if kind is bytes:
        return lambda event, cells: cells.update(num_bytes=len(getattr(event, name)))
    if kind == bool | float:
        return _put_signal_value(name)
    if kind is VersionRef:
        return _put_version_ref(name, "" if cls is Proposal else f"{name}_")
    if dataclasses.is_dataclass(kind):
        return lambda event, cells: cells.update(_flatten(getattr(event, name)))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _put_value(name, lambda _, value: value.value, optional=optional)
    return _put_value(name, CONVERT[kind], optional=optional)


def without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    return (members[0] if len(members) == 1 else bool | float), True


def _put_value(name: str, convert: Convert, *, optional: bool) -> Put:
    def put(event: Any, cells: Cells) -> None:
        value = getattr(event, name)
        cells[name] = None if optional and value is None else convert(name, value)

    return put


def _put_signal_value(name: str) -> Put:
    def put(event: Any, cells: Cells) -> None:
        cells[name], cells[f"{name}_type"] = _signal_value(name, getattr(event, name))

    return put


def _put_coordinates(name: str, prefix: str) -> Put:
    def put(event: Any, cells: Cells) -> None:
        at = getattr(event, name)
        for part in ("topic", "partition", "offset"):
            cells[f"{prefix}_{part}"] = None if at is None else getattr(at, part)

    return put


def _put_version_ref(name: str, prefix: str) -> Put:
    def put(event: Any, cells: Cells) -> None:
        ref = getattr(event, name)
        cells[f"{prefix}version"] = None if ref is None else _integer(name, ref.version)
        cells[f"{prefix}root"] = None if ref is None else ref.root

    return put


def _put_list(name: str, item: type) -> Put:
    if item is Message:
        return _put_messages(name)
    if item in _LEFT_OUT:
        return lambda _event, _cells: None
    if name in ("token_ids", "prompt_token_ids"):
        return lambda event, cells: cells.update({name: _uint32s(name, getattr(event, name))})
    convert = CONVERT[item]

    def put(event: Any, cells: Cells) -> None:
        cells[name] = [convert(name, value) for value in getattr(event, name)]

    return put


def _put_messages(name: str) -> Put:
    def put(event: Any, cells: Cells) -> None:
        messages = getattr(event, name)
        cells[name] = [message.body for message in messages]
        cells[ROLES[name]] = [message.role for message in messages]

    return put
