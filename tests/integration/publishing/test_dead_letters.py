"""Broken records on the raw topic: a dead letter each, the next event processed, and a retry."""

import io
import json
import struct
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest

from schemas import codec, topics
from schemas.atdp import avro
from schemas.atdp.internal import AuditEvent, DeadLetter
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget, Outcome, RewardKind
from schemas.ids import trajectory_key
from schemas.store import BlobStore
from tests.integration.publishing.deployment import Deployment

pytestmark = pytest.mark.integration
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEAD = topics.dead_letter_topic(topics.RAW_EVENTS)


def _step(tenant: str, **fields: Any) -> bytes:
    plain = {"type": "step", "step_id": "s", "event_id": "e", "tenant_id": tenant,
             "trajectory_id": "t", "started_at": NOW.isoformat(), **fields}  # fmt: skip
    return json.dumps(plain).encode()


def _feedback(tenant: str, value: Any) -> Feedback:
    return Feedback(
        reward_id="r", tenant_id=tenant, target=FeedbackTarget(trajectory_id="t"), name="n",
        kind=RewardKind.SCALAR, value=value, occurred_at=NOW, received_at=NOW,
    )  # fmt: skip


def _avro_feedback(tenant: str, value: float) -> bytes:
    """As a foreign Avro producer writes it, without our checks."""
    schema_id = next(i for i, (cls, _) in avro.RELEASES.items() if cls is Feedback)
    out = io.BytesIO(struct.pack(">bI", 0, schema_id))
    out.seek(0, io.SEEK_END)
    plain = avro.to_plain(_feedback(tenant, 0.5)) | {"value": value}
    schema = fastavro.parse_schema(json.loads(avro.released_file(schema_id).read_text()))
    fastavro.schemaless_writer(out, schema, plain)
    return out.getvalue()


def _broken(tenant: str) -> list[tuple[str, str | None, bytes]]:
    nan_json = json.dumps({"type": "feedback", "value": float("nan")}).encode()
    return [
        ("undecodable", None, b'{"type": "step", '),
        ("undecodable", None, nan_json),
        ("unknown_schema", None, struct.pack(">bI", 0, 9_999) + b"abc"),
        ("undecodable", None, struct.pack(">bI", 0, 1) + b"\xff\xff"),
        ("wrong_type", "type", b'{"type": "gossip"}'),
        ("wrong_type", "lineage.step_index", _step(tenant, lineage={"step_index": "two"})),
        ("wrong_type", "started_at", _step(tenant, started_at=True)),
        ("not_finite", "value", _avro_feedback(tenant, float("nan"))),
        ("not_finite", "value", _avro_feedback(tenant, float("inf"))),
    ]


def _where(event: Any) -> tuple[int, int] | None:
    """Where the record of a dead letter lies; None for any other event."""
    return (event.source.partition, event.source.offset) if isinstance(event, DeadLetter) else None


def _retried(event: Any) -> str | None:
    """The letter that an audit event says was tried again."""
    is_retry = isinstance(event, AuditEvent) and event.action == "dead_letter.retried"
    return event.subject if is_retry else None


def test_each_broken_record_is_a_dead_letter_and_the_next_event_is_processed(
    deployment: Deployment,
) -> None:
    tenant = f"t{uuid.uuid4().hex[:8]}"
    starts = deployment.ends(DEAD, topics.STEPS)
    cases = _broken(tenant)
    values = [value for *_, value in cases]
    # One key, so one partition: what comes after the broken ones waits behind them.
    *broken, (_, _) = deployment.produce(*values, _step(tenant))
    events = deployment.read_until(
        starts,
        lambda seen: (
            sum(type(e).__name__ == "DeadLetter" for e in seen) >= len(cases)
            and any(e.tenant_id == tenant and type(e).__name__ == "Step" for e in seen)
        ),
    )
    letters = {_where(event): event for event in events if isinstance(event, DeadLetter)}
    for where, (reason, field, value) in zip(broken, cases, strict=True):
        letter = letters[where]
        assert (letter.reason, letter.field, letter.num_bytes) == (reason, field, len(value))
        assert letter.source.topic == topics.RAW_EVENTS
        assert letter.group == topics.REDACTION
    shown = json.loads(deployment.headrace("dead-letters", "list", "--json").stdout)
    listed = {(s["partition"], s["offset"]): s["reason"] for s in shown}
    assert listed.items() >= {w: c[0] for w, c in zip(broken, cases, strict=True)}.items()


