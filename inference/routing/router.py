"""Chooses workers for calls, and remembers for a moment who did not answer."""

import asyncio
import time
from collections.abc import Collection

from inference.routing.follow import RouteFollower
from inference.routing.table import Worker
from schemas.telemetry import Metrics

#: How long a call waits for a worker while none may get it. A worker that moves to another version
#: is between the two for a few milliseconds.
HOLD_SECONDS = 2.0
#: How long a worker that did not answer comes last.
AVOID_SECONDS = 5.0
_POLL_SECONDS = 0.02


class NoWorkerError(ConnectionError):
    """No worker of the ring may get a call, or none of them answers."""


class Router:
    """Belongs to the event loop. `key` is a secret, so that nobody can compute who gets a trial."""

    def __init__(self, follower: RouteFollower, key: bytes, metrics: Metrics) -> None:
        self.follower = follower
        self._key = key
        self._unanswered = metrics.counter("headrace_gateway_unanswered")
        self._failed_at: dict[str, float] = {}

    async def workers(
        self, call: bytes, tried: Collection[str] = (), until: float | None = None
    ) -> list[Worker]:
        """The workers for a call that it has not tried yet, the best first.

        Waits for one until then, on `time.monotonic`; NoWorkerError when none came.
        """
        until = time.monotonic() + HOLD_SECONDS if until is None else until
        while not (found := self._untried(call, tried)):
            if time.monotonic() > until:
                raise NoWorkerError
            await asyncio.sleep(_POLL_SECONDS)
        avoided = time.monotonic() - AVOID_SECONDS
        return sorted(found, key=lambda w: self._failed_at.get(w.worker_id, 0.0) > avoided)

    def _untried(self, call: bytes, tried: Collection[str]) -> list[Worker]:
        found = self.follower.routes.candidates(self._key, call)
        return [worker for worker in found if worker.worker_id not in tried]

    def failed(self, worker: Worker) -> None:
        """A worker did not answer."""
        self._unanswered.inc()
        now = time.monotonic()
        # Ids of workers may be new at each start, so old ones are dropped.
        self._failed_at = {w: at for w, at in self._failed_at.items() if at > now - AVOID_SECONDS}
        self._failed_at[worker.worker_id] = now
