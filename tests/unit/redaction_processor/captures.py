"""Captured exchanges for tests, as the gateway would have recorded them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas import topics
from schemas.atdp.types import Exchange, Header
from schemas.bus import Received
from schemas.codec import encode
from schemas.ids import keyed_digest, opening_key, trajectory_key

START = datetime(2026, 1, 1, tzinfo=UTC)
JSON_HEADERS = (Header(name="content-type", value="application/json"),)


def exchange(
    messages: Sequence[dict[str, Any]], answer: dict[str, Any] | None, name: str, **fields: Any
) -> Exchange:
    """One chat call with its answer; `name` becomes its step, event and response id."""
    request = {"model": "test-model", "messages": list(messages)}
    response: dict[str, Any] = {"id": f"chatcmpl-{name}", "model": "test-model"}
    choice: dict[str, Any] = {"index": 0, "message": answer, "finish_reason": "stop"}
    response["choices"] = [choice] if answer is not None else []
    values: dict[str, Any] = {
        "event_id": f"event-{name}",
        "tenant_id": "acme",
        "step_id": f"step-{name}",
        "method": "POST",
        "path": "/v1/chat/completions",
        "request_body": json.dumps(request).encode(),
        "response_headers": JSON_HEADERS,
        "response_body": json.dumps(response).encode(),
        "status": 200,
        "started_at": START,
        "ended_at": START + timedelta(seconds=1),
    }
    return Exchange(**{**values, **fields})


def changed(event: Exchange, fields: dict[str, Any]) -> Exchange:
    """The call with other values in fields that a test names at run time."""
    return replace(event, **fields)


def record(event: Any, offset: int, key: bytes | None = None) -> Received:
    """The raw record of an event, keyed as the gateway keys it."""
    if key is None and isinstance(event, Exchange):
        key = _key(event)
    return Received(topics.RAW_EVENTS, 0, offset, key or b"key", encode(event))


def _key(event: Exchange) -> bytes:
    if event.trajectory_id is not None:
        return trajectory_key(event.tenant_id, event.trajectory_id)
    try:
        messages = json.loads(event.request_body)["messages"]
    except (ValueError, RecursionError):  # the gateway digests the whole of what it cannot read
        return opening_key(event.tenant_id, keyed_digest(b"test", event.request_body))
    end = next((i for i, m in enumerate(messages) if m["role"] == "user"), len(messages) - 1)
    return opening_key(event.tenant_id, keyed_digest(b"test", json.dumps(messages[: end + 1])))


def calls_of(messages: Sequence[dict[str, Any]], name: str) -> list[Exchange]:
    """A conversation as its calls, each with its true history."""
    return [
        exchange(messages[:i], m, f"{name}-{i}")
        for i, m in enumerate(messages)
        if m["role"] == "assistant"
    ]
