"""Names that users, dashboards and other programs hold. Add to these lists; never rename."""

import re
from pathlib import Path

from typer.main import get_command

from infra.cli.main import make_app
from schemas import tables, topics
from schemas.errors import Reason
from tests.architecture.size_gates import ROOT

TOPICS = {
    "raw.events.v1", "raw.aliases.v1", "raw.unresolved.v1", "trajectory.steps.v1",
    "trajectory.rewards.v1", "trajectory.ends.v1", "trajectory.summaries.v1",
    "assembly.ticks.v1", "training.samples.v1", "control.keys.v1", "control.replays.v1",
    "audit.events.v1", "quarantine.events.v1", "weights.chunks.v1", "weights.versions.v1",
    "weights.promotions.v1", "weights.acks.v1", "inference.workers.v1", "training.decisions.v1",
    "training.microbatches.v1",
}  # fmt: skip
GROUPS = ("streams.redaction", "streams.assembly", "streams.sink")
COLUMNS = {
    "steps": "step_id trajectory_id task_key replay_epoch key_id parent_step_id step_index "
    "tenant_id agent_id kind started_at outcome model policy_version policy_versions dialect "
    "new_messages output reasoning token_ids logprobs prompt_tokens completion_tokens latency_ms "
    "harness_fingerprint tools_fingerprint sampling redactions data_classes consent "
    "training_eligible gaps raw_digest",
    "rewards": "reward_id trajectory_id step_id name kind value label text source rater_id "
    "confidence revision retracted occurred_at recorded_at",
    "trajectories": "trajectory_id num_steps reward reward_status first_policy_version "
    "last_policy_version closed_at",
    "samples": "sample_id",
    "sample_decisions": "sample_id decision decision_reason batch_id",
    "microbatches": "batch_id policy num_sequences sample_ids",
    "policy_versions": "policy version kind root from_version density num_bytes created_at",
    "proposals": "proposal_id policy version ring proposed_by reason canary_share proposed_at",
    "proposal_answers": "proposal_id status reason sequence answered_at",
    "promotions": "policy ring stable_version canary_version canary_share state reason sequence "
    "decided_at",
    "acks": "ack_id worker_id policy version status stage_ms pause_ms apply_ms error occurred_at",
    "dead_letters": "dead_letter_id reason",
    "quarantined_events": "quarantine_id reason",
    "audit_events": "audit_id",
}
COMMANDS = {
    "up", "down", "status", "doctor", "logs", "demo", "publish", "feedback", "show", "topics",
    "tail", "dead-letters", "query", "migrate", "replay", "reconcile",
    "export", "keys", "connect", "versions", "promote", "rollback", "workers", "train",
}  # fmt: skip
REASONS = {
    "undecodable", "unknown_schema", "wrong_type", "not_finite", "oversized", "unknown_tenant",
    "unexpected_event", "blob_missing", "detector_unavailable",
    "detector_timeout", "policy_missing", "unsupported_language", "store_refused", "bug",
}  # fmt: skip
_TOPIC = re.compile(r"[a-z]+\.[a-z]+\.v[0-9]+\Z")


def test_topics() -> None:
    names = {topic.name for topic in topics.TOPICS}
    assert names == TOPICS
    assert all(_TOPIC.match(name) for name in names)


def test_every_topic_has_a_name_of_its_own_and_known_readers() -> None:
    made = [topic.name for topic in topics.all_topics()]
    assert len(set(made)) == len(made)
    services = {
        *GROUPS, "streams.batching", "trainer", "inference.gateway", "inference.worker",
        "controlplane.promotion",
    }  # fmt: skip
    assert all(set(topic.readers) <= services for topic in topics.all_topics())
    assert set(topics.DEAD_LETTERED) <= TOPICS


def test_groups() -> None:
    assert topics.GROUPS == GROUPS
    assert topics.LEARNING_GROUPS == ("streams.batching",)


def test_tables_and_their_columns() -> None:
    ddl = " ".join(path.read_text() for path in sorted(_migrations()))
    assert {table.name for table in tables.TABLES} == set(COLUMNS)
    for table in tables.TABLES:
        [body] = re.findall(rf"CREATE TABLE IF NOT EXISTS \S*{table.log}\b(.*?)ENGINE", ddl, re.S)
        found = set(re.findall(r"^\s*`?(\w+)`?\s", body, re.M))
        found |= set(re.findall(rf"ALTER TABLE \S*{table.log}\b.*?ADD COLUMN.*?(\w+) ", ddl))
        missing = set(COLUMNS[table.name].split()) - found
        assert not missing, f"{table.name} lacks {sorted(missing)}"
        assert re.search(rf"CREATE (OR REPLACE )?VIEW (IF NOT EXISTS )?\S*{table.name}\b", ddl)


def _migrations() -> list[Path]:
    return list((ROOT / "streams" / "sink" / "migrations").glob("*.sql"))


def test_commands() -> None:
    found = set(getattr(get_command(make_app()), "commands"))  # noqa: B009 - a group, to mypy a command
    assert found >= COMMANDS


def test_reasons_of_dead_letters() -> None:
    assert {reason.value for reason in Reason} == REASONS
