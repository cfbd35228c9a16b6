"""Names of the tables that users query, and docs/tables.md as the DDL says."""

from pathlib import Path

from schemas import tables
from streams.sink.migrate import shipped
from streams.sink.tables_doc import markdown, relations, stored_tables

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: What users and other programs query: a column may be added, none of these may go.
STEPS_COLUMNS = [
    "step_id", "trajectory_id", "task_key", "replay_epoch", "key_id", "parent_step_id",
    "step_index", "tenant_id", "agent_id", "kind", "started_at", "outcome", "model",
    "policy_version", "policy_versions", "dialect", "new_messages", "output", "reasoning",
    "token_ids", "logprobs", "prompt_tokens", "completion_tokens", "latency_ms",
    "harness_fingerprint", "tools_fingerprint", "sampling", "redactions", "data_classes",
    "consent", "training_eligible", "gaps", "raw_digest", "raw_topic", "raw_partition",
    "raw_offset", "kafka_topic", "kafka_partition", "kafka_offset", "recorded_at",
]  # fmt: skip


def test_names_are_frozen() -> None:
    assert [table.name for table in tables.TABLES] == [
        "steps", "rewards", "trajectories", "samples", "sample_decisions", "microbatches",
        "policy_versions", "proposals", "proposal_answers", "promotions", "acks",
        "dead_letters", "quarantined_events", "audit_events",
    ]  # fmt: skip
    made = {relation.name for relation in relations(shipped())}
    wanted = {t.name for t in tables.TABLES} | {t.log for t in tables.TABLES} | {*tables.VIEWS}
    assert made == wanted


def test_steps_keeps_its_columns() -> None:
    (steps,) = [table for table in stored_tables(shipped()) if table.name == "steps_log"]
    assert set(STEPS_COLUMNS) <= {column.name for column in steps.columns}


def test_times_end_in_at_and_nothing_else_does() -> None:
    for table in stored_tables(shipped()):
        for column in table.columns:
            is_time = "DateTime64(6, 'UTC')" in column.type
            assert is_time == column.name.endswith("_at"), f"{table.name}.{column.name}"


def test_the_tables_are_described_as_they_are() -> None:
    assert (DOCS / "tables.md").read_text() == markdown(shipped()), (
        "run: python -m streams.sink.tables_doc > docs/tables.md"
    )
