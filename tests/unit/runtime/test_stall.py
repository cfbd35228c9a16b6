"""A stall is idleness with work waiting, and nothing else; lag counts owned partitions only."""

from schemas import topics
from schemas.bus import Record
from streams.runtime.watch import Stall, lag
from tests.unit.runtime_harness import memory_bus


def looks(stall: Stall, *seen: tuple[int, bool, float]) -> list[bool]:
    return [
        stall.is_over(progress=(taken, 0), has_work=work, now_seconds=now)
        for taken, work, now in seen
    ]


def test_idleness_with_work_waiting_is_told() -> None:
    seen = looks(Stall(15.0), (7, True, 0), (7, True, 10), (7, True, 15), (7, True, 16))
    assert seen == [False, False, False, True]


def test_progress_and_rest_start_the_clock_again() -> None:
    assert not any(looks(Stall(15.0), (7, True, 0), (8, True, 14), (8, True, 28), (8, False, 29)))
    assert not any(looks(Stall(15.0), (7, False, 0), (7, False, 100), (7, True, 101)))


def test_reading_a_changelog_is_progress() -> None:
    stall = Stall(15.0)
    for left, now in ((900, 0.0), (500, 14.0), (100, 28.0)):
        assert not stall.is_over(progress=(0, left), has_work=True, now_seconds=now)
    assert stall.is_over(progress=(0, 100), has_work=True, now_seconds=44.0)


def test_lag_is_what_is_not_committed_on_owned_partitions() -> None:
    bus = memory_bus(num_partitions=2)
    for partition in (0, 0, 0, 1):
        record = Record(topics.RAW_EVENTS, None, b"x", partition=partition)
        bus.producer("test").send(record, lambda _delivery: None)
    bus.admin().commit("g", {(topics.RAW_EVENTS, 0): 1})
    owned = {(topics.RAW_EVENTS, 0)}
    assert lag(bus.admin(), "g", [topics.RAW_EVENTS], owned) == 2
    assert lag(bus.admin(), "g", [topics.RAW_EVENTS], owned | {(topics.RAW_EVENTS, 1)}) == 3
