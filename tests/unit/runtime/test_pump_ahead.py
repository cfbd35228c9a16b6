"""A lane that looks ahead: one batch under way, the next one prepared, all in order."""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from schemas.bus import Received
from streams.runtime.pump import Attempt
from tests.unit.runtime.test_pump import RecordingLane, Running, event, flat, until


@dataclass
class AheadLane(RecordingLane):
    """Its attempts say which batch they were prepared for."""

    prepared: list[list[int]] = field(default_factory=list)
    attempts: list[tuple[list[int], list[int]]] = field(default_factory=list)
    breaks_at: int | None = None

    async def prepare(self, records: Sequence[Received]) -> Attempt:
        offsets = [record.offset for record in records]
        if self.breaks_at in offsets:
            raise ZeroDivisionError(self.breaks_at)
        if offsets:
            self.prepared.append(offsets)
        return functools.partial(self._attempt, offsets)

    async def _attempt(self, prepared: list[int], records: Sequence[Received]) -> list[Received]:
        if records:
            self.attempts.append((prepared, [record.offset for record in records]))
        return await self.process(records)


async def _turns() -> None:
    """More than anything that could still move takes."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_the_next_batch_is_prepared_while_one_is_under_way_and_no_further() -> None:
    lane = AheadLane(gate=asyncio.Event())
    assert lane.gate is not None
    async with Running(lane) as running:
        running.put(*range(30))
        await until(lambda: lane.prepared == [[0, 1, 2], [3, 4, 5]])
        await _turns()
        assert lane.prepared == [[0, 1, 2], [3, 4, 5]]
        assert (lane.batches, running.acknowledged) == ([[0, 1, 2]], [])
        # beside these two an inbox of two batches, and the event that waits for its place
        assert running.num_taken <= 6 + 6 + 1
        lane.gate.set()
        await until(lambda: running.acknowledged == list(range(30)))
    assert flat(lane.batches) == list(range(30))
    assert all(prepared == given for prepared, given in lane.attempts)


async def test_a_transient_failure_lets_nothing_pass_and_uses_what_was_prepared() -> None:
    lane = AheadLane(fails=3)
    async with Running(lane) as running:
        running.put(*range(6))
        await until(lambda: running.acknowledged == list(range(6)))
    assert lane.batches == [[0, 1, 2]] * 4 + [[3, 4, 5]]
    assert lane.prepared == [[0, 1, 2], [3, 4, 5]]


async def test_records_taken_away_while_they_lay_prepared_are_not_finished() -> None:
    lane = AheadLane(gate=asyncio.Event())
    assert lane.gate is not None
    async with Running(lane, max_batch=2) as running:
        running.put(0, 1, 2)
        running.put(7, partition=1)
        await until(lambda: len(lane.prepared) == 2)
        forgetting = asyncio.create_task(running.pump.forget({("t", 0)}))
        await until(lambda: lane.forgotten == [("t", 0)])
        assert not forgetting.done()  # the batch under way comes to its end first
        lane.gate.set()
        await asyncio.wait_for(forgetting, 5)
        await until(lambda: running.acknowledged == [7])
    assert lane.attempts == [([0, 1], [0, 1]), ([2, 7], [7])]


async def test_a_bug_in_preparing_shows_once_the_batch_before_is_acknowledged() -> None:
    lane = AheadLane(breaks_at=3)
    async with Running(lane) as running:
        for offset in range(5):
            running.source.put_nowait(event(offset))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(running.tasks[1], 5)
    assert running.acknowledged == [0, 1, 2]


async def test_what_is_prepared_is_given_up_when_the_pump_ends() -> None:
    lane = AheadLane(gate=asyncio.Event())
    async with Running(lane) as running:
        running.put(0, 1, 2)
        await until(lambda: lane.batches == [[0, 1, 2]])
    assert all(task.done() for task in running.tasks)
    assert len(asyncio.all_tasks()) == 1  # the test itself
