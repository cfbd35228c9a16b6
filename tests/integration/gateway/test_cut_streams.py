"""Streams in any dialect, any line end, any framing: the client's bytes and the record's are the
upstream's, and the record reads as the same answer."""

import random
from pathlib import Path

import pytest

from schemas.atdp.types import Exchange
from streams.redaction.dialects.registry import dialect_of, reader_of
from tests.integration.gateway.harness import SSE_HEAD, Connection, ScriptedUpstream, running
from tests.model_answers import (
    chat_stream,
    messages_stream,
    responses_stream,
    said_nothing_more,
    sse,
)
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration
_NUM_STREAMS = 45
_MAKERS = {
    "/v1/chat/completions": lambda name: chat_stream({"content": f"你好🙂 {name}"}, name),
    "/v1/messages": lambda name: messages_stream({"content": f"你好🙂 {name}"}, name),
    "/v1/responses": lambda name: responses_stream(said_nothing_more("/v1/responses"), name),
}


def made(number: int) -> tuple[str, bytes]:
    """A path and a stream for it."""
    chance = random.Random(number)
    path = list(_MAKERS)[number % len(_MAKERS)]
    end = chance.choice([b"\n", b"\r\n", b"\r"])
    noise = chance.choice([b"", b": ping\n\n", b"\n\n"])
    stream = noise + sse(_MAKERS[path](str(number)))
    whole = stream.replace(b"\n", end)
    return path, whole[: chance.choice([len(whole), chance.randrange(len(whole))])]


async def script(connection: Connection) -> None:
    """Send the stream that the request names, cut at random."""
    number = int(connection.body)
    chance = random.Random(-number - 1)
    stream = made(number)[1]
    await connection.send(SSE_HEAD)
    while stream:
        length = chance.choice([1, 2, 7, 60, 4_000])
        await connection.chunk(stream[:length])
        stream = stream[length:]
    await connection.send(b"0\r\n\r\n")


async def test_bytes_are_the_upstreams_whatever_the_cuts(tmp_path: Path) -> None:
    async with running(tmp_path, memory_bus(4), ScriptedUpstream(script)) as gateway:
        for number in range(_NUM_STREAMS):
            path, stream = made(number)
            async with gateway.post(path, str(number)) as answer:
                assert await answer.read() == stream
        events = await gateway.events(_NUM_STREAMS)
    kept = {int(e.request_body): e for e in events if isinstance(e, Exchange)}
    assert len(kept) == _NUM_STREAMS
    for number, exchange in kept.items():
        path, stream = made(number)
        assert exchange.response_body == stream
        dialect = reader_of(dialect_of("POST", path))
        assert dialect is not None
        read = dialect.parse_response(exchange.response_body)
        whole = dialect.parse_response(sse(_MAKERS[path](str(number))))
        assert whole is not None
        is_whole = len(stream) >= len(sse(_MAKERS[path](str(number))))
        assert read == whole if is_whole else read is None or read.failed is False