def test_show_gives_the_original_only_on_demand(deployment: Deployment) -> None:
    starts = deployment.ends(DEAD)
    (where,) = deployment.produce(b'{"type": "step", "note": "a-private-note"}')
    letter = deployment.letter_of(starts, where)
    shown = deployment.headrace("dead-letters", "show", letter.dead_letter_id[:10])
    assert f"offset          {where[1]}" in shown.stdout
    assert f"partition       {where[0]}" in shown.stdout
    assert "a-private-note" not in shown.stdout + shown.stderr
    original = deployment.headrace(
        "dead-letters", "show", letter.dead_letter_id, "--show-original", "--json"
    )
    assert "a-private-note" in json.loads(original.stdout)["original"]
    unknown = deployment.headrace("dead-letters", "show", "ffffffffffff")
    assert unknown.returncode == 2
    assert "dead-letters list" in unknown.stderr


def test_retry_brings_the_record_through_once_its_cause_is_repaired(deployment: Deployment) -> None:
    tenant = f"t{uuid.uuid4().hex[:8]}"
    request = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    folder = deployment.directory / "blobs" / ".original"
    blobs = BlobStore(folder.as_uri())
    uri = blobs.put(tenant, json.dumps(request).encode())
    (blob,) = (p for p in (folder / tenant).rglob("*") if p.is_file())
    body = blob.read_bytes()
    blob.unlink()
    exchange = Exchange(
        event_id="e", tenant_id=tenant, step_id="s", trajectory_id="t", method="POST",
        path="/v1/chat/completions", request_body_uri=uri, outcome=Outcome.COMPLETE, started_at=NOW,
    )  # fmt: skip
    starts = deployment.ends(DEAD)
    key = trajectory_key(tenant, "t")
    (where,) = deployment.produce(codec.encode(exchange), key=key)
    letter = deployment.letter_of(starts, where)
    assert letter.reason == "blob_missing"

    blob.write_bytes(body)
    starts = deployment.ends(topics.STEPS, topics.AUDIT)
    done = deployment.headrace(
        "dead-letters", "retry", "--all", "--reason", "blob_missing", "--json"
    )
    assert done.returncode == 0, done.stderr
    results = {r["dead_letter_id"]: r for r in json.loads(done.stdout)}
    result = results[letter.dead_letter_id]
    assert result["partition"] == letter.source.partition  # the same key again
    events = deployment.read_until(
        starts,
        lambda seen: (
            any(e.tenant_id == tenant for e in seen if type(e).__name__ == "Step")
            and any(type(e).__name__ == "AuditEvent" for e in seen)
        ),
    )
    (step,) = (e for e in events if type(e).__name__ == "Step" and e.tenant_id == tenant)
    assert step.step_id == "s"
    again = deployment.headrace("dead-letters", "retry", "--all", "--json")
    assert letter.dead_letter_id not in again.stdout


def test_a_retry_says_when_the_original_is_gone(deployment: Deployment) -> None:
    starts = deployment.ends(DEAD)
    (where,) = deployment.produce(b"{broken")
    letter = deployment.letter_of(starts, where)
    ((_, end),) = (item for item in deployment.ends(DEAD).items())
    gone = replace(
        letter,
        dead_letter_id=uuid.uuid4().hex,
        source=replace(letter.source, offset=letter.source.offset + 1_000_000),
    )
    deployment.produce_to(DEAD, gone.dead_letter_id.encode(), codec.encode(gone))
    deployment.read_until({(DEAD, 0): end}, lambda seen: len(seen) >= 1)
    done = deployment.headrace("dead-letters", "retry", gone.dead_letter_id)
    assert done.returncode == 1
    assert "is gone" in done.stderr
    assert "0 of 1 sent again" in done.stdout


def test_an_oversized_record_is_refused_at_every_door(
    deployment: Deployment, tmp_path: Any
) -> None:
    from schemas.errors import PermanentError, Reason

    huge = _step("acme", agent_id="a" * 2_000_000)
    before = deployment.ends(topics.RAW_EVENTS)
    with pytest.raises(PermanentError) as refused:
        deployment.produce(huge)
    assert refused.value.reason is Reason.OVERSIZED
    file = tmp_path / "huge.jsonl"
    body = json.dumps({"role": "assistant", "content": "x" * 1_000_000})
    output = {"action_and_result": {"output": [{"role": "assistant", "body": body}]}}
    file.write_bytes(_step("default", **output))
    answer = deployment.headrace("publish", str(file))
    assert answer.returncode == 2
    assert "line 1" in answer.stderr or "element 1" in answer.stderr
    assert "kafka.max_record_bytes" in answer.stderr
    assert deployment.ends(topics.RAW_EVENTS) == before
