"""Keeps the routes of one ring up to date in the background."""

from datetime import UTC, datetime

import structlog

from inference.routing.table import TOPICS, Routes, Table
from schemas.bus import Bus
from schemas.bus.follower import Follower
from schemas.bus.following import Following
from schemas.roster import Reading

_log = structlog.get_logger("routing")

#: A record ends the wait at once.
_POLL_SECONDS = 0.25


class RouteFollower(Follower):
    """A thread. `routes` is replaced as a whole and may be read by any thread."""

    def __init__(self, bus: Bus, policy: str, ring: str) -> None:
        super().__init__("route-follower")
        self._bus, self._policy, self._ring = bus, policy, ring
        self.routes = Routes()
        #: True once the topics were read to their end.
        self.is_ready = False

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
            while not self.is_stopping:
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
