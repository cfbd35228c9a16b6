"""How long after the client's last byte a call can be SELECTed over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from infra.store import Reader
from schemas.errors import TransientError

_POLL_SECONDS = 0.25
_MAX_IDS = 1000
_VISIBLE_SQL = "SELECT DISTINCT response_id FROM steps WHERE response_id IN {ids:Array(String)}"


class Finished(Protocol):
    """A call that was answered."""

    @property
    def response_id(self) -> str: ...

    @property
    def finished_at(self) -> float:
        """Seconds since 1970."""


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1)]


class VisibilityPoller:
    """A thread that asks the store, again and again, for calls that are not visible yet."""

    def __init__(
        self,
        open_reader: Callable[[], AbstractContextManager[Reader]],
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._open_reader = open_reader
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._waiting: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visibility", daemon=True)
        self.seconds: list[float] = []

    def expect(self, call: Finished) -> None:
        """Watch for this call from now on."""
        with self._lock:
            self._waiting[call.response_id] = call.finished_at

    @property
    def num_waiting(self) -> int:
        """Calls that no SELECT has shown yet."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; calls that were not seen stay out of `seconds`."""
        self._stopping.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        with self._open_reader() as reader:
            while not self._stopping.wait(self._poll_seconds):
                try:
                    self._ask(reader)
                except TransientError:
                    continue  # the store is busy: that is part of what is measured

    def _ask(self, reader: Reader) -> None:
        with self._lock:
            ids = list(self._waiting)[:_MAX_IDS]
        if not ids:
            return
        rows = reader.rows(_VISIBLE_SQL, {"ids": ids})
        now = time.time()
        with self._lock:
            for row in rows:
                finished_at = self._waiting.pop(str(row["response_id"]), None)
                if finished_at is not None:
                    self.seconds.append(max(0.0, now - finished_at))
