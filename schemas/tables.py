"""The registry of what people query in the store: names, contents, ids.

Every table `<name>` is a view without duplicates over the stored `<name>_log`. The DDL is in
`streams/sink/migrations`; `docs/tables.md` describes the columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.atdp import internal, training, weights
from schemas.atdp import types as protocol


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of row. `event` is the record it holds, `id_columns` what a row is one of."""

    name: str
    event: type
    id_columns: tuple[str, ...]

    @property
    def log(self) -> str:
        """The stored table, in which a row may lie several times until the engine merges."""
        return f"{self.name}_log"

    @property
    def id_sql(self) -> str:
        """The id of a row as the store computes it, one text also where it is of several parts."""
        if len(self.id_columns) == 1:
            return self.id_columns[0]
        parts = ", ".join(f"toString({column})" for column in self.id_columns)
        return f"concatWithSeparator('/', {parts})"

    def id_of(self, cells: Mapping[str, Any]) -> str:
        """The same from the values of a row."""
        if len(self.id_columns) == 1:
            return str(cells[self.id_columns[0]])
        return "/".join(str(cells[column]) for column in self.id_columns)


STEPS = Table("steps", protocol.Step, ("step_id",))
REWARDS = Table("rewards", protocol.Reward, ("reward_id",))
TRAJECTORIES = Table("trajectories", internal.TrajectorySummary, ("trajectory_id",))
SAMPLES = Table("samples", internal.Sample, ("sample_id",))
SAMPLE_DECISIONS = Table("sample_decisions", training.SampleDecision, ("sample_id",))
MICROBATCHES = Table("microbatches", training.MicroBatch, ("batch_id",))
POLICY_VERSIONS = Table(
    "policy_versions", weights.WeightsManifest, ("policy", "version", "kind", "root")
)
PROPOSALS = Table("proposals", weights.Proposal, ("proposal_id",))
PROPOSAL_ANSWERS = Table("proposal_answers", weights.ProposalAnswer, ("proposal_id",))
PROMOTIONS = Table("promotions", weights.RingAssignment, ("policy", "ring", "sequence"))
ACKS = Table("acks", weights.WeightsAck, ("ack_id",))
DEAD_LETTERS = Table("dead_letters", internal.DeadLetter, ("dead_letter_id",))
QUARANTINED_EVENTS = Table("quarantined_events", internal.Quarantined, ("quarantine_id",))
AUDIT_EVENTS = Table("audit_events", internal.AuditEvent, ("audit_id",))

TABLES = (
    STEPS, REWARDS, TRAJECTORIES, SAMPLES, SAMPLE_DECISIONS, MICROBATCHES, POLICY_VERSIONS,
    PROPOSALS, PROPOSAL_ANSWERS, PROMOTIONS, ACKS, DEAD_LETTERS, QUARANTINED_EVENTS, AUDIT_EVENTS,
)  # fmt: skip

#: Views that hold no rows of their own.
VIEWS = ("unmatched_rewards", "messages", "trainable_shares")

#: Columns that tell of one processing rather than of what was processed: two processings of the
#: same events agree on all others.
PROCESSING_COLUMNS = (
    "recorded_at",
    "received_at",
    "replay_epoch",
    "replayed",
    "step_refs",
    "signal_refs",
    "raw_topic",
    "raw_partition",
    "raw_offset",
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
)
