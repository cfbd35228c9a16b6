"""The registry of topics: name, content, key, partitions, retention, writer, readers.

`docs/topics.md` is generated from here (`python -m schemas.topics`). Names are
`<stage>.<entity-plural>.v<major>`; a processor's group is `<service>.<processor>`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["delete", "compact", "compact,delete"]

RAW_EVENTS = "raw.events.v1"
RAW_ALIASES = "raw.aliases.v1"
RAW_UNRESOLVED = "raw.unresolved.v1"
STEPS = "trajectory.steps.v1"
REWARDS = "trajectory.rewards.v1"
ENDS = "trajectory.ends.v1"
SUMMARIES = "trajectory.summaries.v1"
TICKS = "assembly.ticks.v1"
SAMPLES = "training.samples.v1"
DECISIONS = "training.decisions.v1"
MICROBATCHES = "training.microbatches.v1"
KEYS = "control.keys.v1"
REPLAYS = "control.replays.v1"
AUDIT = "audit.events.v1"
QUARANTINE = "quarantine.events.v1"
WEIGHTS_CHUNKS = "weights.chunks.v1"
WEIGHTS_VERSIONS = "weights.versions.v1"
WEIGHTS_PROMOTIONS = "weights.promotions.v1"
WEIGHTS_ACKS = "weights.acks.v1"
WORKERS = "inference.workers.v1"

REDACTION = "streams.redaction"
ASSEMBLY = "streams.assembly"
BATCHING = "streams.batching"
SINK = "streams.sink"
GATEWAY = "inference.gateway"
WORKER = "inference.worker"
PROMOTION = "controlplane.promotion"
TRAINER = "trainer"
#: The processors in the order in which records pass them.
GROUPS = (REDACTION, ASSEMBLY, SINK)
#: Processors that run only where something learns. No replay of the data path touches them.
LEARNING_GROUPS = (BATCHING,)

LINEAGES_TABLE = "lineages"
ALIASES_TABLE = "aliases"
TRAJECTORIES_TABLE = "trajectories"
LEARNED_TABLE = "learned"
#: State tables of each processor; each has a compacted changelog topic.
TABLES = {REDACTION: (LINEAGES_TABLE, ALIASES_TABLE), ASSEMBLY: (TRAJECTORIES_TABLE,),
          BATCHING: (LEARNED_TABLE,), SINK: ()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `partitions` is None for topics that share the configured number N."""

    name: str
    content: str
    key: str
    partitions: int | None
    cleanup: Cleanup
    retention_hours: float
    writer: str
    readers: tuple[str, ...]
    holds_original_text: bool = False
    max_bytes: int = 1_048_576

    @property
    def is_state(self) -> bool:
        """True for the changelog of a processor's state, which its owner alone reads."""
        return self.content == _STATE_CONTENT


def dead_letter_topic(topic: str) -> str:
    """Where records of `topic` go that can never be processed; a broken dead letter stays put."""
    return topic if topic.startswith("dead.") else f"dead.{topic}"


def changelog_topic(group: str, table: str) -> str:
    """The changelog that Faust keeps of a table."""
    return f"{group}-{table}-changelog"


_DAY = 24.0
_CLEAN = 90 * _DAY
#: Longer than the inputs of the group that writes it: whatever is read again finds its decision.
STATE_HOURS = 15 * _DAY
_STATE_CONTENT = "state"
#: Processors whose state the broker forgets after a time. The others delete rows themselves.
FORGETTING_GROUPS = (REDACTION,)

