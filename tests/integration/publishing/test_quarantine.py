"""A quarantined record is released by the command line and becomes the step that it was."""

import json
import uuid
from datetime import UTC, datetime

import pytest

from schemas import codec, topics
from schemas.atdp.internal import AuditEvent, Quarantined
from schemas.atdp.types import Coordinates, Step
from tests.integration.publishing.deployment import Deployment

pytestmark = pytest.mark.integration
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _set_aside(deployment: Deployment, tenant: str, step_id: str) -> str:
    """As redaction sets a record aside whose detector did not answer; the raw one has expired."""
    plain = {"type": "step", "step_id": step_id, "event_id": step_id, "tenant_id": tenant,
             "trajectory_id": "t", "started_at": NOW.isoformat()}  # fmt: skip
    event = Quarantined(
        quarantine_id=uuid.uuid4().hex,
        source=Coordinates(topic=topics.RAW_EVENTS, partition=1, offset=10**9),
        reason="detector_timeout",
        occurred_at=NOW,
        value=json.dumps(plain).encode(),
    )
    deployment.produce_to(topics.QUARANTINE, event.quarantine_id.encode(), codec.encode(event))
    return event.quarantine_id


def test_released_it_becomes_a_step_and_dropped_it_does_not(deployment: Deployment) -> None:
    tenant = f"t{uuid.uuid4().hex[:8]}"
    released, dropped = (_set_aside(deployment, tenant, name) for name in ("kept", "left"))
    listed = json.loads(deployment.headrace("quarantine", "list", "--json").stdout)
    undecided = {case["quarantine_id"]: case["reason"] for case in listed}
    assert undecided.items() >= {(released, "detector_timeout"), (dropped, "detector_timeout")}
    shown = deployment.headrace("quarantine", "list")
    assert "detector_timeout" in shown.stdout
    assert tenant not in shown.stdout

    starts = deployment.ends(topics.STEPS, topics.AUDIT)
    left = deployment.headrace("quarantine", "drop", dropped, "--why", "test data")
    assert (left.returncode, left.stdout) == (0, "1 dropped.\n")
    done = deployment.headrace("quarantine", "release", released[:12], "--json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["topic"], result["partition"]) == (topics.RAW_EVENTS, 1)
    events = deployment.read_until(
        starts,
        lambda seen: any(isinstance(e, Step) and e.tenant_id == tenant for e in seen),
    )
    steps = [e for e in events if isinstance(e, Step) and e.tenant_id == tenant]
    assert [step.step_id for step in steps] == ["kept"]
    audits = {e.subject: e.action for e in events if isinstance(e, AuditEvent)}
    assert audits.items() >= {(released, "quarantine.released"), (dropped, "quarantine.dropped")}
    listed = json.loads(deployment.headrace("quarantine", "list", "--json").stdout)
    assert not {released, dropped} & {case["quarantine_id"] for case in listed}


def test_what_is_not_there_is_said(deployment: Deployment) -> None:
    unknown = deployment.headrace("quarantine", "release", "ffffffffffff")
    assert unknown.returncode == 2
    assert "quarantine list" in unknown.stderr
    neither = deployment.headrace("quarantine", "drop")
    assert neither.returncode == 2
    assert "--all" in neither.stderr
