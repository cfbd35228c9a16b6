"""Records that a lane holds: until what they wait for comes, or their time or the room runs out."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from schemas import topics
from schemas.bus import Record
from schemas.bus.api import OnDelivery
from schemas.errors import TransientError
from streams.runtime import lane as lane_module
from tests.unit.runtime.lane_world import Failing, World, record


async def test_a_held_record_is_not_acknowledged_until_the_one_it_waits_for_came(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    lane = world.lane()
    assert await lane.process([record(0, "waits")]) == []
    other = record(1, "opens", key=b"other")
    assert await lane.process([other]) == [other]  # another key wakes nobody
    opens = record(2, "opens")
    assert await lane.process([opens]) == [opens, record(0, "waits")]
    assert world.table.rows["k"] == b"0"


async def test_a_hold_runs_out_and_the_record_is_handled_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane()
    assert await lane.process([record(0, "waits")]) == []
    world.clock.advance(timedelta(seconds=4.9))
    assert await lane.process([]) == []
    world.clock.advance(timedelta(seconds=0.1))
    assert await lane.process([]) == [record(0, "waits")]
    assert await lane.process([]) == []


async def test_a_hold_runs_out_in_time_although_the_clock_is_set_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane()
    assert await lane.process([record(0, "waits")]) == []
    world.clock.set_back(timedelta(hours=1))
    world.clock.advance(timedelta(seconds=5))
    assert await lane.process([]) == [record(0, "waits")]


async def test_no_more_than_so_many_are_held(tmp_path: Path) -> None:
    world = World(tmp_path)
    waiting = [record(i, "waits", key=f"{i}".encode()) for i in range(5)]
    assert await world.lane(max_held=3).process(waiting) == waiting[:2]


async def test_no_more_bytes_than_so_many_are_held_and_the_oldest_go_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    waiting = [record(i, "waits", key=f"{i}".encode()) for i in range(5)]
    num_bytes = len(b"0") + len(b"waits")
    lane = world.lane(max_held_bytes=3 * num_bytes)
    assert await lane.process(waiting) == waiting[:2]
    assert await lane.process([]) == []
    more = record(5, "waits", key=b"5")
    assert await lane.process([more]) == waiting[2:3]  # what was released is no longer counted
    opens = record(6, "opens", key=b"4")
    assert await lane.process([opens]) == [opens, waiting[4]]


async def test_a_record_that_comes_again_while_it_is_held_is_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane(max_held_bytes=2 * (len(b"k") + len(b"waits")))
    for _ in range(5):
        assert await lane.process([record(0, "waits")]) == []


async def test_holds_that_end_together_end_a_few_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "MAX_ENDED_HOLDS", 2)
    world = World(tmp_path)
    lane = world.lane()
    waiting = [record(i, "waits", key=f"{i}".encode()) for i in range(7)]
    assert await lane.process(waiting) == []
    world.clock.advance(timedelta(seconds=5))
    assert await lane.process([]) == waiting[:2]
    assert await lane.process([record(7)]) == [record(7), *waiting[2:4]]
    # as many as come in may go out, or what is held would grow over its bound
    batch = [record(i, key=b"x") for i in range(8, 11)]
    assert await lane.process(batch) == [*batch, *waiting[4:]]


@pytest.mark.parametrize("overdue", [True, False])
async def test_others_run_between_held_records(tmp_path: Path, overdue: bool) -> None:
    """All of them wait under one key, and end by time or by the record that they wait for."""
    world = World(tmp_path)
    lane = world.lane()
    await lane.process([record(i, "waits") for i in range(20)])
    if overdue:
        world.clock.advance(timedelta(seconds=5))
    num_turns = 0

    async def take_turns() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    done = await lane.process([] if overdue else [record(20, "opens")])
    other.cancel()
    assert len(done) == (20 if overdue else 21)
    assert num_turns >= 20


async def test_a_failed_attempt_does_not_lose_or_lengthen_a_hold(tmp_path: Path) -> None:
    world = World(tmp_path, [1])
    lane = world.lane()
    await lane.process([record(0, "waits")])
    world.clock.advance(timedelta(seconds=5))
    with pytest.raises(TransientError):
        await lane.process([])
    assert await lane.process([]) == [record(0, "waits")]


async def test_held_records_of_a_revoked_partition_are_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane()
    await lane.process([record(0, "waits", key=b"a"), record(0, "waits", key=b"b", partition=1)])
    lane.forget(topics.RAW_EVENTS, 0)
    world.clock.advance(timedelta(seconds=5))
    assert [found.partition for found in await lane.process([])] == [1]


async def test_a_revocation_during_a_batch_is_not_undone_by_the_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane()
    await lane.process([record(0, "waits")])

    class Revoking(Failing):
        def send(self, record: Record, on_delivery: OnDelivery) -> None:
            lane.forget(topics.RAW_EVENTS, 0)
            super().send(record, on_delivery)

    lane._producer = Revoking(world.bus.producer("t"), set(), by_report=True)
    await lane.process([record(1, key=b"other")])
    world.clock.advance(timedelta(seconds=5))
    assert await lane.process([]) == []
