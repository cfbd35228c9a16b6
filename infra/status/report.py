"""The state of a deployment at one moment: pure, from samples of offsets and answers of parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from schemas import topics
from schemas.bus import Position
from schemas.bus.lag import Standing

_TEN_YEARS_SECONDS = 10 * 365 * 86_400
#: Names of the parts that others need.
KAFKA, STORE = "kafka", "clickhouse"
#: What each group reads, in the order of the registry.
INPUTS = {
    group: tuple(
        topic.name
        for topic in topics.all_topics()
        if group in topic.readers and topic.cleanup != "compact" and not topic.is_state
    )
    for group in topics.GROUPS
}
#: Groups that are asked after only where they have run.
LEARNING_INPUTS = {topics.BATCHING: (topics.SAMPLES,)}


@dataclass(frozen=True, slots=True)
class Sample:
    """Where every group stood at one moment."""

    at: datetime
    standings: Mapping[str, Mapping[Position, Standing]]


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition as one group reads it.

    `waiting_since`: when the oldest record that waits was produced. `per_second`: records
    committed each second. `until`: when nothing waits any more if both that and what comes in
    stay as they are; None where that is never, or nothing waits, or nobody measured.
    """

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    behind: int
    waiting_since: datetime | None = None
    per_second: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group."""

    group: str
    num_workers: int
    behind: int


@dataclass(frozen=True, slots=True)
class Part:
    """Something that others need, or a process that answers for itself."""

    name: str
    healthy: bool
    why: str = ""
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `waits` says in sentences what waits and why; it is empty where all is well.
    `gaps` tells what retention deleted unread of late; nothing waits for that any more.
    `num_quarantined`: records that redaction set aside and nobody has decided about."""

    parts: tuple[Part, ...] = ()
    groups: tuple[Group, ...] = ()
    lags: tuple[Lag, ...] = ()
    waits: tuple[str, ...] = ()
    replays: tuple[str, ...] = field(default=())
    gaps: tuple[str, ...] = ()
    num_quarantined: int = 0


def quarantine_sentence(num_quarantined: int) -> str:
    """What redaction set aside, and who decides."""
    records = "1 record waits" if num_quarantined == 1 else f"{num_quarantined:,} records wait"
    return f"{records} in quarantine for a decision. `headrace quarantine list` shows why."


def lags_of(
    first: Sample,
    second: Sample | None,
    since: Mapping[str, Mapping[Position, datetime]],
) -> tuple[Lag, ...]:
    """Every partition as of the last sample, with rates where there are two."""
    last = second or first
    found = []
    for group, standings in last.standings.items():
        for position, now in standings.items():
            before = first.standings.get(group, {}).get(position) if second else None
            found.append(_lag(group, position, now, before, last.at, first.at, since))
    return tuple(found)


def _lag(
    group: str,
    position: Position,
    now: Standing,
    before: Standing | None,
    at: datetime,
    first_at: datetime,
    since: Mapping[str, Mapping[Position, datetime]],
) -> Lag:
    seconds = (at - first_at).total_seconds()
    per_second, until = None, None
    if before is not None and seconds > 0 and (before.behind or now.behind):
        per_second = round((now.committed - before.committed) / seconds, 1)
        until = end_of(before.behind, now.behind, seconds, at)
    topic, partition = position
    return Lag(
        group,
        topic,
        partition,
        now.committed,
        now.end,
        now.behind,
        since.get(group, {}).get(position) if now.behind else None,
        per_second,
        until,
    )


def end_of(before: int, now: int, seconds: float, at: datetime) -> datetime | None:
    """When the rest is gone if it goes on shrinking like that; None for one that does not, or
    not within ten years."""
    if now == 0 or now >= before:
        return None
    left_seconds = now * seconds / (before - now)
    return at + timedelta(seconds=left_seconds) if left_seconds < _TEN_YEARS_SECONDS else None


def groups_of(sample: Sample, num_workers: Mapping[str, int]) -> tuple[Group, ...]:
    """The groups in the order in which records pass them."""
    return tuple(
        Group(
            group,
            num_workers.get(group, 0),
            sum(standing.behind for standing in standings.values()),
        )
        for group, standings in sample.standings.items()
    )


def gap_sentence(group: str, topic: str, num_records: int, at: datetime) -> str:
    """What was lost to retention, and where to look."""
    return (
        f"Retention deleted {num_records:,} records of {topic} before {group} read them (last "
        f"found {at:%Y-%m-%d %H:%M:%S} UTC). `headrace reconcile` shows where."
    )


def waits_of(
    parts: Sequence[Part], groups: Sequence[Group], replays: Sequence[str]
) -> tuple[str, ...]:
    """What waits and why, causes before effects."""
    sentences = list(replays)
    for part in parts:
        if part.healthy:
            continue
        if part.name == KAFKA:
            sentences.append(f"{part.why} Every processor waits{_spooled(parts)}.")
        elif part.name == STORE:
            sentences.append(f"{part.why} {_sink_waits(groups)}".rstrip())
        else:
            sentences.append(f"{part.name}: {part.why}")
    sentences += [
        f"{group.group} has no worker while {group.behind:,} records wait for it. "
        f"`headrace up{_option(group.group)}` starts one, and so does `python -m {group.group}`."
        for group in groups
        if group.behind and not group.num_workers
    ]
    return tuple(sentences)


def _option(group: str) -> str:
    return " --with learning" if group in topics.LEARNING_GROUPS else ""


def _spooled(parts: Sequence[Part]) -> str:
    """What the gateway has kept meanwhile, as far as it says so."""
    for part in parts:
        if part.answer is not None and "spool_events_waiting" in part.answer:
            number, size = part.answer["spool_events_waiting"], part.answer["spool_bytes"]
            return f", and the gateway keeps {number:,} events ({size:,} bytes) in its spool"
    return ""


def _sink_waits(groups: Sequence[Group]) -> str:
    behind = sum(group.behind for group in groups if group.group == topics.SINK)
    return f"The sink waits with {behind:,} records." if behind else ""
