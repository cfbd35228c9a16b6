"""The model of the benchmark: answers at once, whole or as a stream, and costs little.

`python -m infra.bench.upstream --port 22001`
"""

import argparse
import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Iterator

import orjson

MODEL = "bench"
_NUM_EVENTS = 24
_WORDS = "the answer is the same each time and has a length that models often give "
_CONTENT = _WORDS * 6


def whole_answer(response_id: str) -> bytes:
    """A chat completion of about 700 bytes."""
    message = {"role": "assistant", "content": _CONTENT}
    return orjson.dumps(
        {
            "id": response_id,
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 500, "completion_tokens": 90, "total_tokens": 590},
        }
    )


def events(response_id: str) -> list[bytes]:
    """The same answer as server-sent events."""
    step = len(_CONTENT) // _NUM_EVENTS + 1
    pieces = [_CONTENT[at : at + step] for at in range(0, len(_CONTENT), step)]
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"content": piece}, None) for piece in pieces
    ] + [({}, "stop")]
    chunks = [
        {
            "id": response_id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in deltas
    ]
    return [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


class Model(asyncio.Protocol):
    """One connection of a client."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        num_bytes = int(length or 0)
        if len(rest) < num_bytes:
            return
        body, self._received = rest[:num_bytes], rest[num_bytes:]
        response_id = f"chatcmpl-{os.getpid()}-{next(self.numbers)}"
        if b'"stream":true' in body:
            self._stream(events(response_id))
        else:
            self._send(b"application/json", whole_answer(response_id))

    def _send(self, content_type: bytes, body: bytes) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (content_type, len(body), body)
        )

    def _stream(self, chunks: list[bytes]) -> None:
        """Each event in a write of its own, as models send them, without waiting between."""
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        self._next(iter(chunks))

    def _next(self, chunks: Iterator[bytes]) -> None:
        assert self._transport is not None
        chunk = next(chunks, None)
        if chunk is None:
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        asyncio.get_running_loop().call_soon(self._next, chunks)


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(Model, "127.0.0.1", port)
    await stop.wait()
    server.close()


def main(arguments: list[str]) -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.upstream")
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(_serve(parser.parse_args(arguments).port))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
