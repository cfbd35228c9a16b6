"""Between a Faust stream and a lane: a bounded inbox, batches, retries, acknowledgements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import structlog

from schemas.bus import Received
from schemas.errors import TransientError
from schemas.telemetry import Metrics

log = structlog.get_logger()

MAX_RETRY_SECONDS = 30.0


class Lane(Protocol):
    """Turns batches of records into durable effects."""

    async def process(self, records: Sequence[Received]) -> list[Received]:
        """Make everything durable, then name the records that may be acknowledged.

        TransientError: nothing was acknowledged, the same batch comes again.
        """

    def forget(self, topic: str, partition: int) -> None:
        """The partition belongs to another worker now."""


class Pump:
    """Feeds one lane from one stream.

    The inbox is bounded: while the lane waits for a broker or a store, the stream waits for the
    inbox and Faust stops fetching. A transient failure is retried for ever, with a bounded wait,
    and shows as lag and as `headrace_retries`; nothing is dropped.
    """

    def __init__(
        self,
        *,
        group: str,
        lane: Lane,
        acknowledge: Callable[[Any], Awaitable[None]],
        metrics: Metrics,
        max_batch: int,
        linger_seconds: float,
        idle_seconds: float = 0.25,
    ) -> None:
        self._group = group
        self._lane = lane
        self._acknowledge = acknowledge
        self._metrics = metrics
        self._max_batch = max_batch
        self._linger_seconds = linger_seconds
        self._idle_seconds = idle_seconds
        self._inbox: asyncio.Queue[tuple[Received, Any]] = asyncio.Queue(maxsize=2 * max_batch)
        self._events: dict[tuple[str, int, int], Any] = {}

    async def feed(self, events: AsyncIterator[Any]) -> None:
        """Put a stream's events into the inbox; waits while it is full."""
        async for event in events:
            await self._inbox.put((received(event), event))

    async def run(self) -> None:
        """Process batches until cancelled. A bug raises; the caller stops the process."""
        while True:
            batch = await self._take()
            with self._metrics.histogram("headrace_batch_seconds", group=self._group).time():
                finished = await self._process(batch)
                for record in finished:
                    event = self._events.pop((record.topic, record.partition, record.offset), None)
                    if event is not None:
                        await self._acknowledge(event)

    def forget(self, topic: str, partition: int) -> None:
        """Drop what belongs to a revoked partition: its new owner reads it again."""
        self._lane.forget(topic, partition)
        for key in [k for k in self._events if k[:2] == (topic, partition)]:
            del self._events[key]

    async def _take(self) -> list[Received]:
        """A batch, or an empty one after a moment so that holds can run out."""
        batch: list[Received] = []
        try:
            async with asyncio.timeout(self._idle_seconds):
                batch.append(self._remember(await self._inbox.get()))
        except TimeoutError:
            return batch
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._linger_seconds
        while len(batch) < self._max_batch and (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    batch.append(self._remember(await self._inbox.get()))
            except TimeoutError:
                break
        return batch

    def _remember(self, entry: tuple[Received, Any]) -> Received:
        record, event = entry
        self._events[record.topic, record.partition, record.offset] = event
        return record

    async def _process(self, batch: list[Received]) -> list[Received]:
        wait = 0.0
        while True:
            try:
                return await self._lane.process(batch)
            except TransientError as error:
                wait = min(MAX_RETRY_SECONDS, max(2 * wait, error.retry_after_seconds))
                self._metrics.counter("headrace_retries", group=self._group).inc()
                log.warning("batch_waits", group=self._group, why=str(error), seconds=wait)
                await asyncio.sleep(wait)


def received(event: Any) -> Received:
    """A Faust event as a record of our bus."""
    message = event.message
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Received(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple((str(name), bytes(value or b"")) for name, value in pairs),
        timestamp_ms=int((message.timestamp or 0) * 1000),
    )
