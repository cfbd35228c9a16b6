"""What real clients sent, put to our own model: served, or refused with a 4xx in their own form."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.harness import Running, running
from tests.integration.gateway.test_real_engine import POLICY, ROOT, RunningEngine
from tests.live_engine import LiveEngine, ask
from tests.recorded_clients import Sent, runs
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration

#: Fields whose text has a meaning; all other text is cut, since the model has little room.
_KEPT = frozenset({
    "type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "name", "arguments", "input",
    "encrypted_content", "signature", "data", "tool_choice", "include", "effort", "summary",
})  # fmt: skip
_NUM_CHARACTERS = 6
_SCHEMAS = ("parameters", "input_schema")


def shortened(value: Any, key: str = "") -> Any:
    """The same request with short texts and tools without arguments."""
    if isinstance(value, str):
        return value if key in _KEPT else value[:_NUM_CHARACTERS]
    if isinstance(value, list):
        return [shortened(item, key) for item in (value[-3:] if key == "tools" else value)]
    if isinstance(value, dict):
        empty = {"type": "object", "properties": {}}
        return {n: empty if n in _SCHEMAS else shortened(v, n) for n, v in value.items()}
    return value


def asked(sent: Sent) -> dict[str, Any]:
    """A request to our model that asks for three tokens."""
    body: dict[str, Any] = shortened(sent.body) | {"model": "main"}
    if "responses" in sent.path:
        return body | {"max_output_tokens": 3}
    if "embeddings" in sent.path or "count_tokens" in sent.path:
        return body
    return body | {"max_completion_tokens" if "max_completion_tokens" in body else "max_tokens": 3}


def of_every_kind(folder: Path) -> Iterator[tuple[str, Sent]]:
    """The last request of each client to each path: the one with most history."""
    for name, run in runs(folder).items():
        last = {s.path: s for s in run if s.method == "POST" and s.body and "/v1/" in s.path}
        yield from ((name, sent) for sent in last.values())


async def answered(gw: Running, sent: Sent) -> tuple[int, bytes]:
    """How it is answered."""
    url, body = f"{gw.url}{sent.path}", json.dumps(asked(sent))
    pairs = [*sent.headers, *gw.headers.items()]
    async with gw.http.post(url, data=body, headers=pairs) as answer:
        return answer.status, await answer.read()


def is_right(path: str, status: int, said: bytes) -> bool:
    """Served, or refused with a sentence in the form of the path's clients."""
    if status == 200:
        return True
    error = json.loads(said) if 400 <= status < 500 else {}
    has_form = error.get("type") == "error" or not path.startswith("/v1/messages")
    return has_form and bool(error.get("error", {}).get("message"))


@pytest.mark.timeout(600)
async def test_clients_are_served_or_told_why_not(
    tmp_path: Path, live_engine: LiveEngine, shared_data: Path
) -> None:
    live_engine.client.label({"policy": POLICY, "version": 1, "root": ROOT, "refusal": None})
    # The first request for log-probabilities waits until torch has compiled what counts them.
    ask(live_engine.url, tokens=3, timeout_seconds=300.0, logprobs=1)
    upstream = RunningEngine(live_engine.url)
    served: dict[str, set[int]] = {}
    wrong: list[tuple[str, str, int, bytes]] = []
    async with running(tmp_path, memory_bus(4), upstream, asks_tokens=True) as gw:
        for name, sent in of_every_kind(shared_data / "requests"):
            path, (status, said) = sent.path.partition("?")[0], await answered(gw, sent)
            served.setdefault(path, set()).add(status)
            if not is_right(path, status, said):
                wrong.append((name, path, status, said[:300]))
    assert wrong == []
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        assert 200 in served[path], served
