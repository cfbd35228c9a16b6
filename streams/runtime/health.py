"""The health of one process as others see it: its answer to /health, and its gauges of lag.

A thread of its own looks at the broker every few seconds, because the event loop may be what
stands still. It changes nothing: a process that stands still is reported, not restarted, since
most standstills (the store is away, the broker is away) end by themselves.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

import structlog

from schemas.bus import Bus, Position
from schemas.bus.api import Admin
from schemas.bus.lag import Standing, standings, waiting_since
from schemas.errors import HeadraceError
from schemas.telemetry import Metrics
from streams.runtime.progress import Progress, Standstill

log = structlog.get_logger()

LOOK_SECONDS = 5.0
_PROBE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Health:
    """What /health says. `why` is a sentence for a person, empty where all is well."""

    group: str
    healthy: bool
    why: str
    behind: int = 0
    still_seconds: float = 0.0
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_plain(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


class HealthWatch(threading.Thread):
    """Looks, judges, keeps the last judgement."""

    def __init__(
        self,
        *,
        group: str,
        bus: Bus,
        inputs: Collection[str],
        assigned: Callable[[], Collection[Position]],
        is_ready: Callable[[], bool],
        waits_for: Callable[[], str],
        metrics: Metrics,
        stalled_after_seconds: float,
    ) -> None:
        """`assigned` names this process's partitions now; `is_ready` says whether it has its
        state and works; `waits_for` says in words what its lanes wait for, empty where they wait
        for nothing. They run on this thread."""
        super().__init__(name=f"health-{group}", daemon=True)
        self._group = group
        self._bus = bus
        self.inputs = tuple(inputs)
        self._assigned = assigned
        self._is_ready = is_ready
        self._waits_for = waits_for
        self._metrics = metrics
        self._limit_seconds = stalled_after_seconds
        self._progress = Progress()
        self._away_since: float | None = None
        self._shown: set[Position] = set()
        #: Late partitions, and from which offset on a record was seen to wait: it does for as long
        #: as nothing is committed, so it is read once.
        self._waiting: dict[Position, int] = {}
        self._wanted = threading.Event()
        self._looked = threading.Event()
        self.health = Health(group, healthy=False, why="It has just started.")

    def run(self) -> None:
        """Look for as long as the process lives."""
        admin = self._bus.admin()
        while True:
            self._wanted.wait(LOOK_SECONDS)
            self._wanted.clear()
            self.look(admin, time.monotonic())
            if not self._wanted.is_set():  # else somebody wants a look that began later
                self._looked.set()

    def current(self) -> Health:
        """The last judgement, as long as somebody judges."""
        if self.is_alive():
            return self.health
        return replace(self.health, healthy=False, why="Its watch has ended; its log says why.")

    def refresh(self, max_seconds: float) -> None:
        """Look now; returns when that is done, or after `max_seconds`."""
        self._looked.clear()
        self._wanted.set()
        self._looked.wait(max_seconds)

    def look(self, admin: Admin, now: float) -> None:
        """One look, at `now` on a monotonic clock."""
        before = self.health
        try:
            assigned = set(self._assigned())
            found = standings(admin, self._group, self.inputs)
            self._away_since = None
            self._progress.look({p: s for p, s in found.items() if p in assigned}, now)
            self.health = self._judge(self._overdue())
        except HeadraceError as error:
            self._away_since = now if self._away_since is None else self._away_since
            self.health = self._away(str(error), now - self._away_since)
        self._show()
        if self.health.healthy != before.healthy:
            log.info("health", healthy=self.health.healthy, why=self.health.why)

    def _overdue(self) -> list[Standstill]:
        """Partitions that stand still for too long although a record can be read from them."""
        late = [s for s in self._progress.standstills() if s.seconds > self._limit_seconds]
        if not late:
            self._waiting = {}
            return []
        found = {still.position: self._progress.standings[still.position] for still in late}
        asked = {p: s for p, s in found.items() if self._waiting.get(p) != s.committed}
        waiting = waiting_since(self._bus, asked, max_seconds=_PROBE_SECONDS)
        for position in asked.keys() - waiting.keys():
            self._progress.nothing_waits(position)
        found = {p: s for p, s in found.items() if p in waiting or p not in asked}
        self._waiting = {position: standing.committed for position, standing in found.items()}
        return [still for still in late if still.position in found]

    def _judge(self, overdue: list[Standstill]) -> Health:
        why = ""
        if not self._is_ready():
            why = "It does not work yet: it joins its group and reads its state from the changelog."
        elif overdue:
            why = self._standstill(overdue[0])
        stills = self._progress.standstills()
        return Health(
            self._group,
            healthy=not why,
            why=why,
            behind=self._progress.behind,
            still_seconds=round(stills[0].seconds, 1) if stills else 0.0,
            partitions=_by_topic(self._progress.standings),
        )

    def _standstill(self, still: Standstill) -> str:
        topic, partition = still.position
        waits_for = self._waits_for().rstrip(".") or "the log of this process says what it does"
        return (
            f"{still.behind} records wait on {topic}, partition {partition}, and nothing was "
            f"committed for {still.seconds:.0f} s: {waits_for}."
        )

    def _away(self, why: str, seconds: float) -> Health:
        sentence = f"Kafka does not answer for {seconds:.0f} s ({why})."
        return Health(
            self._group,
            healthy=seconds <= self._limit_seconds,
            why=sentence,
            behind=self._progress.behind,
            partitions=_by_topic(self._progress.standings),
        )

    def _show(self) -> None:
        for topic, partition in self._shown - self._progress.standings.keys():
            # Another worker shows it now.
            self._lag(topic, partition, 0)
        for (topic, partition), standing in self._progress.standings.items():
            self._lag(topic, partition, standing.behind)
        self._shown = set(self._progress.standings)
        self._metrics.gauge("headrace_commit_age_seconds", group=self._group).set(
            self.health.still_seconds
        )
        self._metrics.gauge("headrace_healthy").set(self.health.healthy)

    def _lag(self, topic: str, partition: int, behind: int) -> None:
        self._metrics.gauge(
            "headrace_lag_records", group=self._group, topic=topic, partition=str(partition)
        ).set(behind)


def _by_topic(found: Mapping[Position, Standing]) -> dict[str, dict[str, int]]:
    grouped: dict[str, dict[str, int]] = {}
    for (topic, partition), standing in sorted(found.items()):
        grouped.setdefault(topic, {})[str(partition)] = standing.behind
    return grouped
