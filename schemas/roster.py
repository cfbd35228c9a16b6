"""Which workers are there, as far as their heartbeats say. Pure.

A worker is gone when its last heartbeat is too old as of the moment up to which the topic is known.
While Kafka is away that moment stands still, and so nobody is taken for gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from schemas.atdp.weights import WorkerHeartbeat
from schemas.rings import STALE_SECONDS

#: A worker that was silent for so long is shown to nobody any more.
FORGOTTEN_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The moment in which a record was read; `is_live` is False for what lay there at the start."""

    at: datetime
    monotonic: float
    is_live: bool


@dataclass(slots=True)
class Roster:
    """The latest heartbeat of each worker, and when it was heard on our own clock."""

    heartbeats: dict[str, WorkerHeartbeat] = field(default_factory=dict)
    _heard_at: dict[str, float] = field(default_factory=dict)

    def take(self, worker_id: str, heartbeat: WorkerHeartbeat | None, reading: Reading) -> None:
        """The worker said that it is there, or with None that it leaves.

        Clocks of two machines differ, so only what was written before we came is judged by the
        time that the worker gave.
        """
        if heartbeat is None:
            self.heartbeats.pop(worker_id, None)
            self._heard_at.pop(worker_id, None)
            return
        age = 0.0 if reading.is_live else (reading.at - heartbeat.heartbeat_at).total_seconds()
        self.heartbeats[worker_id] = heartbeat
        self._heard_at[worker_id] = reading.monotonic - max(age, 0.0)
        self._forget_older_than(reading.monotonic - FORGOTTEN_SECONDS)

    def _forget_older_than(self, moment: float) -> None:
        """Workers that were killed say no farewell, and may come back under other names."""
        for worker_id in [w for w, heard_at in self._heard_at.items() if heard_at < moment]:
            del self.heartbeats[worker_id], self._heard_at[worker_id]

    def age_seconds(self, worker_id: str, as_of: float) -> float:
        """Seconds between a worker's last heartbeat and that moment."""
        return max(0.0, as_of - self._heard_at[worker_id])

    def live(self, policy: str, ring: str, as_of: float) -> Mapping[str, WorkerHeartbeat]:
        """The workers of a ring that are there, by id."""
        return {
            worker_id: beat
            for worker_id, beat in sorted(self.heartbeats.items())
            if beat.policy == policy
            and ring in beat.rings
            and self.age_seconds(worker_id, as_of) <= STALE_SECONDS
        }
