"""What a bus can do: produce with a delivery report, read from given offsets, administer.

Failures are `TransientError` (the broker is away, the local queue is full), `PermanentError`
(the record is too large) or `ConfigError` (wrong address, missing topic at start, and as
`FencedError`: another process has taken this one's place).
"""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.errors import ConfigError, HeadraceError, TransientError
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

    def trouble(self) -> str:
        """Why records may be waiting: what the client was last refused for since the last report
        of a success, in words. Empty where nothing is known."""

    def close(self) -> None: ...


class FencedError(ConfigError):
    """Another process took over the transactional id. This one has nothing more to say."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"Another process writes as {transactional_id} now. Stop this one, or stop the other "
            "and start this one again."
        )


class Transactions(Protocol):
    """A producer whose records appear together or not at all. One lives for each id.

    Making it ends every earlier one with the id, wherever it runs, and what that left open is
    aborted: whatever is readable by then is all that it will ever have written. After a failed
    `commit` it is not known whether the records appeared: make a new one, then read.

    All but `send` block, each for a bounded time; all raise FencedError once a later one exists.
    """

    def begin(self) -> None:
        """Begin a transaction. One at a time."""

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        """As for a producer. Readers see the record after the commit."""

    def commit(self) -> None:
        """Wait for all reports, then let the records appear."""

    def abort(self) -> None:
        """Take the records back."""

    def close(self) -> None: ...


class Consumer(Protocol):
    """Reads given partitions from given offsets. Commits nothing by itself.

    It sees records of a transaction once that is committed, and never those of an aborted one.
    """

    def assign(self, positions: Mapping[Position, int]) -> None:
        """Read these partitions, each from its offset."""

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]: ...

    def at_end(self) -> bool:
        """Whether all there was to read in every assigned partition has been returned.

        Offsets alone do not tell: the end of a transaction takes one and is no record.
        """

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

    def producer(self, client_id: str, *, compress: bool = True) -> Producer:
        """Without `compress` for values that are compressed already."""

    def transactions(self, transactional_id: str) -> Transactions: ...

    def consumer(self, *, reads_ahead: bool = True) -> Consumer:
        """Without `reads_ahead` for whoever wants the next record only: a partition is fetched one
        batch of its producer at a time, and not by the megabyte."""

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
    reports = _Reports(len(records))
    for index, record in enumerate(records):
        report = functools.partial(reports.take, index)
        if not _queued(producer, record, report, num_sent=index):
            async with _bounded(max_silent_seconds):
                await _room(lambda: _queued(producer, record, report, num_sent=index))  # noqa: B023 - called within the turn
    async with _bounded(max_silent_seconds):
        await reports.complete
    return _raise_first_error([d for d in reports.deliveries if d is not None])


class _Reports:
    """The reports of some records, taken on the producer's thread.

    The loop is woken for the last one only: waking it costs more than everything else here.
    """

    def __init__(self, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._remaining = number
        self.deliveries: list[Delivery | None] = [None] * number
        self.complete: asyncio.Future[None] = self._loop.create_future()

    def take(self, index: int, delivery: Delivery) -> None:
        with self._lock:
            self.deliveries[index] = delivery
            self._remaining -= 1
            is_last = self._remaining == 0
        if is_last:
            # A closed loop means that nobody waits; an error would end the producer's thread.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.complete.done():
            self.complete.set_result(None)


def deliver_now(
    producer: Producer, records: Sequence[Record], timeout_seconds: float
) -> list[Delivery]:
    """`deliver` for a program without an event loop, and for few records: they fit the queue."""
    results: dict[int, Delivery] = {}
    for index, record in enumerate(records):
        producer.send(record, functools.partial(results.__setitem__, index))
    producer.flush(timeout_seconds)
    if len(results) < len(records):
        raise TransientError("Kafka's client did not report a delivery in time.")
    return _raise_first_error([results[index] for index in range(len(records))])


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


def transact(transactions: Transactions, records: Sequence[Record]) -> list[Delivery]:
    """Write all records or none, and return where they lie. Raises the first error, if any."""
    results: list[Delivery] = []
    transactions.begin()
    try:
        for record in records:
            transactions.send(record, results.append)
        transactions.commit()
    except FencedError:
        raise
    except HeadraceError as error:
        # What happened to a record says more than that the commit failed. The abort adds reports.
        told = next((d.error for d in results if d.error is not None), error)
        with contextlib.suppress(HeadraceError):
            transactions.abort()
        raise told from error
    return _raise_first_error(results)


def read_to_end(bus: Bus, topic: str, timeout_seconds: float = 30.0) -> list[Received]:
    """All records of a small topic, in order within a partition.

    TransientError when the end is not reached in time.
    """
    admin = bus.admin()
    try:
        starts = {(topic, p): first for p, (first, _) in admin.watermarks(topic).items()}
    finally:
        admin.close()
    consumer = bus.consumer()
    found: list[Received] = []
    deadline = time.monotonic() + timeout_seconds
    try:
        consumer.assign(starts)
        while True:
            found += consumer.poll(1_000, 0.2)
            if consumer.at_end():
                return found
            if time.monotonic() > deadline:
                raise TransientError(f"{topic} could not be read to its end in time.")
    finally:
        consumer.close()


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
