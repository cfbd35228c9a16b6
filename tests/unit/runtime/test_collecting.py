"""How often a processor looks for cycles."""

import gc
from collections.abc import Iterator

import pytest

from streams.runtime.shell import COLLECT_AFTER, collect_seldom


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_is_there_at_the_start_is_not_looked_through_again() -> None:
    collect_seldom(COLLECT_AFTER)
    assert gc.get_freeze_count() > 1_000
    collected = gc.get_stats()[0]["collections"]
    made = [[] for _ in range(9_000)]  # type: list[list[None]]
    assert gc.get_stats()[0]["collections"] <= collected + 1, "Python's own threshold gives twelve"
    assert len(made) == 9_000


def test_cycles_are_still_found() -> None:
    collect_seldom(COLLECT_AFTER)
    before = sum(stat["collected"] for stat in gc.get_stats())
    for _ in range(60_000):
        cycle: list[object] = []
        cycle.append(cycle)
    assert sum(stat["collected"] for stat in gc.get_stats()) > before + 40_000
