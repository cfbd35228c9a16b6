"""Keys, feedback, events, health, schemas: the gateway's own routes on a real broker."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.atdp import avro
from schemas.atdp.types import Feedback, RewardKind, Step, TrajectoryEnd
from tests.integration.gateway.harness import (
    CHAT,
    Connection,
    ScriptedUpstream,
    new_key,
    running,
    whole,
)

pytestmark = pytest.mark.integration


async def ok(connection: Connection) -> None:
    await connection.send(whole(b"{}"))


async def test_keys_and_scopes(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        async with gw.http.post(f"{gw.url}{CHAT}", data=b"{}") as answer:
            assert answer.status == 401
            assert (await answer.json())["error"]["code"] == "missing_key"
        async with gw.http.post(f"{gw.url}/k/hr_x_unknown{CHAT}", data=b"{}") as answer:
            assert answer.status == 401
            assert "headrace keys create" in (await answer.json())["error"]["message"]
        _, rater = new_key(gw.bus, "feedback:write")  # made a moment ago
        async with gw.http.post(f"{gw.url}/k/{rater}{CHAT}", data=b"{}") as answer:
            assert answer.status == 403
            assert "--scope capture" in (await answer.json())["error"]["message"]
        _, agent = new_key(gw.bus, "capture")
        body = b'{"target":{"step_id":"s"},"name":"n","value":1}'
        async with gw.http.post(f"{gw.url}/k/{agent}/v1/feedback", data=body) as answer:
            assert answer.status == 403


async def test_our_key_in_the_credential_headers_when_the_upstream_has_its_own(
    tmp_path: Path, kafka: str
) -> None:
    (tmp_path / "upstream-key").write_text("sk-upstream\n")
    upstream = ScriptedUpstream(ok)
    async with running(tmp_path, kafka, upstream, api_key_file=tmp_path / "upstream-key") as gw:
        for header in ({"Authorization": f"Bearer {gw.key}"}, {"x-api-key": gw.key}):
            async with gw.http.post(f"{gw.url}{CHAT}", data=b"{}", headers=header) as answer:
                assert answer.status == 200
    for seen in upstream.seen:
        assert gw.key.encode() not in seen.head
        assert b"Bearer sk-upstream" in seen.head
        assert seen.head.startswith(b"POST /v1/chat/completions HTTP/1.1")


async def test_feedback_becomes_records(tmp_path: Path, kafka: str) -> None:
    items = [
        {"target": {"response_id": "chatcmpl-1"}, "name": "resolved", "value": True,
         "occurred_at": "2026-01-02T03:04:05+02:00", "final": True},
        {"target": {"trajectory_id": "tr"}, "name": "tone", "label": "kind", "feedback_id": "f1"},
        {"target": {"step_id": "s"}, "name": "why", "text": "because", "confidence": 0.5},
    ]  # fmt: skip
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        answers = []
        for _ in range(2):
            async with gw.post("/v1/feedback", json.dumps(items)) as answer:
                assert answer.status == 202
                answers.append((await answer.json())["ids"])
        events = await gw.events(6)
    assert answers[0] == answers[1], "the same content is the same reward"
    by_name = {e.name: e for e in events}
    assert all(isinstance(e, Feedback) for e in events)
    assert by_name["resolved"].value is True
    assert by_name["resolved"].occurred_at.isoformat() == "2026-01-02T01:04:05+00:00"
    assert by_name["tone"].kind is RewardKind.LABEL
    assert by_name["why"].rater_id.startswith("key_")


REFUSED: list[tuple[str, str | None]] = [
    ('{"target":{"step_id":"s"},"name":"n","value":NaN}', "value"),
    ('{"target":{"step_id":"s"},"name":"n","value":1e400}', "value"),
    ('{"target":{"step_id":"s"},"name":"n","value":-Infinity}', "value"),
    ('{"target":{"step_id":"s"},"name":"n","value":"1.0"}', "value"),
    ('{"target":{"step_id":"s"},"name":"n"}', None),
    ('{"target":{"step_id":"s"},"name":"","value":1}', "name"),
    ('{"target":{"step_id":"s","response_id":"r"},"name":"n","value":1}', "target"),
    ('{"target":{},"name":"n","value":1}', "target"),
    ('{"target":{"step_id":"a/b"},"name":"n","value":1}', "target.step_id"),
    ('{"target":{"step_id":"s"},"name":"n","value":1,"confidence":2}', "confidence"),
    ('{"target":{"step_id":"s"},"name":"n","value":1,"revision":true}', "revision"),
    ('{"target":{"step_id":"s"},"name":"n","value":1,"revision":2}', None),
    ('{"target":{"step_id":"s"},"name":"n","value":1,"occurred_at":"2026-01-01"}', "occurred_at"),
    ('{"target":{"step_id":"s"},"name":"n","value":1,"valeu":2}', None),
    ('[{"target":{"step_id":"s"},"name":"n","value":1},{"name":"n","value":1}]', "1.target"),
    ('{"target":{"step_id":"s"},"name":"n","text":"\\ud800"}', None),
    ("[]", None), ("", None), ("nonsense", None), ("[[[[", None), ("null", None),
]  # fmt: skip


async def test_wrong_feedback_is_refused_and_names_the_field(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        for body, field in REFUSED:
            async with gw.post("/v1/feedback", body) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["param"]) == (422, field), body
                assert field is None or field in error["message"]
                assert "valeu" not in error["message"], "text of the client is not repeated"
        assert gw.gateway.spool.backlog_bytes == 0


async def test_events_get_the_keys_tenant(tmp_path: Path, kafka: str) -> None:
    step: dict[str, Any] = {
        "type": "step", "step_id": "s1", "trajectory_id": "tr",
        "started_at": "2026-01-01T00:00:00Z", "governance": {"training_eligible": True},
    }  # fmt: skip
    end = {"type": "trajectory_end", "trajectory_id": "tr", "occurred_at": "2026-01-01T00:00:00Z"}
    rating = {"type": "feedback", "target": {"trajectory_id": "tr"}, "name": "n", "value": 0.5}
    lines = "\n".join(map(json.dumps, (step, end, rating)))
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        async with gw.post("/v1/events", lines) as answer:
            assert answer.status == 202, await answer.text()
            assert len((await answer.json())["ids"]) == 3
        foreign = step | {"tenant_id": "somebody-else"}
        async with gw.post("/v1/events", json.dumps(foreign)) as answer:
            assert answer.status == 403
        _, agent = new_key(gw.bus, "events:write")
        headers = {"x-headrace-key": agent}
        url = f"{gw.url}/v1/events"
        async with gw.http.post(url, data=json.dumps(rating), headers=headers) as answer:
            assert answer.status == 403, "a key without feedback:write may not rate here either"
        wrong: list[Any] = [{"type": "x"}, {**step, "started_at": 7}, [], "a", {**step, "x": 1}]
        for body in [*map(json.dumps, wrong), '{"a":1}\n{', '{"type":"step","step_id":"\\ud800"}']:
            async with gw.post("/v1/events", body) as answer:
                assert answer.status == 422, body
        events = await gw.events(3)
    (found,) = [e for e in events if isinstance(e, Step)]
    assert found.tenant_id == gw.tenant
    assert found.governance.training_eligible is False
    assert {type(e) for e in events} == {Step, TrajectoryEnd, Feedback}


async def test_an_event_too_large_for_a_record_is_413(tmp_path: Path, kafka: str) -> None:
    body = {"target": {"step_id": "s"}, "name": "n", "text": "x" * 950_000}
    async with (
        running(tmp_path, kafka, ScriptedUpstream(ok)) as gw,
        gw.post("/v1/feedback", json.dumps(body)) as answer,
    ):
        assert answer.status == 413


async def test_health_metrics_and_schemas(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            assert answer.status == 200
        await gw.events(1)
        async with gw.http.get(f"{gw.url}/health") as answer:
            health = await answer.json()
        assert (health["alive"], health["ready"], health["spool_events_waiting"]) == (True, True, 0)
        async with gw.http.get(f"{gw.url}/metrics") as answer:
            text = await answer.text()
        assert f'headrace_gateway_requests_total{{outcome="complete",path="{CHAT}"}} 1.0' in text
        async with gw.http.get(f"{gw.url}/schemas/ids/4") as answer:
            assert (
                json.loads((await answer.json(content_type=None))["schema"])["name"] == "Exchange"
            )
        async with gw.http.get(f"{gw.url}/subjects") as answer:
            assert "headrace.atdp.Step" in await answer.json(content_type=None)
        latest = f"{gw.url}/subjects/headrace.atdp.Step/versions/latest"
        async with gw.http.get(latest) as answer:
            newest = max(number for number, (cls, _) in avro.RELEASES.items() if cls is Step)
            assert (await answer.json(content_type=None))["id"] == newest
        async with gw.http.get(f"{gw.url}/schemas/ids/999") as answer:
            assert answer.status == 404


async def test_trajectories_without_a_store_say_what_to_do(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        url = f"{gw.url}/v1/trajectories/tr"
        async with gw.http.get(url, headers=gw.headers) as answer:
            assert answer.status == 503
            assert "headrace status" in (await answer.json())["error"]["message"]
