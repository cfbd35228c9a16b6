"""What a replay will do, decided before anything is touched. Pure.

    all of it     redaction ─▶ assembly ─▶ sink      from the beginning: state wiped, tables wiped
    assembly      steps, rewards, ends               joins again; what it emits replaces its rows
    sink          clean topics                       writes the same rows again

A group that feeds another one in the same replay sends everything anew, so the other one starts
where the old outputs end. From a time or an offset nothing is wiped: what was decided for a known
event is decided the same again, and state older than the start stays whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas import topics
from schemas.atdp.internal import Replay
from schemas.bus import Position
from schemas.errors import ConfigError
from schemas.log_gaps import LogGap, Why
from schemas.topics import ASSEMBLY, GROUPS, REDACTION, SINK

#: What each group reads, and of that what another processor writes.
INPUTS: Mapping[str, tuple[str, ...]] = {
    group: tuple(t.name for t in topics.all_topics() if group in t.readers and t.name not in (
        topics.REPLAYS, *(topics.changelog_topic(group, table) for table in topics.TABLES[group])))
    for group in GROUPS
}  # fmt: skip
#: Topics that only a replayed group itself can fill again.
FED_BY: Mapping[str, str] = {
    topics.RAW_ALIASES: REDACTION,
    topics.RAW_UNRESOLVED: REDACTION,
    topics.STEPS: REDACTION,
    topics.REWARDS: REDACTION,
    topics.ENDS: REDACTION,
    topics.QUARANTINE: REDACTION,
    topics.SUMMARIES: ASSEMBLY,
    topics.SAMPLES: ASSEMBLY,
}
#: Tables whose every row comes again when all three groups start anew.
WIPED_TABLES = ("steps", "rewards", "trajectories", "samples")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: everywhere from the first record kept, at a time, or at given offsets."""

    at: datetime | None = None
    offsets: Mapping[Position, int] = field(default_factory=dict)

    @property
    def is_beginning(self) -> bool:
        """Everything that the log still holds."""
        return self.at is None and not self.offsets


@dataclass(frozen=True, slots=True)
class Log:
    """What the broker knows before the replay."""

    watermarks: Mapping[str, Mapping[int, tuple[int, int]]]
    offsets_at: Mapping[str, Mapping[int, int]]
    committed: Mapping[str, Mapping[Position, int]]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group: the offsets it starts from, and the changelogs to delete first."""

    group: str
    offsets: Mapping[Position, int]
    changelogs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole replay, upstream first. `num_records` is what the first group will read, `gone`
    what was asked for and retention has deleted."""

    groups: tuple[GroupPlan, ...]
    tables: tuple[str, ...]
    num_records: int
    gone: tuple[LogGap, ...] = ()


def make_plan(groups: Sequence[str], start: Start, log: Log, *, keep_tables: bool) -> Plan:
    """Decide. ConfigError says why a replay would be unsafe, and what to do instead."""
    chosen = tuple(group for group in GROUPS if group in groups)
    _refuse_half_a_cascade(chosen, start)
    _refuse_unknown_partitions(start, log)
    whole = chosen == GROUPS and start.is_beginning
    if whole and not keep_tables:
        _refuse_lost_rows(log)
    if start.is_beginning and ASSEMBLY in chosen and REDACTION not in chosen:
        _refuse_half_a_join(log)
    if whole and keep_tables and _is_cut(log):
        # State and clean records older than the cut cannot be made again, so they stay.
        kept = log.watermarks[topics.RAW_EVENTS]
        start = Start(offsets={(topics.RAW_EVENTS, p): first for p, (first, _) in kept.items()})
    plans = tuple(_group_plan(group, chosen, start, log) for group in chosen)
    return Plan(
        groups=plans,
        tables=WIPED_TABLES if whole and not keep_tables else (),
        num_records=sum(
            log.watermarks[topic][partition][1] - offset
            for (topic, partition), offset in plans[0].offsets.items()
        ),
        gone=tuple(gap for group in chosen for gap in _gone(group, chosen, start, log)),
    )


def handled_before(
    committed: Mapping[Position, int], group: str, earlier: Sequence[Replay]
) -> dict[Position, int]:
    """Offsets below which an earlier processing of the group handled every record.

    A replay that was cut short leaves the group at the offsets it was reset to; how far the one
    before had come is in the order of that replay.
    """
    handled = dict(committed)
    for replay in earlier:
        if replay.group == group:
            for before in replay.committed_before:
                position = (before.topic, before.partition)
                handled[position] = max(handled.get(position, 0), before.offset)
    return handled


