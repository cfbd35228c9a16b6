"""A hold is a time at the broker: a worker that is behind does not shorten it."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.bus import Position, Received
from schemas.clock import ManualClock
from schemas.errors import TransientError
from streams.runtime import Effects, Hold, State
from streams.runtime.holds import QUIET_SECONDS
from streams.runtime.lane import RecordLane
from tests.unit.runtime_harness import START, lane_over, memory_bus

HOLD_SECONDS = 5.0
WAITS, OPENS, OTHER = b"waits", b"opens", b"other"


class Waiting:
    """`waits` waits for `opens`; remembers which records it had to handle without it."""

    def __init__(self) -> None:
        self.overdue: list[int] = []

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects | Hold:
        if record.value == OPENS:
            return Effects(state=(("open", b"yes"),))
        if record.value == WAITS and state.get("open") is None:
            if not overdue:
                return Hold(HOLD_SECONDS)
            self.overdue.append(record.offset)
        return Effects()


class Broker:
    """One partition: what has arrived by now, and where it ends. `extra` offsets hold no record."""

    def __init__(self, clock: ManualClock, arrivals: list[tuple[float, bytes]]) -> None:
        self._clock = clock
        self._records = [
            Received(topics.RAW_EVENTS, 0, offset, b"k", value, (), int(1000 * at))
            for offset, (at, value) in enumerate(sorted(arrivals, key=lambda one: one[0]))
        ]
        self._num_read = 0
        self.extra = 0
        self.is_away = False
        self.num_asked = 0

    def set_back(self, by_ms: int) -> None:
        """The last record to be read first, as if it had come before the clock was set back."""
        *others, last = self._records
        moved = [replace(one, offset=one.offset + 1, timestamp_ms=-by_ms) for one in others]
        self._records = [replace(last, offset=0), *moved]

    @property
    def num_arrived(self) -> int:
        now_ms = self._clock.monotonic() * 1000
        return sum(record.timestamp_ms <= now_ms for record in self._records)

    @property
    def is_read(self) -> bool:
        return self._num_read == len(self._records)

    def fetch(self, num_at_most: int) -> list[Received]:
        end = self._num_read if self.is_away else self.num_arrived
        found = self._records[self._num_read : min(end, self._num_read + num_at_most)]
        self._num_read += len(found)
        return found

    async def ends(self, positions: Collection[Position]) -> Mapping[Position, int]:
        self.num_asked += 1
        if self.is_away:
            raise TransientError("away")
        return dict.fromkeys(positions, self.num_arrived + self.extra)


class World:
    """A lane that reads the partition of a broker."""

    def __init__(self, folder: Path, arrivals: list[tuple[float, bytes]]) -> None:
        self.clock = ManualClock(START)
        self.broker = Broker(self.clock, arrivals)
        self.processor = Waiting()
        self.lane: RecordLane = lane_over(
            memory_bus(), self.processor, folder, clock=self.clock, log_ends=self.broker
        )

    async def turn(self, seconds: float, num_at_most: int = 1_000) -> int:
        """So much time passes, then so much is read; how many records were finished."""
        self.clock.advance(timedelta(seconds=seconds))
        return len(await self.lane.process(self.broker.fetch(num_at_most)))


async def test_a_worker_that_is_behind_reads_on_before_a_hold_ends(tmp_path: Path) -> None:
    arrivals = [(0.0, WAITS), *[(1.0, OTHER)] * 60, (2.0, OPENS)]
    world = World(tmp_path, arrivals)
    await world.turn(3.0, 1)
    for _ in range(60):
        await world.turn(1.0, 1)  # a second a record: the hold's own seconds are long over
    assert world.processor.overdue == []
    assert await world.turn(1.0, 1) == 2
    assert world.processor.overdue == []


async def test_what_came_too_late_is_not_waited_for(tmp_path: Path) -> None:
    arrivals = [(0.0, WAITS), *[(5.5, OTHER)] * 3, (5.6, OPENS)]
    world = World(tmp_path, arrivals)
    await world.turn(0.0)
    await world.turn(5.55, 1)
    assert world.processor.overdue == [0]
    assert world.broker.num_asked == 0  # the record after it tells enough


async def test_a_hold_ends_at_the_end_of_the_log_that_its_seconds_saw(tmp_path: Path) -> None:
    arrivals = [(0.0, WAITS), *[(4.0, OTHER)] * 10, *[(6.0, OTHER)] * 10]
    world = World(tmp_path, arrivals)
    await world.turn(0.0)
    await world.turn(5.0, 9)
    assert world.processor.overdue == []
    await world.turn(0.0, 1)
    assert world.processor.overdue == [0]


async def test_a_broker_whose_clock_is_set_back_ends_holds_by_what_its_log_held(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, [(1.0, WAITS), *[(0.0, OTHER)] * 3])
    world.broker.set_back(by_ms=3_600_000)
    world.clock.advance(timedelta(seconds=10))
    await world.turn(0.0, 1)
    await world.turn(HOLD_SECONDS, 2)
    assert world.processor.overdue == []
    await world.turn(0.0, 1)
    assert world.processor.overdue == [0]


async def test_no_hold_ends_while_the_broker_is_away(tmp_path: Path) -> None:
    world = World(tmp_path, [(0.0, WAITS), (3.0, OPENS)])
    await world.turn(0.0)
    world.broker.is_away = True
    for _ in range(200):
        await world.turn(1.0)
    assert world.processor.overdue == []
    assert world.broker.num_asked <= 200
    world.broker.is_away = False
    await world.turn(1.0)
    assert world.processor.overdue == []


async def test_offsets_without_a_record_do_not_hold_for_ever(tmp_path: Path) -> None:
    world = World(tmp_path, [(0.0, WAITS)])
    world.broker.extra = 1  # the end of somebody's transaction
    await world.turn(0.0)
    await world.turn(HOLD_SECONDS)
    assert world.processor.overdue == []
    await world.turn(QUIET_SECONDS - 1)
    assert world.processor.overdue == []
    await world.turn(1.0)
    assert world.processor.overdue == [0]


async def test_the_broker_is_asked_once_for_a_hold(tmp_path: Path) -> None:
    world = World(tmp_path, [(0.0, WAITS), *[(4.0, OTHER)] * 10])
    await world.turn(0.0)
    for _ in range(9):
        await world.turn(5.0, 1)
    assert world.broker.num_asked == 1


async def test_a_partition_that_is_taken_away_while_the_broker_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path, [(0.0, WAITS)])
    await world.turn(0.0)
    asked = world.broker.ends

    async def ends(positions: Collection[Position]) -> Mapping[Position, int]:
        world.lane.forget(topics.RAW_EVENTS, 0)
        return await asked(positions)

    world.broker.ends = ends  # type: ignore[method-assign]  # the moment at which it happens
    assert await world.turn(5.0) == 0
    assert await world.turn(5.0) == 0
    assert world.processor.overdue == []


seconds = st.floats(0, 8)
readings = st.lists(st.tuples(seconds, st.integers(0, 4), st.booleans()), max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    others=st.lists(st.floats(0, 60), max_size=30),
    waits_at=st.floats(0, 40),
    opens_after=st.floats(-5, HOLD_SECONDS) | st.none(),
    readings=readings,
)
async def test_who_arrives_within_the_hold_is_always_seen_and_who_does_not_is_not_waited_for_long(
    tmp_path_factory: pytest.TempPathFactory,
    others: list[float],
    waits_at: float,
    opens_after: float | None,
    readings: list[tuple[float, int, bool]],
) -> None:
    """However slowly and with whatever outages the partition is read."""
    arrivals = [(at, OTHER) for at in others] + [(waits_at, WAITS)]
    if opens_after is not None:
        arrivals.append((max(0.0, waits_at + opens_after), OPENS))
    world = World(tmp_path_factory.mktemp("holds"), arrivals)
    finished = 0
    for passed, num_read, is_away in readings:
        world.broker.is_away = is_away
        finished += await world.turn(passed, num_read)
    world.broker.is_away = False
    while not world.broker.is_read:
        finished += await world.turn(1.0, 2)
    for _ in range(2):
        finished += await world.turn(HOLD_SECONDS)
    assert finished == len(arrivals)
    assert bool(world.processor.overdue) is (opens_after is None)
