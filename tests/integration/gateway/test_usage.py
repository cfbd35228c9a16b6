"""What a stream used is asked of the upstream, kept in the record, and hidden from a client that
did not ask."""

import json
from pathlib import Path

import pytest

from schemas.atdp.types import Exchange
from streams.redaction import chat
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    running,
)
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration

WORDS = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
USED = (
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,'
    b'"total_tokens":13}}\n\n'
)
END = b"data: [DONE]\n\n"


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [], "stream": True, **fields}).encode()


async def counts(connection: Connection) -> None:
    """Tells the usage to whoever asks."""
    options = json.loads(connection.body).get("stream_options") or {}
    told = USED if options.get("include_usage") else b""
    await connection.send(SSE_HEAD)
    for part in (WORDS, told, END):
        if part:
            await connection.chunk(part)
    await connection.send(b"0\r\n\r\n")


async def knows_no_options(connection: Connection) -> None:
    """Refuses the field."""
    if b"stream_options" in connection.body:
        head = b"HTTP/1.1 400 X\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
        await connection.send(head + b'{"error": 1}')
    else:
        await counts(connection)


@pytest.mark.parametrize("asks_itself", [False, True])
async def test_a_client_sees_the_usage_exactly_if_it_asked(
    tmp_path: Path, asks_itself: bool
) -> None:
    given = body(stream_options={"include_usage": True}) if asks_itself else body()
    upstream = ScriptedUpstream(counts)
    async with running(tmp_path, memory_bus(4), upstream, asks_usage=True) as gw:
        async with gw.post(CHAT, given) as answer:
            assert await answer.read() == WORDS + (USED if asks_itself else b"") + END
        (event,) = await gw.events(1)
    assert isinstance(event, Exchange)
    assert (event.request_body, event.response_body) == (given, WORDS + USED + END)
    assert event.added_fields == (() if asks_itself else ("stream_options",))
    read = chat.parse_response(event.response_body)
    assert read is not None
    assert read.usage["completion_tokens"] == 4


async def test_an_upstream_that_refuses_the_field_is_asked_once_without_it(tmp_path: Path) -> None:
    upstream = ScriptedUpstream(knows_no_options)
    async with running(tmp_path, memory_bus(4), upstream, asks_usage=True) as gw:
        for _ in range(2):
            async with gw.post(CHAT, body()) as answer:
                assert (answer.status, await answer.read()) == (200, WORDS + END)
        events = await gw.events(2)
    assert [b"stream_options" in c.body for c in upstream.seen] == [True, False, False]
    assert sorted(e.attempts for e in events) == [1, 2]
    assert {e.added_fields for e in events} == {()}, "of the answer that came"


async def test_a_refusal_that_is_the_calls_own_stays(tmp_path: Path) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 X\r\nContent-Length: 4\r\n\r\nmine")

    upstream = ScriptedUpstream(refuses)
    async with running(tmp_path, memory_bus(4), upstream, asks_usage=True) as gw:
        for _ in range(2):
            async with gw.post(CHAT, body()) as answer:
                assert (answer.status, await answer.read()) == (400, b"mine")
    assert len(upstream.seen) == 4, "it may yet take the field"
