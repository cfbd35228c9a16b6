"""Record by record: handle, deliver, remember. The only place where the order of durability stands.

Each failure takes one of the four outcomes: PermanentError → dead letter; QuarantineError →
quarantine; TransientError → the batch is tried again and nothing is acknowledged; anything else
is a bug: it is counted on disk and stops the process before any acknowledgement. A record that
stopped the process three times is dead-lettered as `bug`, so it cannot stop a tenant for ever.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import structlog

from schemas import topics
from schemas.atdp.internal import DeadLetter, Quarantined
from schemas.atdp.types import Coordinates
from schemas.bus import Producer, Received, Record, deliver
from schemas.clock import Clock
from schemas.codec import encode
from schemas.errors import PermanentError, QuarantineError, Reason
from schemas.ids import derive_id
from schemas.telemetry import Metrics
from schemas.tracing import carried
from streams.runtime.crashes import CrashLedger
from streams.runtime.holds import Held, Holds, LogEnds
from streams.runtime.sizes import num_bytes_of

log = structlog.get_logger()

#: Holds that end in one batch at most, or as many as the batch has records; the rest end in the
#: next one, so that a stream that stood still does not come back as one batch without an end.
MAX_ENDED_HOLDS = 500
#: 2,500 calls with 100 kB of history each: more than a worker redacts within a hold, and less
#: than the model that finds names takes.
MAX_HELD_BYTES = 256 * 1024**2
#: Records that are read ahead together: heartbeats wait so long.
MAX_READ_AHEAD = 16
_MAX_BYTES = {topic.name: topic.max_bytes for topic in topics.all_topics()}
_DEFAULT_MAX_BYTES = 1_048_576
#: What headers and the batch around a record add to it.
_FRAMING_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class Effects:
    """What handling one record brings about.

    `state` maps keys to new values, None to delete; they belong to the record's partition.
    """

    outputs: tuple[Record, ...] = ()
    state: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """The record waits for another one with the same key that arrives within `seconds`: see
    `streams.runtime.holds`."""

    seconds: float


class State(Protocol):
    """The processor's table as one record sees it: earlier records of its batch included."""

    def get(self, key: str) -> bytes | None: ...

    def items(self) -> Iterable[tuple[str, bytes]]:
        """Every row, also those of other partitions of this process. A scan: call it rarely."""


class Table(State, Protocol):
    """Where state lives between batches."""

    changelog: str

    def apply(self, key: str, value: bytes | None) -> None: ...


class Processor(Protocol):
    """Pure but for its caches: the same record and state give the same effects."""

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects | Hold:
        """`overdue` is True for a record whose hold ran out: it must not be held again."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A processor that does for several records at once what is slow for each."""

    def read_ahead(self, records: Sequence[Received]) -> None:
        """Prepare for `handle`, which does the same without. Raises nothing but bugs."""


@dataclass(slots=True)
class _Batch:
    """What one batch has gathered; applied to the lane only after everything is durable."""

    outputs: list[Record] = field(default_factory=list)
    state: OrderedDict[tuple[int, str], bytes | None] = field(default_factory=OrderedDict)
    finished: list[Received] = field(default_factory=list)
    held: OrderedDict[tuple[str, int, int], Held] = field(default_factory=OrderedDict)
    held_bytes: int = 0

    def __post_init__(self) -> None:
        self.held_bytes = sum(held.num_bytes for held in self.held.values())

    def hold(self, held: Held) -> None:
        """A record that is held already keeps its place and its end."""
        if self.held.setdefault(coordinates(held.record), held) is held:
            self.held_bytes += held.num_bytes

    def release(self, where: tuple[str, int, int]) -> None:
        held = self.held.pop(where, None)
        self.held_bytes -= 0 if held is None else held.num_bytes


class _Overlay:
    def __init__(self, table: Table | None, batch: _Batch, partition: int) -> None:
        self._table = table
        self._batch = batch
        self._partition = partition

    def get(self, key: str) -> bytes | None:
        pending = self._batch.state
        if (self._partition, key) in pending:
            return pending[self._partition, key]
        return None if self._table is None else self._table.get(key)

    def items(self) -> Iterator[tuple[str, bytes]]:
        pending = {k: v for (p, k), v in self._batch.state.items() if p == self._partition}
        for key, value in () if self._table is None else self._table.items():
            if key not in pending:
                yield key, value
        yield from ((key, value) for key, value in pending.items() if value is not None)


def coordinates(record: Received) -> tuple[str, int, int]:
    """Topic, partition and offset of a record."""
    return record.topic, record.partition, record.offset


