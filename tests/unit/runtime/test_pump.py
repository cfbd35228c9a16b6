"""Between a stream and a lane: bounded, retried, acknowledged once, revoked for good."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.bus import Received
from schemas.errors import TransientError
from schemas.telemetry import Metrics
from streams.runtime.pump import Pump, received


def event(offset: int, partition: int = 0, value: bytes = b"v") -> Any:
    """What Faust hands over."""
    message = SimpleNamespace(
        topic="t", partition=partition, offset=offset, key=b"k", value=value,
        headers=[("name", b"value")], timestamp=1.5,
    )  # fmt: skip
    return SimpleNamespace(message=message)


@dataclass
class RecordingLane:
    """Finishes every record unless told to fail; remembers what it was given."""

    fails: int = 0
    gate: asyncio.Event | None = None
    keeps: set[int] = field(default_factory=set)
    batches: list[list[int]] = field(default_factory=list)
    forgotten: list[tuple[str, int]] = field(default_factory=list)

    async def process(self, records: Sequence[Received]) -> list[Received]:
        if records:
            self.batches.append([record.offset for record in records])
        if self.gate is not None:
            await self.gate.wait()
        if records and self.fails:
            self.fails -= 1
            raise TransientError("away", retry_after_seconds=0.01)
        return [record for record in records if record.offset not in self.keeps]

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))


class Running:
    """A pump with its two tasks."""

    def __init__(self, lane: RecordingLane, max_batch: int = 3, **options: Any) -> None:
        self.acknowledged: list[int] = []
        self.metrics = Metrics()
        self.source: asyncio.Queue[Any] = asyncio.Queue()
        self.num_taken = 0
        self.pump = Pump(
            group="g", lane=lane, acknowledge=self._acknowledge, metrics=self.metrics,
            max_batch=max_batch, linger_seconds=0.01, idle_seconds=0.01, **options,
        )  # fmt: skip

    async def __aenter__(self) -> "Running":
        self.tasks = [
            asyncio.create_task(t) for t in (self.pump.feed(self._events()), self.pump.run())
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _acknowledge(self, done: Any) -> None:
        self.acknowledged.append(done.message.offset)

    async def _events(self) -> AsyncIterator[Any]:
        while True:
            taken = await self.source.get()
            self.num_taken += 1
            yield [taken]

    def put(self, *offsets: int, partition: int = 0) -> None:
        for offset in offsets:
            self.source.put_nowait(event(offset, partition))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the tests look at state that has no event
            await asyncio.sleep(0)


def flat(batches: list[list[int]]) -> list[int]:
    return [offset for batch in batches for offset in batch]


def test_an_event_of_faust_becomes_a_record_of_ours() -> None:
    found = received(event(7, 2))
    assert found == Received("t", 2, 7, b"k", b"v", (("name", b"value"),), 1500)


async def test_records_are_batched_and_acknowledged_after_the_lane_finished_them() -> None:
    lane = RecordingLane()
    async with Running(lane) as running:
        running.put(0, 1, 2, 3)
        await until(lambda: running.acknowledged == [0, 1, 2, 3])
    assert max(map(len, lane.batches)) <= 3
    assert flat(lane.batches) == [0, 1, 2, 3]


async def test_a_record_that_the_lane_keeps_keeps_those_behind_it_back() -> None:
    """Faust would commit past it, and a crash would lose it."""
    lane = RecordingLane(keeps={2})
    async with Running(lane) as running:
        running.put(0, 1, 2, 3)
        await until(lambda: running.acknowledged == [0, 1])
        running.put(4)
        await until(lambda: any(4 in batch for batch in lane.batches))
        for _ in range(50):
            await asyncio.sleep(0)
        assert running.acknowledged == [0, 1]


async def test_a_transient_failure_repeats_the_same_batch_and_acknowledges_nothing_before() -> None:
    lane = RecordingLane(fails=3)
    async with Running(lane) as running:
        running.put(0, 1, 2)
        await until(lambda: len(lane.batches) == 2)
        assert running.acknowledged == []
        await until(lambda: running.acknowledged == [0, 1, 2])
    assert lane.batches == [[0, 1, 2]] * 4
    assert running.metrics.registry.get_sample_value(
        "headrace_retries_total", {"group": "g"}
    ) == 3.0  # fmt: skip


async def test_while_the_lane_waits_the_stream_is_not_read_without_bound() -> None:
    lane = RecordingLane(gate=asyncio.Event())
    async with Running(lane, max_batch=3) as running:
        running.put(*range(100))
        await until(lambda: len(lane.batches) == 1)
        for _ in range(200):
            await asyncio.sleep(0)
        # one batch at the lane, an inbox of two batches, and the event that waits for its place
        assert running.num_taken <= 3 + 6 + 1
        assert lane.gate is not None
        lane.gate.set()
        await until(lambda: len(running.acknowledged) == 100)


async def test_large_records_wait_in_the_stream_and_come_in_small_batches() -> None:
    """While the store is away, five thousand records of a megabyte would be five gigabytes."""
    lane = RecordingLane(gate=asyncio.Event())
    async with Running(lane, max_batch=100, max_bytes=1_000) as running:
        for offset in range(20):
            running.source.put_nowait(event(offset, value=b"x" * 299))
        await until(lambda: running.num_taken == 9)  # a batch of four, four that wait, one in hand
        await asyncio.sleep(0.05)
        assert running.num_taken == 9
        assert lane.gate is not None
        lane.gate.set()
        await until(lambda: len(running.acknowledged) == 20)
    assert flat(lane.batches) == list(range(20))
    assert max(map(len, lane.batches)) == 4
    # nothing is left in the count: there is room again
    assert running.pump._inbox_bytes == 0


async def test_a_bug_ends_the_pump_before_any_acknowledgement() -> None:
    class Broken(RecordingLane):
        async def process(self, records: Sequence[Received]) -> list[Received]:
            raise ZeroDivisionError(len(records))

    async with Running(Broken()) as running:
        running.put(0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(running.tasks[1], 5)
    assert running.acknowledged == []


async def test_what_waits_in_the_inbox_of_a_revoked_partition_never_reaches_the_lane() -> None:
    lane = RecordingLane(gate=asyncio.Event())
    assert lane.gate is not None
    async with Running(lane) as running:
        running.put(0)
        await until(lambda: lane.batches == [[0]])
        running.put(1, 2, 3, 4, 5, 6, 7)  # the last of them waits for its place
        running.put(50, partition=1)
        await until(lambda: running.num_taken >= 8)
        forgetting = asyncio.create_task(running.pump.forget({("t", 0)}))
        await until(lambda: lane.forgotten == [("t", 0)])
        assert not forgetting.done()  # the batch under way comes to its end first
        lane.gate.set()
        await asyncio.wait_for(forgetting, 5)
        await until(lambda: running.acknowledged == [50])
        running.put(1)  # assigned again: the record comes once more
        await until(lambda: running.acknowledged == [50, 1])
    assert 2 not in flat(lane.batches)


async def test_a_batch_that_waits_for_its_next_attempt_loses_its_revoked_records() -> None:
    lane = RecordingLane(fails=1)
    async with Running(lane) as running:
        running.put(0)
        running.put(7, partition=1)
        await until(lambda: len(lane.batches) == 1)
        await running.pump.forget({("t", 0)})
        await until(lambda: running.acknowledged == [7])
    assert lane.batches == [[0, 7], [7]]
