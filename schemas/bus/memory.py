"""A bus in process: the same behaviour as the real one as far as one process can show it."""

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from schemas.bus.api import (
    Delivery,
    FencedError,
    OnDelivery,
    Position,
    Received,
    Record,
    partition_for,
)
from schemas.errors import ConfigError, PermanentError, Reason, TransientError
from schemas.topics import Topic


@dataclass
class _Log:
    first: int = 0
    records: list[Received] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class MemoryBus:
    """Topics as lists. Topics must be created before use, as on the real broker."""

    def __init__(self, max_record_bytes: int = 1_048_576) -> None:
        self.max_record_bytes = max_record_bytes
        self.logs: dict[str, list[_Log]] = {}
        self.offsets: dict[str, dict[Position, int]] = {}
        self.round_robin = itertools.count()
        #: Transactional id → the one that may write under it.
        self.writers: dict[str, MemoryTransactions] = {}

    def producer(self, client_id: str, *, compress: bool = True) -> "MemoryProducer":  # noqa: ARG002 - the port's signature
        return MemoryProducer(self)

    def transactions(self, transactional_id: str) -> "MemoryTransactions":
        self.writers[transactional_id] = MemoryTransactions(self, transactional_id)
        return self.writers[transactional_id]

    def consumer(self, *, reads_ahead: bool = True) -> "MemoryConsumer":  # noqa: ARG002 - the port's signature
        return MemoryConsumer(self)

    def admin(self) -> "MemoryAdmin":
        return MemoryAdmin(self)

    def partitions(self, topic: str) -> list[_Log]:
        """The partitions of a topic; ConfigError for one that nobody created."""
        if topic not in self.logs:
            raise ConfigError(f"Topic {topic} does not exist. `headrace up` creates all topics.")
        return self.logs[topic]


class MemoryProducer:
    """Appends at once and reports at once."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def check(self, record: Record) -> None:
        """PermanentError for a record that is too large, ConfigError for one without a topic."""
        if len(record.value or b"") > self._bus.max_record_bytes:
            raise PermanentError(Reason.OVERSIZED)
        self._bus.partitions(record.topic)

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        self.check(record)
        logs = self._bus.partitions(record.topic)
        partition = record.partition
        if partition is None:
            unkeyed = next(self._bus.round_robin) % len(logs)
            partition = unkeyed if record.key is None else partition_for(record.key, len(logs))
        log = logs[partition]
        offset = log.end
        log.records.append(
            Received(
                record.topic, partition, offset, record.key, record.value, record.headers,
                time.time_ns() // 1_000_000,
            )
        )  # fmt: skip
        on_delivery(Delivery(record.topic, partition, offset))

    def flush(self, timeout_seconds: float) -> int:  # noqa: ARG002 - the port's signature
        return 0

    def trouble(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing to release."""


class MemoryTransactions:
    """Holds records back until the commit. Their reports come with it."""

    def __init__(self, bus: MemoryBus, transactional_id: str) -> None:
        self._bus = bus
        self._id = transactional_id
        self._producer = MemoryProducer(bus)
        self._open: list[tuple[Record, OnDelivery]] | None = None

    def _require(self, *, is_open: bool) -> None:
        if self._bus.writers.get(self._id) is not self:
            raise FencedError(self._id)
        if (self._open is not None) is not is_open:
            raise RuntimeError("transactions are begun, then committed or aborted, one at a time")

    def begin(self) -> None:
        self._require(is_open=False)
        self._open = []

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        self._require(is_open=True)
        self._producer.check(record)
        assert self._open is not None
        self._open.append((record, on_delivery))

    def commit(self) -> None:
        self._require(is_open=True)
        for record, on_delivery in self._open or ():
            self._producer.send(record, on_delivery)
        self._open = None

    def abort(self) -> None:
        self._require(is_open=True)
        self._open = None

    def close(self) -> None:
        """What is open is never seen."""
        self._open = None


class MemoryConsumer:
    """Reads lists from positions."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._positions: dict[Position, int] = {}

    def assign(self, positions: Mapping[Position, int]) -> None:
        self._positions = dict(positions)

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]:  # noqa: ARG002
        taken: list[Received] = []
        for (topic, partition), offset in self._positions.items():
            log = self._bus.partitions(topic)[partition]
            start = max(offset, log.first) - log.first
            records = log.records[start : start + max_records - len(taken)]
            if records:
                taken += records
                self._positions[topic, partition] = records[-1].offset + 1
        return taken

    def at_end(self) -> bool:
        ends = (self._bus.partitions(t)[p].end <= at for (t, p), at in self._positions.items())
        return all(ends)

    def close(self) -> None:
        self._positions = {}


class MemoryAdmin:
    """Topics, watermarks and offsets of the memory bus."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def create_topics(
        self,
        topics: Iterable[Topic],
        num_partitions: int,
        replication_factor: int,  # noqa: ARG002 - the port's signature
    ) -> list[str]:
        missing = [t for t in topics if t.name not in self._bus.logs]
        for topic in missing:
            count = topic.partitions or num_partitions
            self._bus.logs[topic.name] = [_Log() for _ in range(count)]
        return [t.name for t in missing]

    def delete_topics(self, names: Sequence[str]) -> None:
        for name in names:
            self._bus.logs.pop(name, None)

    def topics(self) -> dict[str, int]:
        return {name: len(logs) for name, logs in self._bus.logs.items()}

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        return {i: (log.first, log.end) for i, log in enumerate(self._bus.partitions(topic))}

    def extents(self, topics: Sequence[str]) -> dict[Position, tuple[int, int]]:
        known = [topic for topic in topics if topic in self._bus.logs]
        return {(t, p): ends for t in known for p, ends in self.watermarks(t).items()}

    def offsets_at(self, topic: str, at: datetime) -> dict[int, int]:
        milliseconds = int(at.astimezone(UTC).timestamp() * 1000)
        return {
            i: next((r.offset for r in log.records if r.timestamp_ms >= milliseconds), log.end)
            for i, log in enumerate(self._bus.partitions(topic))
        }

    def committed(self, group: str, topics: Sequence[str]) -> dict[Position, int]:
        offsets = self._bus.offsets.get(group, {})
        return {position: offset for position, offset in offsets.items() if position[0] in topics}

    def commit(self, group: str, offsets: Mapping[Position, int]) -> None:
        if self.num_members(group):
            raise TransientError(f"Group {group} still has members.")
        self._bus.offsets.setdefault(group, {}).update(offsets)

    def num_members(self, group: str) -> int:  # noqa: ARG002 - groups have no members in memory
        return 0

    def close(self) -> None:
        """Nothing to release."""
