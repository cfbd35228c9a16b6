"""Connections to upstreams: kept and used again, never for two at once, and ended in time."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from inference.upstreams import connections as module
from inference.upstreams.connections import (
    Answer,
    Connections,
    StaleConnectionError,
    UnreachableError,
    head_of,
    origin_of,
)
from tests.certificates import Authority
from tests.integration.gateway.harness import eventually

Script = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Counts its connections and does with each request what a script says."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.num_connections = 0
        self.num_open = 0
        self.heads: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.num_open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                await self.script(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.num_open -= 1
            writer.close()


async def ok(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@asynccontextmanager
async def serving(script: Script = ok) -> AsyncIterator[tuple[Server, Connections]]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    found = Connections(connect_seconds=5, read_seconds=5)
    try:
        yield server, found
    finally:
        await found.close()
        listening.close()


async def send(
    connections: Connections, server: Server, body: bytes = b"{}", *, fresh: bool = False
) -> Answer:
    origin = origin_of(f"http://127.0.0.1:{server.port}/base")
    return await connections.send(origin, "POST", "/v1/x", [], body, fresh=fresh)


async def read(connections: Connections, server: Server, body: bytes = b"{}") -> bytes:
    async with await send(connections, server, body) as answer:
        return await answer.read()


async def test_one_after_the_other_share_a_connection() -> None:
    async with serving() as (server, connections):
        for _ in range(5):
            assert await read(connections, server) == b"{}"
        assert server.num_connections == 1
        assert server.heads[0].startswith(b"POST /base/v1/x HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_those_at_the_same_time_do_not() -> None:
    async with serving() as (server, connections):
        first, second = await send(connections, server), await send(connections, server)
        assert [await second.read(), await first.read()] == [b"{}", b"{}"]
        first.release()
        first.release()
        second.release()
        await asyncio.gather(*(read(connections, server) for _ in range(2)))
        assert server.num_connections == 2


async def test_an_answer_that_was_not_read_costs_its_connection() -> None:
    async def half(_h: bytes, _r: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")

    async with serving(half) as (server, connections):
        for _ in range(2):
            (await send(connections, server)).release()
        assert server.num_connections == 2
        await eventually(lambda: server.num_open == 0)


async def test_a_fresh_one_is_not_kept() -> None:
    async with serving() as (server, connections):
        await read(connections, server)
        async with await send(connections, server, fresh=True) as answer:
            await answer.read()
        assert b"\r\nConnection: close\r\n" in server.heads[1]
        await read(connections, server)
        assert server.num_connections == 2


async def test_one_that_the_server_closed_is_stale_at_most_once() -> None:
    async def closes(_h: bytes, _r: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.num_connections == 1 and len(server.heads) == 2:
            writer.transport.abort()
        else:
            await ok(_h, _r, writer)

    async with serving(closes) as (server, connections):
        await read(connections, server)
        with pytest.raises(StaleConnectionError):
            await read(connections, server)
        assert await read(connections, server) == b"{}"


async def test_a_new_one_that_breaks_is_no_stale_one() -> None:
    async def breaks(_h: bytes, _r: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with serving(breaks) as (server, connections):
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await read(connections, server)


async def test_what_is_not_used_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.05)
    async with serving() as (server, connections):
        await read(connections, server)
        await eventually(lambda: server.num_open == 0)
        assert await read(connections, server) == b"{}"
        assert server.num_connections == 2


async def test_a_call_that_is_cancelled_ends_its_connection() -> None:
    async def silent(_h: bytes, reader: asyncio.StreamReader, _w: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)

    async with serving(silent) as (server, connections):
        for body in (b"{}", b"x" * 30_000_000):  # the larger one is still on its way
            call = asyncio.create_task(read(connections, server, body))
            number = server.num_connections + 1
            await eventually(lambda number=number: server.num_connections == number)  # type: ignore[misc]
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await eventually(lambda: server.num_open == 0)


async def test_a_large_body_arrives_whole() -> None:
    async with serving() as (server, connections):
        assert await read(connections, server, b"x" * 5_000_000) == b"{}"
        assert b"Content-Length: 5000000\r\n" in server.heads[0]


async def test_no_answer_and_no_server_are_told_apart() -> None:
    async def continues(_h: bytes, _r: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await ok(_h, _r, writer)

    async with serving(continues) as (server, connections):
        assert await read(connections, server) == b"{}"
        port, server.port = server.port, 1
        with pytest.raises(UnreachableError):
            await read(connections, server)
        server.port = port

    async def nonsense(_h: bytes, _r: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no HTTP at all\r\n\r\n")

    async with serving(nonsense) as (server, connections):
        with pytest.raises(aiohttp.ClientPayloadError):
            await read(connections, server)


async def test_a_secure_upstream_must_have_a_certificate_that_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    server, context = Server(ok), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("upstream"))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    origin = origin_of(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    for trusted, body in ((False, b""), (True, b"x" * 3_000_000)):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
        connections = Connections(connect_seconds=5, read_seconds=5)
        if not trusted:
            with pytest.raises(UnreachableError):
                await connections.send(origin, "GET", "/", [], body)
        else:
            for _ in range(2):
                async with await connections.send(origin, "POST", "/", [], body) as answer:
                    assert await answer.read() == b"{}"
        await connections.close()
    assert len(server.heads) == 2
    await eventually(lambda: server.num_open == 0)
    listening.close()


def test_a_head_is_one_request() -> None:
    origin = origin_of("https://[::1]:8443/x/")
    head = head_of(origin, "GET", "/v1/models?a=%41", [("a", "é")], 0)
    assert head == ("GET /x/v1/models?a=%41 HTTP/1.1\r\nHost: [::1]:8443\r\na: é\r\n\r\n".encode())
    assert b"Content-Length: 0" in head_of(origin, "POST", "/", [], 0)
    assert origin_of("https://api.example.com").port == 443
    assert origin_of("https://api.example.com").name == "api.example.com"
    for value in ("a\r\nb: c", "a\nb", "a\rb"):
        with pytest.raises(ValueError, match="end of a line"):
            head_of(origin, "GET", "/", [("a", value)], 0)
