"""Keeps the routes of one ring up to date in the background."""

import threading
from datetime import UTC, datetime

import structlog

from inference.routing.table import TOPICS, Routes, Table
from schemas.bus import Bus
from schemas.bus.following import Following
from schemas.errors import ConfigError, TransientError
from schemas.roster import Reading

_log = structlog.get_logger("routing")

#: A record ends the wait at once.
_POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0


class RouteFollower:
    """A thread. `routes` is replaced as a whole and may be read by any thread."""

    def __init__(self, bus: Bus, policy: str, ring: str) -> None:
        self._bus, self._policy, self._ring = bus, policy, ring
        self.routes = Routes()
        #: True once the topics were read to their end.
        self.is_ready = False
        #: What the last attempt failed for, empty while it gets on. Read by other threads.
        self.waits_for = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="route-follower", daemon=True)

    @property
    def is_alive(self) -> bool:
        """False once the thread has ended, wanted or not."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (TransientError, ConfigError) as error:
                self.waits_for = str(error)
                _log.info("routes_wait_for_kafka", error=str(error))
                self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        """Build a table of its own; the routes before it count until it is whole.

        Whoever is in them gets the time to say again that it is there: while we could not read,
        it may not have been able to write.
        """
        known = self.routes.worker_ids
        following = Following(self._bus, TOPICS)
        table = Table(self._policy, self._ring)
        published_as_of: float | None = None
        try:
            while not self._stopping.is_set():
                is_live = following.is_caught_up
                received = following.poll(_POLL_SECONDS)
                for record in received:
                    heard = is_live or (record.key or b"").decode("utf-8", "replace") in known
                    table.take(record, Reading(datetime.now(UTC), following.clock(), heard))
                if following.as_of is not None and (received or following.as_of != published_as_of):
                    self._publish(table.routes(following.as_of))
                    published_as_of = following.as_of
                self.waits_for = following.waits_for
        finally:
            following.close()

    def _publish(self, routes: Routes) -> None:
        if routes != self.routes:
            self.routes = routes
            _log.info("routes_changed", ring=self._ring, tiers=_shown(routes))
        self.is_ready = True


def _shown(routes: Routes) -> list[dict[str, object]]:
    return [
        {"version": tier[0].version, "workers": [worker.worker_id for worker in tier]}
        for tier in routes.stable
    ]