def _refuse_half_a_cascade(chosen: tuple[str, ...], start: Start) -> None:
    if REDACTION in chosen and start.is_beginning and chosen != GROUPS:
        raise ConfigError(
            "Redaction from the beginning settles again which call extends which, so assembly and "
            "sink must start anew with it: run `headrace replay` without a group, or give "
            "--from-time or --from-offset to process only a part again."
        )
    for topic, partition in start.offsets:
        if not any(topic in INPUTS[group] for group in chosen):
            raise ConfigError(
                f"{topic}:{partition} is read by none of {', '.join(chosen)}; they read "
                f"{', '.join(sorted({t for g in chosen for t in INPUTS[g]}))}."
            )


def _refuse_unknown_partitions(start: Start, log: Log) -> None:
    for topic, partition in start.offsets:
        known = log.watermarks.get(topic, {})
        if partition not in known:
            raise ConfigError(
                f"{topic} has no partition {partition}; it has {', '.join(map(str, known))}."
            )


def _gone(group: str, chosen: Sequence[str], start: Start, log: Log) -> Iterator[LogGap]:
    """What the group has still to read, or is asked to read again, and is no longer kept.

    A reset moves the group past it, so it is told now. Of a time it is known only that all records
    before the first one kept are gone.
    """
    for topic in INPUTS[group]:
        is_made_anew = start.is_beginning and FED_BY.get(topic) in chosen
        if topic == topics.TICKS or is_made_anew:
            continue
        for partition, (first, _) in log.watermarks[topic].items():
            unread = log.committed[group].get((topic, partition), 0)
            if unread < first:
                yield LogGap(group, topic, partition, unread, first, Why.RETENTION)
            asked = start.offsets.get((topic, partition), first)
            if start.at is not None and log.offsets_at[topic][partition] <= first:
                asked = 0
            if asked < min(first, unread):
                yield LogGap(group, topic, partition, asked, min(first, unread), Why.REPLAY)


def _is_cut(log: Log) -> bool:
    return any(first > 0 for first, _ in log.watermarks[topics.RAW_EVENTS].values())


def _refuse_lost_rows(log: Log) -> None:
    cut = [p for p, (first, _) in log.watermarks[topics.RAW_EVENTS].items() if first > 0]
    if cut:
        raise ConfigError(
            f"{topics.RAW_EVENTS} no longer holds its first records (partitions "
            f"{', '.join(map(str, cut))}): rows made from them would be wiped and never come "
            "again. Give --keep-tables, or replay only assembly and sink, whose logs are longer."
        )


def _refuse_half_a_join(log: Log) -> None:
    cut = [
        topic
        for topic in INPUTS[ASSEMBLY]
        if topic != topics.TICKS and any(first > 0 for first, _ in log.watermarks[topic].values())
    ]
    if cut:
        raise ConfigError(
            f"{', '.join(cut)} no longer hold their first records: trajectories would be joined "
            "anew from a part of their steps, and their rows would say less than now. Give "
            "--from-time or --from-offset, which keep the state of what is older."
        )


def _group_plan(group: str, chosen: tuple[str, ...], start: Start, log: Log) -> GroupPlan:
    offsets: dict[Position, int] = {}
    for topic in INPUTS[group]:
        for partition, (first, end) in log.watermarks[topic].items():
            position = (topic, partition)
            offsets[position] = _first_offset(group, position, (first, end), chosen, start, log)
    tables = topics.TABLES[group] if start.is_beginning else ()
    return GroupPlan(group, offsets, tuple(topics.changelog_topic(group, t) for t in tables))


def _first_offset(
    group: str,
    position: Position,
    kept: tuple[int, int],
    chosen: tuple[str, ...],
    start: Start,
    log: Log,
) -> int:
    topic, partition = position
    first, end = kept
    where_it_was = max(first, min(end, log.committed[group].get(position, first)))
    if start.is_beginning:
        if topic == topics.TICKS:
            return end  # time passes on its own; old ticks say nothing new
        if FED_BY.get(topic) in chosen:
            return end
        return where_it_was if group == SINK and topic not in FED_BY else first
    if start.offsets:
        # never forward: what lies between was not processed yet
        return max(first, min(where_it_was, start.offsets.get(position, where_it_was)))
    return min(where_it_was, log.offsets_at[topic][partition])
