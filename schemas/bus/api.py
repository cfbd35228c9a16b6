"""What a bus can do: produce with a delivery report, read from given offsets, administer.

Failures are `TransientError` (the broker is away, the local queue is full), `PermanentError`
(the record is too large) or `ConfigError` (wrong address, missing topic at start).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.errors import HeadraceError, TransientError
from schemas.topics import Topic

#: How long a full queue is given to make room, and the hint by which a full queue is known.
_ROOM_SECONDS = 0.05
_QUEUE_FULL_SECONDS = 0.1
#: A producer on Kafka reports each record at its `delivery.timeout.ms` (120 s) at the latest, and
#: a little later when it had to be built anew. Who reports nothing for longer has lost its thread.
MAX_SILENT_SECONDS = 180.0

Position = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something to produce. Without `partition` the key decides, by murmur2."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """Something consumed, with its coordinates. `timestamp_ms` is the broker's, -1 if unknown."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker's answer for one record: coordinates, or the error that is final for it."""

    topic: str
    partition: int = -1
    offset: int = -1
    error: HeadraceError | None = None


OnDelivery = Callable[[Delivery], None]


class Producer(Protocol):
    """Idempotent, `acks=all`. `on_delivery` may run on another thread."""

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        """Queue one record. TransientError when the local queue is full, PermanentError when
        the record is larger than the broker takes."""

    def flush(self, timeout_seconds: float) -> int:
        """Wait for reports; the number of records still without one."""

    def close(self) -> None: ...


class Consumer(Protocol):
    """Reads given partitions from given offsets. Commits nothing by itself."""

    def assign(self, positions: Mapping[Position, int]) -> None:
        """Read these partitions, each from its offset."""

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]: ...

    def close(self) -> None: ...


class Admin(Protocol):
    """Topics, watermarks and the offsets of groups."""

    def create_topics(
        self, topics: Iterable[Topic], num_partitions: int, replication_factor: int
    ) -> list[str]:
        """Create those that are missing; the names created."""

    def delete_topics(self, names: Sequence[str]) -> None: ...

    def topics(self) -> dict[str, int]:
        """Name → number of partitions."""

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partition → (first offset kept, offset after the last record)."""

    def extents(self, topics: Sequence[str]) -> dict[Position, tuple[int, int]]:
        """As `watermarks` for many topics with few requests; those that do not exist are absent."""

    def offsets_at(self, topic: str, at: datetime) -> dict[int, int]:
        """Partition → first offset at or after that time, else the end."""

    def committed(self, group: str, topics: Sequence[str]) -> dict[Position, int]:
        """Committed offsets of a group; partitions without one are absent."""

    def commit(self, group: str, offsets: Mapping[Position, int]) -> None:
        """Set the offsets of a group that has no members. TransientError while it has."""

    def num_members(self, group: str) -> int:
        """Members of a group, 0 for a group that does not exist."""

    def close(self) -> None: ...


class Bus(Protocol):
    """Makes the three."""

    def producer(self, client_id: str) -> Producer: ...

    def consumer(self) -> Consumer: ...

    def admin(self) -> Admin: ...


async def deliver(
    producer: Producer,
    records: Sequence[Record],
    *,
    max_silent_seconds: float = MAX_SILENT_SECONDS,
) -> list[Delivery]:
    """Produce all records and wait for every report. Raises the first error, if any.

    Every wait is bounded: TransientError when the producer's queue has no room, or reports are
    missing, for `max_silent_seconds`. The records may lie on the topic all the same.
    """
    if not records:
        return []
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    results: list[Delivery | None] = [None] * len(records)
    remaining = len(records)

    def report(index: int, delivery: Delivery) -> None:
        nonlocal remaining
        results[index] = delivery
        remaining -= 1
        if remaining == 0 and not done.done():
            done.set_result(None)

    def reporter(index: int) -> OnDelivery:
        def on_delivery(delivery: Delivery) -> None:
            # A closed loop means that nobody waits; an error here would end the producer's thread.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(report, index, delivery)

        return on_delivery

    for index, record in enumerate(records):
        if not _queued(producer, record, reporter(index), num_sent=index):
            async with _bounded(max_silent_seconds):
                await _room(lambda: _queued(producer, record, reporter(index), num_sent=index))  # noqa: B023 - called within the turn
    async with _bounded(max_silent_seconds):
        await done
    return _raise_first_error([d for d in results if d is not None])


async def _room(is_queued: Callable[[], bool]) -> None:
    while not is_queued():  # noqa: ASYNC110 - the queue tells nobody that it has room
        await asyncio.sleep(_ROOM_SECONDS)


@contextlib.asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TransientError("Kafka's client did not report a delivery in time.") from None


def _queued(producer: Producer, record: Record, report: OnDelivery, *, num_sent: int) -> bool:
    """False while the queue is full of our own records, which leave it one by one."""
    try:
        producer.send(record, report)
    except TransientError as error:
        if num_sent == 0 or error.retry_after_seconds > _QUEUE_FULL_SECONDS:
            raise
        return False
    return True


def _raise_first_error(deliveries: list[Delivery]) -> list[Delivery]:
    for delivery in deliveries:
        if delivery.error is not None:
            raise delivery.error
    return deliveries


def partition_for(key: bytes, num_partitions: int) -> int:
    """The partition that `murmur2_random`, Java and aiokafka choose for a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % num_partitions


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with Kafka's seed (org.apache.kafka.common.utils.Utils#murmur2)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    aligned = len(data) - len(data) % 4
    for i in range(0, aligned, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    tail = data[aligned:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