class RecordLane:
    """Runs a `Processor` over batches of records of co-partitioned topics."""

    def __init__(
        self,
        *,
        group: str,
        processor: Processor,
        table: Table | None,
        producer: Producer,
        crashes: CrashLedger,
        clock: Clock,
        metrics: Metrics,
        log_ends: LogEnds,
        max_held: int = 10_000,
        max_held_bytes: int = MAX_HELD_BYTES,
        decides_once: bool = False,
    ) -> None:
        """`decides_once`: what was decided for a record depends on when it came, so the decision
        is durable before anybody sees it; a record whose decision is known is emitted again.

        Over `max_held` records or `max_held_bytes` bytes of keys and values, the holds that began
        first end before their time."""
        self._decides_once = decides_once
        self._group = group
        self._processor = processor
        self._table = table
        self._producer = producer
        self._crashes = crashes
        self._clock = clock
        self._metrics = metrics
        self._max_held = max_held
        self._max_held_bytes = max_held_bytes
        self._held: OrderedDict[tuple[str, int, int], Held] = OrderedDict()
        self._holds = Holds(log_ends)
        #: Held records and their bytes, as last told to the gauges.
        self._told = (0, 0)
        #: Partitions that were taken away while a batch was under way.
        self._revoked: set[tuple[str, int]] = set()

    async def process(self, records: Sequence[Received]) -> list[Received]:
        """Handle `records` and what is overdue; the records that may be acknowledged now."""
        self._revoked.clear()
        batch = _Batch(held=OrderedDict(self._held))
        self._holds.read(records, self._clock.monotonic())
        for first in range(0, len(records), MAX_READ_AHEAD):
            together = records[first : first + MAX_READ_AHEAD]
            self._read_ahead(together)
            for record in together:
                await self._offer(record, batch)
                await asyncio.sleep(0)  # heartbeats run between records, however long one takes
        await self._release_overdue(batch, max(MAX_ENDED_HOLDS, len(records)))
        await self._make_durable(batch)
        self._held = batch.held
        for topic, partition in tuple(self._revoked):
            self.forget(topic, partition)
        self._tell_held()
        return batch.finished

    def _read_ahead(self, records: Sequence[Received]) -> None:
        """Not where a record has stopped the process: there each is handled for itself, so that
        the guilty one is known."""
        where = [coordinates(record) for record in records]
        if isinstance(self._processor, ReadsAhead) and not any(map(self._crashes.count, where)):
            with self._crashes.counting(where[0]):
                self._processor.read_ahead(records)

    def _tell_held(self) -> None:
        """The lanes of a process share these gauges, so each adds by how much it changed."""
        now = (len(self._held), sum(held.num_bytes for held in self._held.values()))
        self._metrics.gauge("headrace_held_events").inc(now[0] - self._told[0])
        self._metrics.gauge("headrace_held_bytes").inc(now[1] - self._told[1])
        self._told = now

    def forget(self, topic: str, partition: int) -> None:
        """Another worker owns the partition now and sees its unacknowledged records again."""
        self._revoked.add((topic, partition))
        self._holds.forget((topic, partition))
        for key in [k for k in self._held if k[:2] == (topic, partition)]:
            del self._held[key]

    async def _offer(self, record: Received, batch: _Batch) -> None:
        if self._handle(record, batch, overdue=False) and record.key is not None:
            await self._offer_waiting(record, batch)

    async def _offer_waiting(self, arrived: Received, batch: _Batch) -> None:
        """Try the held records of the same key again until none of them moves."""
        moved = True
        while moved:
            moved = False
            for held in list(batch.held.values()):
                if held.record.partition == arrived.partition and held.record.key == arrived.key:
                    moved = self._handle(held.record, batch, overdue=False) or moved
                    await asyncio.sleep(0)

    async def _release_overdue(self, batch: _Batch, num_at_most: int) -> None:
        """End the holds that ran out, and the first ones while the bounds are exceeded."""
        now = self._clock.monotonic()
        await self._holds.look(batch.held.values(), now)
        num_ended = 0
        for where, held in list(batch.held.items()):
            if num_ended == num_at_most:
                return
            is_over = self._holds.is_over(held, now) or self._holds_too_much(batch)
            if where in batch.held and is_over:
                num_ended += 1
                self._metrics.counter("headrace_hold_expired").inc()
                self._handle(held.record, batch, overdue=True)
                await asyncio.sleep(0)
                await self._offer_waiting(held.record, batch)

    def _holds_too_much(self, batch: _Batch) -> bool:
        return len(batch.held) > self._max_held or batch.held_bytes > self._max_held_bytes

    def _handle(self, record: Received, batch: _Batch, *, overdue: bool) -> bool:
        """Handle one record into the batch; True unless it waits."""
        where = coordinates(record)
        result = "handled"
        try:
            with self._crashes.counting(where):
                view = _Overlay(self._table, batch, record.partition)
                effects = self._processor.handle(record, view, overdue=overdue)
                _refuse_oversized(effects)
        except PermanentError as error:
            letter = dead_letter(self._group, record, error, self._clock, self._metrics)
            effects, result = Effects(outputs=(letter,)), "dead_lettered"
        except QuarantineError as error:
            effects, result = Effects(outputs=(self._quarantine(record, error),)), "quarantined"
        if isinstance(effects, Hold):
            self._hold(record, effects, batch)
            return False
        batch.release(where)
        batch.outputs.extend(carried(record.headers, effects.outputs))
        for key, value in effects.state:
            batch.state[record.partition, key] = value
            # the changelog keeps the order of the last writes: rows that name others come last
            batch.state.move_to_end((record.partition, key))
        batch.finished.append(record)
        self._metrics.counter("headrace_records", group=self._group, result=result).inc()
        return True

    def _hold(self, record: Received, hold: Hold, batch: _Batch) -> None:
        batch.hold(Held(record, hold.seconds, self._clock.monotonic() + hold.seconds))

    def _quarantine(self, record: Received, error: QuarantineError) -> Record:
        self._metrics.counter("headrace_quarantined", reason=error.reason.value).inc()
        event = Quarantined(
            quarantine_id=derive_id("quarantine", *coordinates(record)),
            tenant_id=None,
            source=Coordinates(
                topic=record.topic, partition=record.partition, offset=record.offset
            ),
            reason=error.reason.value,
            occurred_at=self._clock.now(),
            value=record.value or b"",
        )
        return Record(topics.QUARANTINE, event.quarantine_id.encode(), encode(event))

    async def _make_durable(self, batch: _Batch) -> None:
        changes = self._changelog_records(batch)
        first, second = (changes, batch.outputs) if self._decides_once else (batch.outputs, changes)
        await self._deliver(first)
        await self._deliver(second)
        if self._table is not None:
            for (_, key), value in batch.state.items():
                self._table.apply(key, value)

    def _changelog_records(self, batch: _Batch) -> list[Record]:
        if self._table is None:
            return []
        return [
            Record(self._table.changelog, key.encode(), value, partition=partition)
            for (partition, key), value in batch.state.items()
        ]

    async def _deliver(self, records: Sequence[Record]) -> None:
        try:
            await deliver(self._producer, records)
        except PermanentError as error:
            # An output that the broker refuses for good is our bug, not the record's fault.
            raise RuntimeError(f"the broker refused an output of {self._group}") from error


