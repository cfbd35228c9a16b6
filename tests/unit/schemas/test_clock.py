"""Clocks: what happens when the machine's is set."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from schemas.clock import ForwardClock, ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_set_back_time_goes_on_evenly_and_joins_the_clock_when_that_has_caught_up() -> None:
    machine = ManualClock(START)
    clock = ForwardClock(machine)
    machine.set_back(timedelta(hours=1))
    machine.advance(SECOND)
    assert clock.now() == START + SECOND
    machine.set_back(timedelta(hours=-2))  # corrected the other way
    assert clock.now() == machine.now() == START + timedelta(hours=1) + SECOND


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(-100, 100)), max_size=20))
def test_time_never_stands_still_for_longer_than_it_does(steps: list[tuple[int, int]]) -> None:
    machine = ManualClock(START)
    clock = ForwardClock(machine)
    for passed, set_back in steps:
        before = clock.now()
        machine.set_back(set_back * SECOND)
        machine.advance(passed * SECOND)
        assert clock.now() >= before + passed * SECOND
        assert clock.now() >= machine.now()
