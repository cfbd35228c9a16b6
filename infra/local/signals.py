"""Signals that end the work of this process: once, for the length of a block."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_once(numbers: Sequence[signal.Signals], end: Callable[[int], object]) -> Iterator[None]:
    """The first of these signals calls `end`, which raises. For the main thread.

    Further ones do nothing: they must not break off the ending. kill and `timeout` send several,
    and people press Ctrl-C twice. After the block signals do what they did before it.
    """

    def first(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        end(number)

    before = {number: signal.signal(number, first) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            # None stands for a handler that was not set from Python; nobody can set that again.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """SIGTERM leaves the block by SystemExit, so that what was started in it is taken along."""
    with ended_once([signal.SIGTERM], lambda number: sys.exit(128 + number)):
        yield