def _refuse_oversized(effects: Effects | Hold) -> None:
    """A row that no topic takes would stop the process again and again; the record is at fault."""
    if isinstance(effects, Hold):
        return
    for output in effects.outputs:
        limit = _MAX_BYTES.get(output.topic, _DEFAULT_MAX_BYTES)
        if num_bytes_of(output) > limit - _FRAMING_BYTES:
            raise PermanentError(Reason.OVERSIZED)
    for key, value in effects.state:
        if len(key.encode()) + len(value or b"") > _DEFAULT_MAX_BYTES - _FRAMING_BYTES:
            raise PermanentError(Reason.OVERSIZED)


def dead_letter(
    group: str, record: Received, error: PermanentError, clock: Clock, metrics: Metrics
) -> Record:
    """The dead letter of a record: where it lies and why, nothing of what it says.

    It is logged and counted here, so that every group does it alike.
    """
    where = coordinates(record)
    log.warning(
        "record_dead_lettered",
        group=group,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=error.reason.value,
    )
    metrics.counter("headrace_dead_letters", group=group, reason=error.reason.value).inc()
    event = DeadLetter(
        dead_letter_id=derive_id("dead-letter", group, *where),
        group=group,
        source=Coordinates(topic=where[0], partition=where[1], offset=where[2]),
        reason=error.reason.value,
        field=error.field,
        num_bytes=len(record.value or b""),
        occurred_at=clock.now(),
    )
    topic = topics.dead_letter_topic(record.topic)
    return Record(topic, event.dead_letter_id.encode(), encode(event))


__all__ = ["Effects", "Hold", "Processor", "RecordLane", "State", "Table"]
