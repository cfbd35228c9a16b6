"""Which tests stay together in one process where two run them: `pytest -n 2`.

A file's tests do, and so do those of the folders and files that are listed here: they share a stack
or an engine, or start stacks and engines that would take each other's memory. The long groups come
first, so that both processes end at about the same time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

#: Group → what the paths of its files start with, in the order in which they run. Those with
#: engines of their own come before the session's engine is there.
GROUPS = {
    "stacks": ("tests/e2e/", "tests/integration/replay/"),
    "engines": (
        "tests/integration/worker/test_two_workers.py",
        "tests/integration/demo/test_weights.py",
        "tests/integration/trainer/",
        "tests/integration/worker/",
        "tests/integration/gateway/test_clients_of_the_engine.py",
        "tests/integration/gateway/test_engine_dialects.py",
        "tests/integration/gateway/test_real_engine.py",
    ),
    "secured": ("tests/integration/secured/",),
}
_BEGINNINGS = [(group, beginning) for group, known in GROUPS.items() for beginning in known]


def _place(nodeid: str) -> int:
    """Which of the listed paths a test is of; their number for one of none."""
    starts = (i for i, (_, beginning) in enumerate(_BEGINNINGS) if nodeid.startswith(beginning))
    return next(starts, len(_BEGINNINGS))


def group_of(nodeid: str) -> str:
    """The group of a test, else its file."""
    place = _place(nodeid)
    return _BEGINNINGS[place][0] if place < len(_BEGINNINGS) else nodeid.partition("::")[0]


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The listed ones first, then what needs servers, then the rest; else as collected."""

    def rank(item: pytest.Item) -> tuple[int, bool]:
        return _place(item.nodeid), not item.nodeid.startswith("tests/integration/")

    return sorted(items, key=rank)


class GroupScheduling(LoadScopeScheduling):
    """Gives each process one group after the other, in the order of collection."""

    def __init__(self, config: pytest.Config, log: "Producer | None" = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
