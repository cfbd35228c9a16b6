"""A gateway in this process, an upstream that follows a script byte by byte, a reader of Kafka."""

import asyncio
import struct
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from inference.edge.server import start_server
from inference.gateway.app import Gateway
from infra.cli.keys import make_key, publish_key
from schemas import codec, topics
from schemas.bus import Bus
from schemas.bus.kafka import KafkaBus
from schemas.errors import TransientError
from schemas.secrets import create_root_secret
from schemas.settings import Settings

CHAT = "/v1/chat/completions"
ALL_SCOPES = ("capture", "feedback:write", "events:write", "trajectories:read")
Script = Callable[["Connection"], Awaitable[None]]


@dataclass
class Connection:
    """One request as it came over a socket, and the socket to answer on."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, data: bytes) -> None:
        """Write at once."""
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def reset(self) -> None:
        """End the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER 0
        self.writer.transport.abort()


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def whole(body: bytes, *extra: bytes) -> bytes:
    """A complete JSON answer."""
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: application/json", *extra]
    return b"\r\n".join([*lines, f"Content-Length: {len(body)}".encode(), b"", body])


async def echo(connection: Connection) -> None:
    """Answers with what it was sent."""
    await connection.send(whole(connection.body))


def in_two(first: bytes, goes_on: asyncio.Event, second: bytes) -> Script:
    """A stream of two chunks, the second one when that is set."""

    async def script(connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        await connection.chunk(first)
        await goes_on.wait()
        await connection.chunk(second)
        await connection.send(b"0\r\n\r\n")

    return script


class ScriptedUpstream:
    """An HTTP/1.1 server that does exactly what a script says, once per request."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Connection] = []
        self.closed_by_peer = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        """Base URL."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        """Listen on a free port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _content_length(head)
                body = await reader.readexactly(length) if length else b""
                connection = Connection(head, body, reader, writer, len(self.seen))
                self.seen.append(connection)
                await self.script(connection)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed_by_peer.set()
        finally:
            writer.close()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@dataclass
class Running:
    """A gateway that accepts connections, and how to see what it published."""

    gateway: Gateway
    url: str
    tenant: str
    key: str
    bus: Bus
    start: dict[tuple[str, int], int]
    http: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, data: Any, **headers: str) -> Any:
        """A POST with the key."""
        return self.http.post(f"{self.url}{path}", data=data, headers=self.headers | headers)

    async def events(self, count: int, timeout_seconds: float = 30) -> list[Any]:
        """The tenant's events on the raw topic once there are `count`."""
        return await read_events(self.bus, self.start, self.tenant, count, timeout_seconds)


def positions(bus: Bus) -> dict[tuple[str, int], int]:
    """Ends of the raw topic's partitions."""
    admin = bus.admin()
    ends = {
        (topics.RAW_EVENTS, p): end for p, (_, end) in admin.watermarks(topics.RAW_EVENTS).items()
    }
    admin.close()
    return ends


async def read_events(
    bus: Bus,
    start: dict[tuple[str, int], int],
    tenant: str,
    count: int,
    timeout_seconds: float = 30,
) -> list[Any]:
    """Poll from `start` until `count` events of the tenant are there."""
    consumer = bus.consumer()
    consumer.assign(start)
    found: list[Any] = []
    deadline = time.monotonic() + timeout_seconds
    try:
        while len(found) < count and time.monotonic() < deadline:
            received = await asyncio.to_thread(consumer.poll, 500, 0.1)
            events = [codec.decode(r.value) for r in received]
            found.extend(e for e in events if e.tenant_id == tenant)
    finally:
        consumer.close()
    assert len(found) >= count, f"{len(found)} of {count} events arrived"
    return found


async def eventually(condition: Callable[[], Any], timeout_seconds: float = 10) -> None:
    """Wait for a condition; fails when it does not come."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)


def make_bus(kafka: str) -> KafkaBus:
    """The broker with all topics."""
    bus = KafkaBus(kafka)
    admin = bus.admin()
    admin.create_topics(topics.all_topics(), 4, 1)
    for name in (topics.KEYS, topics.RAW_EVENTS):  # new partitions need a moment for their leader
        _when_it_has_a_leader(lambda name=name: admin.watermarks(name))  # type: ignore[misc]
    return bus


def _when_it_has_a_leader(ask: Callable[[], Any], timeout_seconds: float = 20) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            ask()
        except TransientError:
            assert time.monotonic() < deadline, "a topic got no leader"
        else:
            return


def make_settings(
    data_dir: Path, kafka: str, upstream: str, api_key_file: Path | None = None,
    asks_tokens: bool | None = None, asks_usage: bool = False, **gateway: Any,
) -> Settings:  # fmt: skip
    """Settings of a gateway on a free port."""
    create_root_secret(data_dir / "secrets" / "root")
    named = {
        "url": f"{upstream}/v1",
        "api_key_file": api_key_file,
        "asks_tokens": asks_tokens,
        "asks_usage": asks_usage,
    }
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "kafka": {"bootstrap_servers": kafka},
            "gateway": {"port": 0, "upstream": named, **gateway},
        }
    )


def new_key(bus: Bus, *scopes: str, tenant: str | None = None) -> tuple[str, str]:
    """A published key of a new tenant; (tenant, key)."""
    tenant = tenant or f"t{uuid.uuid4().hex[:12]}"
    key, record = make_key(tenant, scopes or ALL_SCOPES)
    publish_key(bus, record)
    return tenant, key


@asynccontextmanager
async def running(
    data_dir: Path, kafka: str | Bus, upstream: ScriptedUpstream, *,
    may_be_learned_from: bool = False, **gateway: Any,
) -> AsyncIterator[Running]:  # fmt: skip
    """A gateway and its upstream for the length of the block. `kafka`: a broker, or a bus."""
    bus = make_bus(kafka) if isinstance(kafka, str) else kafka
    kafka = kafka if isinstance(kafka, str) else "127.0.0.1:1"
    tenant, key = new_key(bus)
    start = positions(bus)
    await upstream.start()
    settings = make_settings(data_dir, kafka, upstream.url, **gateway)
    eligible = (tenant,) if may_be_learned_from else ()
    made = Gateway(settings.model_copy(update={"training_eligible_tenants": eligible}), bus)
    made.start()
    runner = await start_server(made.app(), made.settings.gateway)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as http:
        try:
            yield Running(made, url, tenant, key, bus, start, http, {"x-headrace-key": key})
        finally:
            await made.calls.stop(2)
            await runner.cleanup()
            await made.close()
            await upstream.stop()