TOPICS: tuple[Topic, ...] = (
    Topic(RAW_EVENTS, "Exchange, Step, Feedback, TrajectoryEnd", "trajectory or opening", None,
          "delete", 3 * _DAY, "gateway, any producer", (REDACTION,), holds_original_text=True),
    Topic(RAW_ALIASES, "Alias", "HMAC of tenant and id", None, "delete", 14 * _DAY, REDACTION,
          (REDACTION,)),
    Topic(RAW_UNRESOLVED, "UnresolvedFeedback", "HMAC of tenant and id", None, "delete", 14 * _DAY,
          REDACTION, (REDACTION,), holds_original_text=True),
    Topic(STEPS, "Step", "trajectory", None, "delete", _CLEAN, REDACTION, (ASSEMBLY, SINK)),
    Topic(REWARDS, "Reward", "trajectory", None, "delete", _CLEAN, REDACTION, (ASSEMBLY, SINK)),
    Topic(ENDS, "TrajectoryEnd", "trajectory", None, "delete", _CLEAN, REDACTION, (ASSEMBLY,)),
    Topic(SUMMARIES, "TrajectorySummary", "trajectory", None, "delete", _CLEAN, ASSEMBLY, (SINK,)),
    Topic(TICKS, "Tick", "partition", None, "delete", 1.0, ASSEMBLY, (ASSEMBLY,)),
    Topic(SAMPLES, "Sample", "trajectory", None, "delete", _CLEAN, ASSEMBLY, (BATCHING, SINK)),
    Topic(DECISIONS, "SampleDecision", "trajectory", None, "delete", _CLEAN, BATCHING, (SINK,)),
    # One order for the trainer, whose checkpoint holds the offset.
    Topic(MICROBATCHES, "MicroBatch", "policy", 1, "delete", 14 * _DAY, BATCHING,
          (TRAINER, BATCHING, SINK)),
    Topic(KEYS, "KeyRecord", "key id", 1, "compact", 0, "cli", (GATEWAY,)),
    Topic(REPLAYS, "Replay", "group", 1, "compact", 0, "cli",
          (*GROUPS, *LEARNING_GROUPS)),
    Topic(AUDIT, "AuditEvent", "id", 1, "delete", 365 * _DAY, "whoever acts", (SINK,)),
    # A quarantined record wraps a raw one, which may be as large as its own topic takes.
    Topic(QUARANTINE, "Quarantined", "id", 1, "delete", 14 * _DAY, REDACTION, (SINK,),
          holds_original_text=True, max_bytes=1_048_576 + 64 * 1024),
    # One partition each: manifests in order, and a newcomer sees the present state.
    Topic(WEIGHTS_CHUNKS, "part of a payload (bytes)", "policy", 1, "delete", 7 * _DAY,
          "trainer, cli", (WORKER,)),
    Topic(WEIGHTS_VERSIONS, "WeightsManifest", "policy:version", 1, "compact", 0, "trainer, cli",
          (WORKER, PROMOTION, SINK)),
    Topic(WEIGHTS_PROMOTIONS, "Proposal, ProposalAnswer, RingAssignment",
          "policy/proposal/version[/ring], policy/answer/version[/ring] or policy/ring/name", 1,
          "compact", 0,
          f"trainer and cli (proposals), {PROMOTION} (the others)",
          (WORKER, GATEWAY, PROMOTION, SINK)),
    Topic(WEIGHTS_ACKS, "WeightsAck", "worker", 1, "compact,delete", 7 * _DAY, WORKER,
          (GATEWAY, PROMOTION, SINK)),
    Topic(WORKERS, "WorkerHeartbeat", "worker", 1, "compact", 0, WORKER, (GATEWAY, PROMOTION)),
)  # fmt: skip

#: Topics that are written in transactions, whose ends take offsets and are no records.
TRANSACTIONAL = (WEIGHTS_VERSIONS, WEIGHTS_PROMOTIONS)
#: Topics whose broken records go to a dead-letter topic of their own.
DEAD_LETTERED = (RAW_EVENTS, RAW_ALIASES, RAW_UNRESOLVED, STEPS, REWARDS, ENDS, SUMMARIES, TICKS,
                 SAMPLES, DECISIONS, MICROBATCHES, WEIGHTS_VERSIONS, WEIGHTS_PROMOTIONS,
                 WEIGHTS_ACKS, AUDIT, QUARANTINE)  # fmt: skip


def all_topics() -> Iterator[Topic]:
    """Every topic to create: the registry, its dead letters and the processors' changelogs."""
    yield from TOPICS
    for name in DEAD_LETTERED:
        yield Topic(dead_letter_topic(name), "DeadLetter", "id", 1, "delete", 90 * _DAY,
                    f"readers of {name}", (SINK,))  # fmt: skip
    for group, tables in TABLES.items():
        for table in tables:
            forgets = group in FORGETTING_GROUPS
            yield Topic(changelog_topic(group, table), _STATE_CONTENT, "key of the state", None,
                        "compact,delete" if forgets else "compact", STATE_HOURS if forgets else 0,
                        group, (group,), holds_original_text=group == REDACTION)  # fmt: skip


def topic(name: str) -> Topic:
    """The registered topic of that name. KeyError names the ones that exist."""
    for candidate in all_topics():
        if candidate.name == name:
            return candidate
    raise KeyError(f"{name} is no topic of headrace; `headrace topics` lists them")


def clean_topics() -> tuple[str, ...]:
    """Topics that must never hold original text."""
    return tuple(t.name for t in all_topics() if not t.holds_original_text)


def markdown() -> str:
    """The text of docs/topics.md."""
    lines = [
        "# Topics",
        "",
        "Generated by `python -m schemas.topics`. N is `kafka.num_partitions`. Topics that expire",
        "carry the broker's time (`LogAppendTime`): no wrong clock of a producer cuts retention.",
        "",
        "| topic | content | key | partitions | cleanup | retention | writer | readers | text |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for t in all_topics():
        retention = "for ever" if t.cleanup == "compact" else f"{t.retention_hours:g} h"
        text = "original" if t.holds_original_text else "redacted"
        lines.append(
            f"| `{t.name}` | {t.content} | {t.key} | {t.partitions or 'N'} | {t.cleanup} "
            f"| {retention} | {t.writer} | {', '.join(t.readers)} | {text} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
