"""The registry of what people query in the store: names, contents, ids.

Every table `<name>` is a view without duplicates over the stored `<name>_log`. The DDL is in
`streams/sink/migrations`; `docs/tables.md` describes the columns.
"""

from dataclasses import dataclass

from schemas.atdp import internal, training
from schemas.atdp import types as protocol


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of row. `event` is the record it holds, `id_column` what a row is one of."""

    name: str
    event: type
    id_column: str

    @property
    def log(self) -> str:
        """The stored table, in which a row may lie several times until the engine merges."""
        return f"{self.name}_log"


STEPS = Table("steps", protocol.Step, "step_id")
REWARDS = Table("rewards", protocol.Reward, "reward_id")
TRAJECTORIES = Table("trajectories", internal.TrajectorySummary, "trajectory_id")
SAMPLES = Table("samples", internal.Sample, "sample_id")
SAMPLE_DECISIONS = Table("sample_decisions", training.SampleDecision, "sample_id")
MICROBATCHES = Table("microbatches", training.MicroBatch, "batch_id")
DEAD_LETTERS = Table("dead_letters", internal.DeadLetter, "dead_letter_id")
QUARANTINED_EVENTS = Table("quarantined_events", internal.Quarantined, "quarantine_id")
AUDIT_EVENTS = Table("audit_events", internal.AuditEvent, "audit_id")

TABLES = (
    STEPS, REWARDS, TRAJECTORIES, SAMPLES, SAMPLE_DECISIONS, MICROBATCHES, DEAD_LETTERS,
    QUARANTINED_EVENTS, AUDIT_EVENTS,
)  # fmt: skip

#: Views that hold no rows of their own.
VIEWS = ("unmatched_rewards", "messages")

#: Columns that tell of one processing rather than of what was processed: two processings of the
#: same events agree on all others.
PROCESSING_COLUMNS = (
    "recorded_at",
    "received_at",
    "replay_epoch",
    "replayed",
    "step_refs",
    "raw_topic",
    "raw_partition",
    "raw_offset",
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
)
