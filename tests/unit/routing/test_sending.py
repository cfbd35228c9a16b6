"""One call on its way to a ring: who answers it, after how many tries."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from inference.routing.follow import RouteFollower
from inference.routing.router import NoWorkerError, Router
from inference.routing.table import Routes, Worker
from inference.upstreams import sending as sending_module
from inference.upstreams.http import Upstream
from inference.upstreams.sending import Sending, Way
from schemas.bus.memory import MemoryBus
from schemas.settings import GatewaySettings
from schemas.telemetry import Metrics

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answers(status: int, body: bytes = b"{}") -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()

    return script


async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and dies."""
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


@asynccontextmanager
async def sending(*scripts: Script | None) -> AsyncIterator[tuple[Sending, Router]]:
    """A call to workers that do this, in that order; None for one that is not there."""
    async with AsyncExitStack() as stack:
        tiers = []
        for number, script in enumerate(scripts):
            server = await asyncio.start_server(script or breaks, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            if script is None:
                server.close()
            else:
                await stack.enter_async_context(server)
            tiers.append((Worker(f"w{number}", f"http://127.0.0.1:{port}", number),))
        router = Router(RouteFollower(MemoryBus(), "main", "default"), b"k" * 32, Metrics())
        router.follower.routes = Routes(stable=tuple(tiers))
        upstream = Upstream(GatewaySettings(ring="default"))
        try:
            way = Way(upstream.places.default, "/v1/models", b"")
            yield Sending(upstream, router, "/v1/models", "", b"call", [way]), router
        finally:
            await upstream.close()


@pytest.mark.parametrize(
    ("scripts", "status", "num_attempts"),
    [
        ((answers(200),), 200, 1),
        ((None, answers(200)), 200, 2),
        ((breaks, None, answers(200)), 200, 3),
        ((answers(503), answers(200)), 200, 2),
        ((answers(503), answers(503)), 503, 2),  # the last one's own words reach the client
        ((answers(500), answers(200)), 500, 1),  # an answer is an answer
        ((answers(429), answers(200)), 429, 1),
    ],
)
async def test_the_first_that_answers(
    scripts: tuple[Script | None, ...], status: int, num_attempts: int
) -> None:
    async with sending(*scripts) as (call, _):
        answer = await call.open("GET", [])
        assert (answer.status, await answer.read()) == (status, b"{}")
        assert call.num_attempts == num_attempts


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending_module, "HOLD_SECONDS", 0.1)
    async with sending(None, breaks) as (call, _):
        with pytest.raises(NoWorkerError):
            await call.open("GET", [])
        assert call.num_attempts == 2


async def test_a_worker_that_can_answer_a_moment_later_does() -> None:
    """One is dead and not known to be, the other is between two versions."""
    async with sending(None, answers(200)) as (call, router):
        [dead, moving] = router.follower.routes.stable
        router.follower.routes = Routes(stable=(dead,))
        opening = asyncio.create_task(call.open("GET", []))
        await asyncio.sleep(0.1)
        assert not opening.done()
        router.follower.routes = Routes(stable=(moving, dead))
        assert (await opening).status == 200
        assert call.num_attempts == 2


async def test_the_next_call_does_not_begin_with_who_failed() -> None:
    async with sending(None, answers(200)) as (call, router):
        await call.open("GET", [])
        assert [w.worker_id for w in await router.workers(b"call")] == ["w1", "w0"]
