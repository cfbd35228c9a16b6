"""Which tests of `make test` run one after the other, in one of its two processes.

A file's tests stay together, and so do those of the folders and files that are listed here: they
share a stack or an engine, or start stacks and engines that would take each other's processor. The
long groups come first, so that both processes end at about the same time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

#: Group → what the paths of its files start with.
GROUPS = {
    "stacks": ("tests/e2e/", "tests/integration/replay/", "tests/integration/demo/"),
    "engines": (
        "tests/integration/worker/",
        "tests/integration/trainer/",
        "tests/integration/gateway/test_real_engine.py",
        "tests/integration/gateway/test_engine_dialects.py",
        "tests/integration/gateway/test_clients_of_the_engine.py",
    ),
    "secured": ("tests/integration/secured/",),
}


def group_of(nodeid: str) -> str:
    """The group of a test, else its file."""
    for group, beginnings in GROUPS.items():
        if nodeid.startswith(beginnings):
            return group
    return nodeid.partition("::")[0]


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The listed groups first, then what needs servers, then the rest; else as collected."""
    ranks = list(GROUPS)

    def rank(item: pytest.Item) -> int:
        group = group_of(item.nodeid)
        if group in GROUPS:
            return ranks.index(group)
        return len(ranks) + (not item.nodeid.startswith("tests/integration/"))

    return sorted(items, key=rank)


class GroupScheduling(LoadScopeScheduling):
    """Gives each process one group after the other, in the order of collection."""

    def __init__(self, config: pytest.Config, log: "Producer | None" = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
