"""One record and the table → outputs and changes of the table.

Summaries go out whenever they change. Samples wait until no new fact came for `settle_seconds`
of tick time, so that a trajectory whose last steps are still on their way makes one sample and
not one for every step. Both are compared with what was emitted last, by digest, so that a
known event emits nothing new.

Retention is measured from the later of closing and the last new fact, in tick time, so that a
replay of old events does not forget what it has just read. What is past it becomes a tombstone
for `TOMBSTONE_HOURS`: a reward that comes then is in the rewards table but joins nothing.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas import topics
from schemas.atdp.internal import Sample, Tick, TrajectorySummary
from schemas.atdp.types import Reward, Step, TrajectoryEnd
from schemas.bus import Received, Record
from schemas.clock import to_us
from schemas.codec import decode, encode, to_json
from schemas.errors import PermanentError, Reason
from schemas.ids import trajectory_key
from schemas.settings import AssemblySettings
from schemas.telemetry import Metrics
from streams.assembly.due import DueIndex
from streams.assembly.join import Rules, absorb, conclude, idle_at_us
from streams.assembly.policies import policy_named
from streams.assembly.state import (
    RowKind,
    Trajectory,
    all_keys,
    dump,
    header,
    load,
    pack,
)
from streams.runtime import Effects, ReplayMark, State

#: As long as the steps topic keeps what could start the trajectory anew.
TOMBSTONE_HOURS = topics.topic(topics.STEPS).retention_hours
#: Trajectories that one tick concludes; the rest waits for the next, so that no batch is endless.
MAX_PER_TICK = 2_000

#: Steps and rewards of one trajectory. Each event costs time in proportion to them; an endless
#: trajectory must not hold up its partition. What comes later is in the tables and joins nothing.
MAX_FACTS = 10_000

_HOUR_US = 3_600_000_000
_SECOND_US = 1_000_000
#: No trajectory's key begins with this character.
_WATERMARK_KEY = "\x00watermark/{}"
_EXPECTED: dict[str, type] = {
    topics.STEPS: Step,
    topics.REWARDS: Reward,
    topics.ENDS: TrajectoryEnd,
    topics.TICKS: Tick,
}


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in microseconds."""

    settle_us: int
    retention_us: int
    tombstone_us: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trajectory's state lies, what it was, and what time it is there."""

    key: str
    partition: int
    state: State
    watermark_us: int | None
    stored: Trajectory | None = None


