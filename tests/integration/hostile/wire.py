"""A gateway over the memory bus, and a client that writes whatever bytes it likes."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from inference.edge.server import start_server
from inference.gateway.app import Gateway
from schemas import codec, topics
from schemas.atdp.types import Exchange
from schemas.bus.memory import MemoryBus
from tests.integration.gateway.harness import ScriptedUpstream, make_settings, new_key

CHAT = "/v1/chat/completions"
RATING = b'{"target":{"step_id":"s"},"name":"n","value":1}'


@dataclass(frozen=True)
class Answer:
    """Status, body and headers of what came back; status 0 where the connection just ended."""

    status: int
    body: bytes = b""
    head: bytes = b""

    @property
    def code(self) -> str:
        """The code in an error of OpenAI's form or of Anthropic's; fails for any other form."""
        error: dict[str, Any] = orjson.loads(self.body)["error"]
        assert error["message"]
        assert error["type"]
        return str(error["code"])


@dataclass
class Wire:
    """The gateway's port, a good key, and everything that went upstream."""

    gateway: Gateway
    port: int
    key: str
    upstream: ScriptedUpstream
    bus: MemoryBus
    runner: web.AppRunner

    @property
    def num_connections(self) -> int:
        """Connections that the gateway holds."""
        assert self.runner.server is not None
        return len(self.runner.server.connections)

    def exchanges(self) -> list[Exchange]:
        """The calls on the raw topic."""
        logs = self.bus.partitions(topics.RAW_EVENTS)
        events = [codec.decode(record.value) for log in logs for record in log.records]
        return [event for event in events if isinstance(event, Exchange)]

    async def raw(self, *parts: bytes, timeout_seconds: float = 10, eof: bool = False) -> Answer:
        """Send the parts, each on its own, and read one answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)  # a segment of its own
            if eof:
                writer.write_eof()
            method = parts[0].partition(b" ")[0].decode("latin-1")
            return await asyncio.wait_for(_read(reader, method), timeout_seconds)
        except (ConnectionError, asyncio.IncompleteReadError):
            return Answer(0)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Sequence[bytes] = (),
        *,
        framed: bool = True,
    ) -> bytes:
        """The bytes of a request with the key; without its length where `framed` is False."""
        lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x", *headers]
        lines += [f"x-headrace-key: {self.key}".encode(), b"Connection: close"]
        if framed:
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    async def still_works(self) -> bool:
        """Whether the next call is relayed and the next feedback taken."""
        call = await self.raw(self.request("POST", CHAT, b"{}"))
        rating = await self.raw(self.request("POST", "/v1/feedback", RATING))
        return (call.status, rating.status) == (200, 202)


async def _read(reader: asyncio.StreamReader, method: str) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head = await reader.readuntil(b"\r\n\r\n")
    status, is_head_only = int(head.split(b" ", 2)[1]), method == "HEAD"
    found = re.search(rb"content-length: (\d+)", head.lower())
    size = int(found.group(1)) if found and not is_head_only else 0
    return Answer(status, await reader.readexactly(size), head)


@asynccontextmanager
async def wired(folder: Path, upstream: ScriptedUpstream, **options: Any) -> AsyncIterator[Wire]:
    """A gateway for the length of the block."""
    bus = MemoryBus()
    bus.admin().create_topics(topics.all_topics(), 4, 1)
    _, key = new_key(bus)
    await upstream.start()
    gateway = Gateway(make_settings(folder, "nowhere:1", upstream.url, **options), bus)
    gateway.start()
    runner = await start_server(gateway.app(), gateway.settings.gateway)
    try:
        yield Wire(gateway, runner.addresses[0][1], key, upstream, bus, runner)
    finally:
        await gateway.calls.stop(1)
        await runner.cleanup()
        await gateway.close()
        await upstream.stop()
