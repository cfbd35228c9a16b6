"""Short ways to make the events that assembly joins, and a table and a log to run it on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas import topics
from schemas.atdp.internal import Sample, Tick, TrajectorySummary
from schemas.atdp.types import (
    Governance,
    Lineage,
    ModelVersion,
    Outcome,
    Reward,
    RewardKind,
    Step,
    TrajectoryEnd,
)
from schemas.bus import Received
from schemas.codec import decode, encode
from schemas.ids import trajectory_key
from schemas.settings import AssemblySettings
from schemas.telemetry import Metrics
from streams.assembly.processor import Assembly
from streams.runtime import ReplayMark

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TENANT = "acme"
TRAJECTORY = "t-1"
Event = Step | Reward | TrajectoryEnd | Tick

_TOPICS: dict[type, str] = {
    Step: topics.STEPS,
    Reward: topics.REWARDS,
    TrajectoryEnd: topics.ENDS,
    Tick: topics.TICKS,
}


def at(seconds: float) -> datetime:
    """So long after the start."""
    return START + timedelta(seconds=seconds)


def step(index: int, **changes: Any) -> Step:
    """The step at that place of a straight trajectory, one every ten seconds."""
    parent = changes.pop("parent", f"s-{index - 1}" if index else None)
    attempt_of = changes.pop("attempt_of", None)
    made = Step(
        step_id=changes.pop("step_id", f"s-{index}"),
        event_id=f"e-{index}",
        tenant_id=TENANT,
        trajectory_id=TRAJECTORY,
        started_at=at(10 * index),
        ended_at=at(10 * index + 2),
        lineage=Lineage(step_index=index, parent_step_id=parent, attempt_of=attempt_of),
        governance=Governance(training_eligible=changes.pop("eligible", True)),
        model_version=ModelVersion(policy_version=changes.pop("policy_version", None)),
        outcome=changes.pop("outcome", Outcome.COMPLETE),
    )
    return replace(made, **changes)


def reward(number: int = 1, value: float | bool | None = 1.0, **changes: Any) -> Reward:
    """A reward of the whole trajectory, judged a hundred seconds after its start."""
    revision = changes.get("revision", 1)
    made = Reward(
        reward_id=f"r-{number}",
        tenant_id=TENANT,
        trajectory_id=TRAJECTORY,
        name="resolved",
        kind=RewardKind.SCALAR,
        value=value,
        occurred_at=at(100 + number),
        received_at=at(101 + number),
        digest=f"{number}/{revision}/{value}",
    )
    return replace(made, **changes)


def end(seconds: float) -> TrajectoryEnd:
    """An explicit end."""
    return TrajectoryEnd(
        event_id=f"end-{seconds}",
        tenant_id=TENANT,
        trajectory_id=TRAJECTORY,
        occurred_at=at(seconds),
    )


def tick(seconds: float) -> Tick:
    """Time has come that far."""
    return Tick(partition=0, at=at(seconds))


@dataclass
class Run:
    """One partition: topics as counters, the table as a dictionary, outputs as lists."""

    settings: AssemblySettings = field(
        default_factory=lambda: AssemblySettings(idle_seconds=60, settle_seconds=0)
    )
    mark: ReplayMark = field(default_factory=ReplayMark)
    table: dict[str, bytes] = field(default_factory=dict)
    summaries: list[TrajectorySummary] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    log: dict[str, list[Event]] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process: only the table is left."""
        self.processor = Assembly(self.settings, self.mark, Metrics())

    def see(self, *events: Event) -> "Run":
        """Handle events in this order, each durable before the next."""
        for event in events:
            self.apply(self.processor.handle(self.record(event), self.table, overdue=False))
        return self

    def record(self, event: Event) -> Received:
        """The event at the next offset of its topic."""
        topic = _TOPICS[type(event)]
        offset = len(self.log.setdefault(topic, []))
        self.log[topic].append(event)
        key = b"0" if isinstance(event, Tick) else trajectory_key(TENANT, event.trajectory_id)
        return Received(topic, 0, offset, key, encode(event))

    def apply(self, effects: Any) -> None:
        """What the lane does: deliver, then write the table."""
        for output in effects.outputs:
            event = decode(output.value)
            (self.samples if isinstance(event, Sample) else self.summaries).append(event)
        for key, value in effects.state:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    @property
    def final(self) -> tuple[TrajectorySummary | None, Sample | None]:
        """The newest summary and the newest sample of a reward."""
        rated = [sample for sample in self.samples if sample.signal is None]
        return _last(self.summaries), _last(rated)


def _last(events: Sequence[Any]) -> Any:
    return events[-1] if events else None


def shuffled(events: Iterable[Event], order: Sequence[int]) -> list[Event]:
    """Events sorted by the numbers drawn for them."""
    return [event for _, event in sorted(zip(order, events, strict=False), key=lambda p: p[0])]
