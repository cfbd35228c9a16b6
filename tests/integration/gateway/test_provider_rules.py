"""What providers ask of a request passes byte for byte: signatures, cache marks, schemas."""

import json
from pathlib import Path

import pytest

from tests.integration.gateway.harness import (
    Connection,
    ScriptedUpstream,
    echo,
    running,
)
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration

SIGNATURE = "ErUBCkYIBhgCIkD" + "aB3/+=" * 60
THINKING = (
    '{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":'
    '{"type":"ephemeral","ttl":"1h"}}],"tools":[{"name":"f","input_schema":{"type":"object"},'
    '"cache_control":{"type":"ephemeral"}}],"messages":[{"role":"assistant","content":['
    f'{{"type":"thinking","thinking":"","signature":"{SIGNATURE}"}},'
    f'{{"type":"redacted_thinking","data":"{SIGNATURE}"}},'
    '{"type":"tool_use","id":"toolu_1","name":"f","input":{"b":1,"a":0.10}}]},'
    '{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x",'
    '"cache_control":{"type":"ephemeral"}}]}]}'
).encode()
SCHEMA = (
    b'{"model":"m","messages":[],"response_format":{"type":"json_schema","json_schema":{"strict":'
    b'true,"name":"n","schema":{"$defs":{"z":{"type":"null"},"a":{"type":"string"}},"properties":'
    b'{"b":{"$ref":"#/$defs/z"},"a":{"$ref":"#/$defs/a"}},"required":["b","a"]}}}}'
)
CONTENTS = [
    b'{"messages":[{"role":"assistant","content":null,"tool_calls":[]}]}',
    b'{"messages":[{"role":"assistant","content":"","tool_calls":null}]}',
    b'{"messages":[{"role":"assistant"}]}',
    b'{"messages":[{"role":"assistant","content":[{"type":"text","text":""}]}]}',
]
NUMBERS = b'{"seed":12345678901234567890,"x_unknown":{"b":1,"a":0.10},"temperature":1e0}'
BODIES = [
    ("/v1/messages?beta=true", THINKING), ("/v1/chat/completions", SCHEMA),
    *(("/v1/chat/completions", body) for body in CONTENTS), ("/v1/responses", NUMBERS),
    ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"\\ud83d"}]}'),
    ("/v1/embeddings", b'{"input":["a"],"encoding_format":"base64","dimensions":3072}'),
]  # fmt: skip


async def test_the_upstream_and_the_record_get_the_clients_bytes(tmp_path: Path) -> None:
    upstream = ScriptedUpstream(echo)
    async with running(tmp_path, memory_bus(4), upstream) as gw:
        for path, body in BODIES:
            async with gw.post(path, body) as answer:
                assert (answer.status, await answer.read()) == (200, body)
        events = await gw.events(len(BODIES))
    assert [connection.body for connection in upstream.seen] == [body for _, body in BODIES]
    assert {event.request_body for event in events} == {body for _, body in BODIES}


async def test_what_a_model_of_our_own_is_asked_beside_keeps_all_else(tmp_path: Path) -> None:
    upstream = ScriptedUpstream(echo)
    async with (
        running(tmp_path, memory_bus(4), upstream, asks_tokens=True) as gw,
        gw.post("/v1/chat/completions", SCHEMA) as answer,
    ):
        assert answer.status == 200
    added = b'{"return_token_ids":true,"logprobs":true,'
    assert upstream.seen[0].body == SCHEMA.replace(b"{", added, 1)


async def test_a_dialect_that_the_upstream_lacks_is_its_own_refusal(tmp_path: Path) -> None:
    """An upstream that serves Chat Completions only."""

    async def chat_only(connection: Connection) -> None:
        said = b'{"detail":"Not Found"}'
        head = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
        await connection.send(head + b"Content-Length: %d\r\n\r\n%b" % (len(said), said))

    async with running(tmp_path, memory_bus(4), ScriptedUpstream(chat_only)) as gw:
        async with gw.post("/v1/messages", THINKING) as answer:
            assert (answer.status, json.loads(await answer.read())) == (
                404,
                {"detail": "Not Found"},
            )
        [event] = await gw.events(1)
    assert (event.outcome.value, event.status) == ("complete", 404)
