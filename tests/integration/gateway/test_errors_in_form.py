"""An error of our own engine reaches a client in the form of its dialect; others stay."""

import json
from pathlib import Path

import pytest

from inference.dialects.errors import restated
from tests.integration.gateway.harness import Connection, ScriptedUpstream, running
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration

OPENAIS = (
    b'{"error":{"message":"1 validation error: max_tokens","type":"Bad Request",'
    b'"param":"max_tokens","code":400}}'
)
ANTHROPICS = b'{"type":"error","error":{"type":"not_found_error","message":"no model"}}'


def refuses(status: int, body: bytes) -> ScriptedUpstream:
    async def script(connection: Connection) -> None:
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(body)}", "", ""]
        await connection.send("\r\n".join(lines).encode() + body)

    return ScriptedUpstream(script)


@pytest.mark.parametrize("own", [True, False])
async def test_messages_clients_get_anthropics_form_of_our_own_engine(
    tmp_path: Path, own: bool
) -> None:
    async with running(tmp_path, memory_bus(4), refuses(400, OPENAIS), asks_tokens=own) as gw:
        async with gw.post("/v1/messages?beta=true", b"{}") as answer:
            status, body = answer.status, await answer.read()
            assert answer.headers["Content-Length"] == str(len(body))
        async with gw.post("/v1/responses", b"{}") as answer:
            assert await answer.read() == OPENAIS, "which is its own form"
        events = await gw.events(2)
    assert status == 400
    assert {event.response_body for event in events} == {OPENAIS}
    if not own:
        assert body == OPENAIS
        return
    said = json.loads(body)
    assert said["type"] == "error"
    assert said["error"]["type"] == "invalid_request_error"
    assert said["error"]["message"] == "1 validation error: max_tokens"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error":1}', b'{"error":{"message":1}}'])
def test_what_is_no_error_or_has_its_form_stays(body: bytes) -> None:
    assert restated("/v1/messages", 500, body) is None
    assert restated("/v1/messages", 404, ANTHROPICS) is None
    assert restated("/v1/chat/completions", 400, OPENAIS) is None