class Assembly:
    """The processor of group `streams.assembly`. Pure but for its index of due times."""

    def __init__(self, settings: AssemblySettings, mark: ReplayMark, metrics: Metrics) -> None:
        self._rules = Rules(
            policy=policy_named(settings.reward_policy),
            idle_us=int(settings.idle_seconds * _SECOND_US),
            epoch=mark.epoch,
            replay_started_us=to_us(mark.started_at) if mark.started_at else None,
        )
        self._times = Times(
            settle_us=int(settings.settle_seconds * _SECOND_US),
            retention_us=int(settings.retention_hours * _HOUR_US),
            tombstone_us=int(TOMBSTONE_HOURS * _HOUR_US),
        )
        self._mark = mark
        self._metrics = metrics
        self._index = DueIndex()

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects:  # noqa: ARG002
        """Nothing is ever held: what waits for another event waits in the table."""
        event = _event_of(record)
        if isinstance(event, Tick):
            return self._tick(record, event, state)
        if not event.trajectory_id:
            # A reward whose step is not known yet, which comes again with it; or a step that asks
            # for no decision, such as a list of models.
            return Effects()
        return self._join(record, event, state)

    # --- events -------------------------------------------------------------------------------

    def _join(self, record: Received, event: Any, state: State) -> Effects:
        key = trajectory_key(event.tenant_id, event.trajectory_id).decode()
        row = state.get(key)
        if row is not None and header(row)[0] is RowKind.TOMBSTONE:
            self._metrics.counter("headrace_events_after_retention").inc()
            return Effects()
        stored = load(key, row, state.get) if row else None
        old = stored or Trajectory(event.tenant_id, event.trajectory_id)
        at = record.partition, record.offset
        new = absorb(old, event, replayed=self._mark.is_replayed(record), at=at)
        if new is stored:
            return Effects()
        if len(new.steps) + len(new.rewards) > MAX_FACTS:
            raise PermanentError(Reason.OVERSIZED, "trajectory_id")
        watermark_us = _watermark(record.partition, state)
        place = Place(key, record.partition, state, watermark_us, stored)
        return self._settle(place, replace(new, touched_us=watermark_us))

    def _tick(self, record: Received, tick: Tick, state: State) -> Effects:
        partition = record.partition
        watermark_us = max(_watermark(partition, state) or 0, to_us(tick.at))
        if not self._index.follows(partition, record.offset):
            self._index.rebuild(partition, record.offset, state.items())
        effects = [
            self._look(Place(key, partition, state, watermark_us), watermark_us)
            for key in self._index.take_due(partition, watermark_us, MAX_PER_TICK)
        ]
        self._metrics.gauge("headrace_open_trajectories").set(len(self._index))
        watermark = (
            _WATERMARK_KEY.format(partition),
            pack(RowKind.WATERMARK, partition, watermark_us),
        )
        return Effects(
            outputs=tuple(output for e in effects for output in e.outputs),
            state=(*(change for e in effects for change in e.state), watermark),
        )

    def _look(self, place: Place, now_us: int) -> Effects:
        """Conclude a trajectory that is due: close it, emit its samples, or forget it."""
        row = place.state.get(place.key)
        if row is None:
            return Effects()
        if header(row)[0] is RowKind.TOMBSTONE:
            return self._bury(place, row, now_us)
        stored = load(place.key, row, place.state.get)
        touched_us = now_us if stored.touched_us is None else stored.touched_us
        return self._settle(replace(place, stored=stored), replace(stored, touched_us=touched_us))

    # --- conclusions --------------------------------------------------------------------------

    def _settle(self, place: Place, trajectory: Trajectory) -> Effects:
        """Emit what changed, and remember the trajectory with the time it is due next."""
        now_us = place.watermark_us
        conclusion = conclude(trajectory, now_us, self._rules)
        expires_us = self._expires_us(trajectory, conclusion.summary)
        if now_us is not None and expires_us <= now_us:
            return self._expire(place, trajectory, now_us)
        outputs: list[TrajectorySummary | Sample] = []
        digest = _digest(conclusion.summary)
        if digest != trajectory.summary_digest:
            outputs.append(conclusion.summary)
            trajectory = replace(trajectory, summary_digest=digest)
        due_us = [expires_us, *self._idles_us(trajectory, conclusion.summary)]
        digests = tuple(_digest(sample) for sample in conclusion.samples)
        if digests and digests != trajectory.sample_digests:
            settles_us = (trajectory.touched_us or 0) + self._times.settle_us
            if now_us is not None and settles_us <= now_us:
                said = trajectory.sample_digests
                pairs = zip(conclusion.samples, digests, strict=True)
                outputs += [sample for sample, digest in pairs if digest not in said]
                trajectory = replace(trajectory, sample_digests=digests)
            else:
                due_us.append(settles_us)
        return self._effects(place, trajectory, outputs, min(due_us))

    def _expires_us(self, trajectory: Trajectory, summary: TrajectorySummary) -> int:
        """When the state may go. Due at once where no tick has told the time yet."""
        if trajectory.touched_us is None:
            return 0
        closed_us = to_us(summary.closed_at) if summary.closed_at else 0
        return max(trajectory.touched_us, closed_us) + self._times.retention_us

    def _idles_us(self, trajectory: Trajectory, summary: TrajectorySummary) -> Iterator[int]:
        """When idleness may close the trajectory, or close it earlier than it is closed now."""
        idle_us = idle_at_us(trajectory, self._rules.idle_us)
        if idle_us is not None and (
            summary.closed_at is None or idle_us < to_us(summary.closed_at)
        ):
            yield idle_us

    def _effects(
        self,
        place: Place,
        trajectory: Trajectory,
        outputs: Sequence[TrajectorySummary | Sample],
        due_us: int,
    ) -> Effects:
        key = place.key
        self._index.put(place.partition, key, due_us)
        rows = dump(key, trajectory, place.partition, due_us, place.stored)
        return Effects(
            outputs=tuple(Record(_TOPICS[type(o)], key.encode(), encode(o)) for o in outputs),
            state=tuple((name, row) for name, row in rows if place.state.get(name) != row),
        )

    # --- forgetting ---------------------------------------------------------------------------

    def _expire(self, place: Place, trajectory: Trajectory, now_us: int) -> Effects:
        """Leave a tombstone. It is written first, so that no head is left without its rows."""
        due_us = now_us + self._times.tombstone_us
        self._index.put(place.partition, place.key, due_us)
        others = [(name, None) for name in all_keys(place.key, trajectory) if name != place.key]
        tombstone = pack(RowKind.TOMBSTONE, place.partition, due_us)
        return Effects(state=((place.key, tombstone), *others))

    def _bury(self, place: Place, row: bytes, now_us: int) -> Effects:
        due_us = header(row)[2]
        if due_us > now_us:
            self._index.put(place.partition, place.key, due_us)
            return Effects()
        self._index.forget(place.partition, place.key)
        return Effects(state=((place.key, None),))


def _event_of(record: Received) -> Any:
    event = decode(record.value)
    if not isinstance(event, _EXPECTED[record.topic]):
        raise PermanentError(Reason.UNEXPECTED_EVENT)
    return event


_TOPICS: dict[type, str] = {TrajectorySummary: topics.SUMMARIES, Sample: topics.SAMPLES}


def _digest(event: TrajectorySummary | Sample) -> str:
    """Of what an event says, leaving aside which processing says it and where steps lie."""
    said: TrajectorySummary | Sample
    if isinstance(event, Sample):
        said = replace(event, replay_epoch=0, replayed=False, step_refs=(), signal_refs=())
    else:
        said = replace(event, replay_epoch=0)
    return hashlib.sha256(to_json(said)).hexdigest()[:16]


def _watermark(partition: int, state: State) -> int | None:
    row = state.get(_WATERMARK_KEY.format(partition))
    return None if row is None else header(row)[2]
