"""Between a Faust stream and a lane: a bounded inbox, batches, retries, acknowledgements."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple, Never, Protocol, runtime_checkable

import structlog

from schemas.bus import Position, Received
from schemas.errors import TransientError
from schemas.telemetry import Metrics
from schemas.tracing import Tracing, traced
from streams.runtime.sizes import num_bytes_of

log = structlog.get_logger()

MAX_RETRY_SECONDS = 30.0
#: Keys and values that wait for the lane, and those of one batch, beyond which no more is taken.
MAX_BYTES = 32 * 1024**2
#: How long a rebalance waits for the batch under way.
MAX_REVOKE_SECONDS = 30.0


class Lane(Protocol):
    """Turns batches of records into durable effects."""

    async def process(self, records: Sequence[Received]) -> list[Received]:
        """Make everything durable, then name the records that may be acknowledged.

        TransientError: nothing was acknowledged, the same batch comes again.
        """

    def forget(self, topic: str, partition: int) -> None:
        """The partition belongs to another worker now."""


Attempt = Callable[[Sequence[Received]], Awaitable[list[Received]]]
"""Makes records durable and names those that may be acknowledged, as `Lane.process` does."""


@runtime_checkable
class LooksAhead(Protocol):
    """A lane that, in place of processing a batch, first does what has no effect yet: while the
    batch before waits for a store."""

    async def prepare(self, records: Sequence[Received]) -> Attempt:
        """What to call for these, once the batch before is finished: with all of them or, where
        partitions were taken away, some; again after a TransientError.

        Nothing may be seen of it outside. Bugs raise, and do so after the batch before is finished.
        """

    def forget(self, topic: str, partition: int) -> None:
        """The partition belongs to another worker now."""


class Pump:
    """Feeds one lane from one stream.

    The inbox is bounded in records and in bytes: while the lane waits for a broker or a store, the
    stream waits for the inbox and Faust stops fetching. A transient failure is retried for ever,
    with a bounded wait, and shows as lag and as `headrace_retries`; nothing is dropped.

    One batch at a time is under way. Of a lane that looks ahead one more is prepared meanwhile.
    """

    def __init__(
        self,
        *,
        group: str,
        lane: Lane | LooksAhead,
        acknowledge: Callable[[Any], Awaitable[None]],
        metrics: Metrics,
        max_batch: int,
        linger_seconds: float,
        idle_seconds: float = 0.25,
        logical: Callable[[str], str] = str,
        tracing: Tracing | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`logical` gives the registry's name of a topic of the stream. `max_bytes` is the bound
        of the inbox and of a batch; the record that crosses it still belongs to it."""
        self._max_bytes = max_bytes
        self._tracing = tracing
        self._logical = logical
        self._group = group
        self._lane = lane
        self._acknowledge = acknowledge
        self._metrics = metrics
        self._max_batch = max_batch
        self._linger_seconds = linger_seconds
        self._idle_seconds = idle_seconds
        self._inbox: asyncio.Queue[_Entry] = asyncio.Queue(maxsize=2 * max_batch)
        self._inbox_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._events: dict[tuple[str, int, int], Any] = {}
        #: Records whose effects are durable and that wait for one before them.
        self._finished: set[tuple[str, int, int]] = set()
        #: How often each partition was taken away. What came in before the last time is stale.
        self._revocations: Counter[Position] = Counter()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        #: What the batch under way waits for, in words; empty while it gets on.
        self.waits_for = ""

    async def feed(self, lots: AsyncIterator[Sequence[Any]]) -> None:
        """Put a stream's events into the inbox, lot by lot; waits while it is full."""
        async for lot in lots:
            # All of them before any waits: what is taken away meanwhile makes them stale.
            entries = [self._entry(event) for event in lot]
            for entry in entries:
                if not self._has_room.is_set():
                    await self._has_room.wait()
                self._count(num_bytes_of(entry.record))
                if self._inbox.full():
                    await self._inbox.put(entry)
                else:
                    self._inbox.put_nowait(entry)

    def _entry(self, event: Any) -> "_Entry":
        record = received(event, self._logical)
        return _Entry(record, event, self._revocations[record.topic, record.partition])

    def _count(self, num_bytes: int) -> None:
        """So much more waits in the inbox, or less."""
        self._inbox_bytes += num_bytes
        has_room = self._inbox_bytes < self._max_bytes
        if has_room is not self._has_room.is_set():
            (self._has_room.set if has_room else self._has_room.clear)()

    async def run(self) -> None:
        """Process batches until cancelled. A bug raises; the caller stops the process."""
        lane = self._lane
        if isinstance(lane, LooksAhead):
            await self._run_ahead(lane)
        while True:
            await self._work_off(await self._take(), lane.process)

    async def _run_ahead(self, lane: LooksAhead) -> Never:
        async def ready() -> tuple[list[Received], Attempt]:
            batch = await self._take()
            return batch, await lane.prepare(batch)

        ahead = asyncio.create_task(ready())
        try:
            while True:
                batch, attempt = await ahead
                ahead = asyncio.create_task(ready())
                await self._work_off(batch, attempt)
                del batch, attempt  # or they would live on until the next one is prepared
        finally:
            ahead.cancel()

    async def _work_off(self, batch: list[Received], attempt: Attempt) -> None:
        with self._metrics.histogram("headrace_batch_seconds", group=self._group).time():
            began_ns = time.time_ns()
            finished = await self._process(batch, attempt)
            self._tell(finished, began_ns)
            # A record taken away meanwhile is its new owner's to acknowledge.
            self._finished.update(set(map(_coordinates, finished)) & self._events.keys())
            for event in self._acknowledgeable():
                await self._acknowledge(event)

    def _tell(self, finished: Sequence[Received], began_ns: int) -> None:
        """A span for each record that somebody wants traced."""
        if self._tracing is None:
            return
        times = began_ns, time.time_ns()
        for record in finished:
            traceparent = traced(record.headers)
            if traceparent is not None:
                attributes: dict[str, str | int] = {
                    "messaging.destination.name": record.topic,
                    "messaging.destination.partition.id": str(record.partition),
                    "messaging.kafka.offset": record.offset,
                    "messaging.batch.message_count": len(finished),
                }
                self._tracing.tell("process", "consumer", traceparent, times, attributes)

    def _acknowledgeable(self) -> list[Any]:
        """Events of finished records with nothing unfinished before them on their partition.

        Faust commits from the lowest acknowledged offset on, so a record that is held must keep
        the ones behind it back, or a crash would lose it.
        """
        ready, blocked = [], set()
        for key in list(self._events):  # in the order in which they came in
            if key not in self._finished:
                blocked.add(key[:2])
            elif key[:2] not in blocked:
                self._finished.discard(key)
                ready.append(self._events.pop(key))
        return ready

    async def forget(self, positions: Collection[Position]) -> None:
        """Drop what belongs to revoked partitions: their new owner reads it again.

        Returns once the attempt that is under way has ended, so that the new owner recovers the
        state that it wrote. Waits `MAX_REVOKE_SECONDS` at most.
        """
        for topic, partition in positions:
            self._revocations[topic, partition] += 1
            self._lane.forget(topic, partition)
        for key in [k for k in self._events if k[:2] in positions]:
            del self._events[key]
        self._finished = {key for key in self._finished if key in self._events}
        try:
            async with asyncio.timeout(MAX_REVOKE_SECONDS):
                await self._at_rest.wait()
        except TimeoutError:
            log.warning("revoked_during_a_batch", group=self._group, seconds=MAX_REVOKE_SECONDS)

    async def _take(self) -> list[Received]:
        """A batch, or an empty one after a moment so that holds can run out."""
        batch: list[Received] = []
        first = await self._next(self._idle_seconds)
        if first is None:
            return batch
        batch += self._remember(first)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._linger_seconds
        left_bytes = self._max_bytes - num_bytes_of(first.record)
        while len(batch) < self._max_batch and left_bytes > 0:
            entry = self._lies_there() or await self._next(deadline - loop.time())
            if entry is None:
                break
            left_bytes -= num_bytes_of(entry.record)
            batch += self._remember(entry)
        return batch

    async def _next(self, wait_seconds: float) -> "_Entry | None":
        """The next of the inbox: what lies there at once, else what comes in so many seconds."""
        entry = self._lies_there()
        if entry is not None or wait_seconds <= 0:
            return entry
        try:
            async with asyncio.timeout(wait_seconds):
                entry = await self._inbox.get()
        except TimeoutError:
            return None
        self._count(-num_bytes_of(entry.record))
        return entry

    def _lies_there(self) -> "_Entry | None":
        """What lies in the inbox costs neither a timer nor a coroutine."""
        if self._inbox.empty():
            return None
        entry = self._inbox.get_nowait()
        self._count(-num_bytes_of(entry.record))
        return entry

    def _remember(self, entry: "_Entry") -> list[Received]:
        """The record, unless its partition was taken away since it came in."""
        record = entry.record
        if entry.tenure != self._revocations[record.topic, record.partition]:
            return []
        self._events[_coordinates(record)] = entry.event
        return [record]

    async def _process(self, batch: list[Received], attempt: Attempt) -> list[Received]:
        wait = 0.0
        while True:
            try:
                self._at_rest.clear()
                # A partition may have been taken away while the batch waited for its next attempt.
                finished = await attempt([r for r in batch if _coordinates(r) in self._events])
            except TransientError as error:
                self.waits_for = str(error)
                wait = min(MAX_RETRY_SECONDS, max(2 * wait, error.retry_after_seconds))
                self._metrics.counter("headrace_retries", group=self._group).inc()
                log.warning("batch_waits", group=self._group, why=str(error), seconds=wait)
            else:
                self.waits_for = ""
                return finished
            finally:
                self._at_rest.set()
            await asyncio.sleep(wait)


class _Entry(NamedTuple):
    """A record in the inbox, its Faust event, and how often its partition had been revoked."""

    record: Received
    event: Any
    tenure: int


def _coordinates(record: Received) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def received(event: Any, logical: Callable[[str], str] = str) -> Received:
    """A Faust event as a record of our bus."""
    message = event.message
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Received(
        topic=logical(message.topic),
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple((str(name), bytes(value or b"")) for name, value in pairs),
        timestamp_ms=int((message.timestamp or 0) * 1000),
    )
