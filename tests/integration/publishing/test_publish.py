"""`headrace publish` on a real broker, through the running redaction processor."""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import Reward, Step
from tests.integration.publishing.deployment import Deployment

pytestmark = pytest.mark.integration


def _raw_records(events: Sequence[Any], tenant: str) -> set[Any]:
    """Coordinates of the tenant's raw records that came through."""
    return {
        event.source if isinstance(event, Step) else event.raw
        for event in events
        if event.tenant_id == tenant
    }


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_the_shared_conversations_twice_are_each_step_once(
    deployment: Deployment, shared_data: Path, tmp_path: Path, every: int
) -> None:
    """40 of them, some 500 steps, twice; `make soak` publishes all 200."""
    shared = shared_data / "trajectories" / "tau-bench-airline-gpt-4o.json"
    conversations = json.loads(shared.read_bytes())[::every]
    file = tmp_path / "published.json"
    file.write_text(json.dumps(conversations))
    answers = sum(m["role"] == "assistant" for c in conversations for m in c["traj"])
    tenant = f"t{uuid.uuid4().hex[:8]}"
    starts = deployment.ends(topics.STEPS, topics.REWARDS)
    for _ in range(2):
        done = deployment.headrace("publish", str(file), "--tenant", tenant, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["steps"] == answers
    wanted = 2 * (answers + len(conversations))
    events = deployment.read_until(
        starts, lambda seen: len(_raw_records(seen, tenant)) >= wanted, timeout_seconds=400
    )
    ours = [event for event in events if event.tenant_id == tenant]
    steps = [event for event in ours if isinstance(event, Step)]
    rewards = {event.reward_id: event for event in ours if isinstance(event, Reward)}
    # A processor may put out a raw record again after a rebalance; the raw records are the measure.
    times_seen = Counter(step_id for step_id, _ in {(s.step_id, s.source) for s in steps})
    assert len(times_seen) == answers
    assert set(times_seen.values()) == {2}
    assert len({(s.trajectory_id, s.lineage.step_index) for s in steps}) == answers
    assert len({step.trajectory_id for step in steps}) == len(conversations)
    assert Counter(r.value for r in rewards.values()) == Counter(c["reward"] for c in conversations)


def test_an_error_names_line_and_field_and_nothing_is_sent(
    deployment: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    good = {"type": "step", "trajectory_id": "one"}
    bad = {"type": "step", "trajectory_id": "two", "lineage": {"step_index": "secret-value"}}
    file.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n{{broken\n")
    before = deployment.ends(topics.RAW_EVENTS)
    refused = deployment.headrace("publish", str(file))
    assert refused.returncode == 2
    assert "line 2, field lineage.step_index" in refused.stderr
    assert "line 3: not valid JSON" in refused.stderr
    assert "secret-value" not in refused.stderr
    assert deployment.ends(topics.RAW_EVENTS) == before
    dry = deployment.headrace("publish", str(file), "--keep-going", "--dry-run", "--json")
    assert json.loads(dry.stdout)["steps"] == 1
    assert deployment.ends(topics.RAW_EVENTS) == before
    kept = deployment.headrace("publish", str(file), "--keep-going", "--json")
    assert json.loads(kept.stdout)["problems"] == 2
    assert sum(deployment.ends(topics.RAW_EVENTS).values()) == sum(before.values()) + 1


def test_tail_shows_the_published_step_and_guards_original_text(
    deployment: Deployment, tmp_path: Path
) -> None:
    tenant = f"t{uuid.uuid4().hex[:8]}"
    file = tmp_path / "talk.json"
    answer = "Write to ada.lovelace@example.org."
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}]
    file.write_text(json.dumps(talk))
    starts = deployment.ends(topics.STEPS)
    assert deployment.headrace("publish", str(file), "--tenant", tenant).returncode == 0
    deployment.read_until(starts, lambda seen: any(e.tenant_id == tenant for e in seen))
    command = ("tail", topics.STEPS, "--from-beginning", "--tenant", tenant)
    shown = deployment.headrace(*command, "-n", "1", "--json")
    (line,) = map(json.loads, shown.stdout.splitlines())
    assert line["type"] == "Step"
    (output,) = line["event"]["action_and_result"]["output"]
    assert "Write to" in output["body"]
    assert "ada.lovelace" not in shown.stdout
    readable = deployment.headrace(*command)
    assert line["event"]["trajectory_id"] in readable.stdout
    guarded = deployment.headrace("tail", topics.RAW_EVENTS, "--from-beginning")
    assert guarded.returncode == 2
    assert "--show-original" in guarded.stderr
    original = deployment.headrace(
        "tail",
        topics.RAW_EVENTS,
        "--from-beginning",
        "--tenant",
        tenant,
        "--json",
        "--show-original",
    )
    assert answer in original.stdout


def test_topics_shows_partitions_records_and_lag(deployment: Deployment) -> None:
    shown = deployment.headrace("topics", "--json")
    states = {state["name"]: state for state in json.loads(shown.stdout)}
    assert set(states) == {topic.name for topic in topics.all_topics()}
    raw = states[topics.RAW_EVENTS]
    marks = deployment.admin.watermarks(topics.RAW_EVENTS)
    assert raw["num_partitions"] == len(marks)
    assert raw["num_records"] == sum(end - first for first, end in marks.values())
    assert set(raw["lag"]) == {topics.REDACTION}
    assert topics.RAW_EVENTS in deployment.headrace("topics").stdout
