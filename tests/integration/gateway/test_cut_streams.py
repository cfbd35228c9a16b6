"""Streams in any dialect, any line end, any framing: the client's bytes and the record's are the
upstream's, and the record reads as the same answer."""

import random
from collections.abc import Iterator
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
    for piece in pieces(framed(made(number)[1], chance), chance):
        await connection.send(piece)
    if b"connection: close" in framed(b"", random.Random(-number - 1)):
        connection.writer.close()


def framed(stream: bytes, chance: random.Random) -> bytes:
    """The answer with its body in chunks of any size, of a length said before, or to the end of
    the connection."""
    kind = chance.choice(["chunks", "length", "end"])
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    if kind == "length":
        return head + b"content-length: %d\r\n\r\n%b" % (len(stream), stream)
    if kind == "end":
        return head + b"connection: close\r\n\r\n" + stream
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces(stream, chance)]
    return SSE_HEAD + b"".join([*chunks, b"0\r\n\r\n"])


def pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The bytes in pieces of a few sizes."""
    while data:
        length = chance.choice([1, 2, 7, 60, 4_000])
        yield data[:length]
        data = data[length:]


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
