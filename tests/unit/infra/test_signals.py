"""A signal ends a block once, and means afterwards what it meant before."""

import signal
from collections.abc import Iterator

import pytest

from infra.local.signals import ended_once, leaving_on_sigterm


@pytest.fixture
def taken_before() -> Iterator[list[int]]:
    """What a handler from before the block got."""
    taken: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: taken.append(number))
    yield taken
    signal.signal(signal.SIGTERM, before)


def test_the_first_signal_leaves_the_block_and_a_second_does_not_break_off_the_ending(
    taken_before: list[int],
) -> None:
    ended = False

    def work() -> None:
        nonlocal ended
        with leaving_on_sigterm():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                ended = True

    with pytest.raises(SystemExit) as left:
        work()
    assert left.value.code == 128 + signal.SIGTERM
    assert ended
    assert taken_before == []


def test_after_the_block_the_handler_from_before_is_back(taken_before: list[int]) -> None:
    ends: list[int] = []
    with ended_once([signal.SIGTERM], ends.append):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert ends == taken_before == [signal.SIGTERM]
