"""The model of the benchmark: answers whole or as a stream, and costs little.

It answers at once, or as the request's messages say, which every proxy passes on:
`bench wait=60 pace=20 events=25` begins after 60 ms and sends so many events, one every 20 ms, each
with the time at which it was sent.

`python -m infra.bench.upstream --port 22001`
"""

import argparse
import asyncio
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

MODEL = "bench"
_NUM_EVENTS = 24
_WORDS = "the answer is the same each time and has a length that models often give "
_CONTENT = _WORDS * 6
_STREAMS = re.compile(rb'"stream":\s*true')
_PACE = re.compile(rb"bench wait=(\d+) pace=(\d+) events=(\d+)")
#: Of a longer request only the end is looked at.
_LOOKS_THROUGH_BYTES = 100_000
#: When an event was sent, in its text: seconds on `time.perf_counter`, which all processes share.
STAMP = re.compile(rb"@(\d+\.\d+) ")


@dataclass(frozen=True)
class Pace:
    """Seconds before an answer begins and between its events, and how many events it has."""

    wait_seconds: float
    pace_seconds: float
    num_events: int

    @property
    def asked(self) -> str:
        """The words of a message that ask for it."""
        wait, pace = (round(s * 1000) for s in (self.wait_seconds, self.pace_seconds))
        return f"bench wait={wait} pace={pace} events={self.num_events}"


def pace_of(body: bytes) -> Pace | None:
    """What a request asks for; None where it is answered at once."""
    found = _PACE.search(body)
    if found is None:
        return None
    wait, pace, number = map(int, found.groups())
    return Pace(wait / 1000, pace / 1000, number)


def stamped(response_id: str) -> bytes:
    """An event that tells when it was sent."""
    delta = {"content": f"@{time.perf_counter():.6f} word"}
    return _event(response_id, delta, None)


def _event(response_id: str, delta: dict[str, str], reason: str | None) -> bytes:
    chunk = {
        "id": response_id,
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


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
    written = [_event(response_id, delta, reason) for delta, reason in deltas]
    return [*written, b"data: [DONE]\n\n"]


class Model(asyncio.Protocol):
    """One connection of a client."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._wanted_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self._received += data
        if not self._wanted_bytes:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._wanted_bytes = end + 4 + int(length or 0)
        if len(self._received) < self._wanted_bytes:
            return
        body = bytes(self._received[: self._wanted_bytes])
        del self._received[: self._wanted_bytes]
        self._wanted_bytes = 0
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        response_id = f"chatcmpl-{os.getpid()}-{next(self.numbers)}"
        looked_at = body if len(body) <= _LOOKS_THROUGH_BYTES else body[-1_000:]
        pace, streams = pace_of(looked_at), _STREAMS.search(looked_at) is not None
        loop = asyncio.get_running_loop()
        if pace is not None:
            begin = self._begin_paced if streams else self._whole
            loop.call_later(pace.wait_seconds, begin, response_id, pace)
        elif streams:
            self._head()
            self._next(iter(events(response_id)))
        else:
            self._whole(response_id)

    def _whole(self, response_id: str, _pace: Pace | None = None) -> None:
        assert self._transport is not None
        body = whole_answer(response_id)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    def _head(self) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def _next(self, chunks: Iterator[bytes]) -> None:
        """Each event in a write of its own, as models send them, without waiting between."""
        chunk = next(chunks, None)
        self._chunk(chunk)
        if chunk is not None:
            asyncio.get_running_loop().call_soon(self._next, chunks)

    def _begin_paced(self, response_id: str, pace: Pace) -> None:
        self._head()
        self._paced(response_id, pace, asyncio.get_running_loop().time(), pace.num_events)

    def _paced(self, response_id: str, pace: Pace, due_at: float, num_left: int) -> None:
        if num_left == 0:
            self._chunk(_event(response_id, {}, "stop") + b"data: [DONE]\n\n")
            self._chunk(None)
            return
        self._chunk(stamped(response_id))
        due_at += pace.pace_seconds
        asyncio.get_running_loop().call_at(
            due_at, self._paced, response_id, pace, due_at, num_left - 1
        )

    def _chunk(self, chunk: bytes | None) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            ended = b"0\r\n\r\n" if chunk is None else b"%x\r\n%b\r\n" % (len(chunk), chunk)
            self._transport.write(ended)


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
