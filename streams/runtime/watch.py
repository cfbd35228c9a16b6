"""Liveness is progress: a worker that takes nothing in although there is something begins anew.

A consumer has been seen to stand still after a crash or a rebalance: partitions assigned, flow
resumed, offsets behind, and no record fetched for as long as one waited. Nothing is acknowledged
then, so a new process reads everything again and loses nothing. The watch is a thread of its own,
because the event loop may be what stands still.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence

import structlog

from schemas.bus.api import Admin, Position
from schemas.errors import HeadraceError
from streams.runtime.pump import Pump

log = structlog.get_logger()

CHECK_SECONDS = 2.0
MAX_IDLE_SECONDS = 12.0


class Stall:
    """Tells when somebody was idle, with work waiting, for too long."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._progress: tuple[int, int] | None = None
        self._since: float | None = None

    def is_over(self, *, progress: tuple[int, int], has_work: bool, now_seconds: float) -> bool:
        """`progress` differs after anything was done; `has_work` says that more is waiting."""
        if progress != self._progress or not has_work or self._since is None:
            self._progress, self._since = progress, now_seconds
            return False
        return now_seconds - self._since > self._max_seconds


def lag(admin: Admin, group: str, topics: Sequence[str], positions: Collection[Position]) -> int:
    """Records of these partitions that the group has not committed yet."""
    committed = admin.committed(group, topics)
    return sum(
        max(0, end - committed.get((topic, partition), first))
        for topic in topics
        for partition, (first, end) in admin.watermarks(topic).items()
        if (topic, partition) in positions
    )


class Watch(threading.Thread):
    """Watches the pumps of one process. `assigned` names the partitions that it owns now,
    `recovering` counts the records of changelogs that it still has to read: reading a long
    changelog is progress, too."""

    def __init__(
        self,
        group: str,
        admin: Admin,
        pumps: Sequence[tuple[Pump, Sequence[str]]],
        assigned: Callable[[], Collection[Position]],
        recovering: Callable[[], int],
        begin_anew: Callable[[], None],
    ) -> None:
        super().__init__(name=f"watch-{group}", daemon=True)
        self._group = group
        self._admin = admin
        self._pumps = pumps
        self._assigned = assigned
        self._recovering = recovering
        self._begin_anew = begin_anew
        self._stalls = [Stall(MAX_IDLE_SECONDS) for _ in pumps]

    def run(self) -> None:
        """Look every few seconds for as long as the process lives."""
        pause = threading.Event()
        while not pause.wait(CHECK_SECONDS):
            for stall, (pump, inputs) in zip(self._stalls, self._pumps, strict=True):
                if self._stands_still(stall, pump, inputs):
                    log.error("consumer_stands_still", group=self._group)
                    sys.stderr.flush()
                    self._begin_anew()

    def _stands_still(self, stall: Stall, pump: Pump, inputs: Sequence[str]) -> bool:
        positions = set(self._assigned())
        try:
            waiting = not pump.is_busy and lag(self._admin, self._group, inputs, positions) > 0
        except HeadraceError:
            waiting = False  # the broker is away; that is no fault of this process
        return stall.is_over(
            progress=(pump.num_taken, self._recovering()),
            has_work=waiting,
            now_seconds=time.monotonic(),
        )


def begin_anew() -> None:
    """Replace this process by a new one of the same program. Does not return."""
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this very program again
