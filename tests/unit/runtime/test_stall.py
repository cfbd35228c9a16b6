"""A stall is told by what does not shrink, and by nothing else."""

from streams.runtime.shell import Stall


def test_what_stands_still_for_too_long_is_told() -> None:
    stall = Stall(20.0)
    assert [stall.is_over(7, float(now)) for now in (0, 10, 20, 21)] == [False, False, False, True]


def test_progress_and_pauses_start_the_clock_again() -> None:
    stall = Stall(20.0)
    steps: list[tuple[int | None, float]] = [(7, 0), (6, 15), (6, 30), (None, 34), (6, 36), (6, 55)]
    assert not any(stall.is_over(left, now) for left, now in steps)
    assert stall.is_over(6, 57.0)
