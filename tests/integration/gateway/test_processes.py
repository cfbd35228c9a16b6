"""Several gateway processes on one port: one dies, all drain, upstreams are read anew."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from inference.fleet.supervisor import Fleet, hold_port
from schemas import codec
from schemas.atdp import Exchange
from schemas.atdp.types import Outcome
from schemas.bus import Bus, Received
from schemas.errors import ConfigError
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    echo,
    eventually,
    in_two,
    make_bus,
    make_settings,
    new_key,
    positions,
)
from tests.ports import free_ports

pytestmark = pytest.mark.integration


@dataclass
class Stage:
    """A running gateway of several processes and what it was started with."""

    process: asyncio.subprocess.Process
    folder: Path
    url: str
    config: Path
    headers: dict[str, str]

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def spools(self) -> set[str]:
        return {path.name for path in (self.folder / "spool").glob("[0-9a-f]*")}

    def write(self, upstream: str, **gateway: object) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in gateway.items()]
        tables = ["[gateway]", *lines, "[gateway.upstream]", f'url = "{upstream}"']
        self.config.write_text("\n".join(tables))

    async def post(self, http: aiohttp.ClientSession, body: bytes) -> tuple[int, bytes]:
        async with http.post(self.url + CHAT, data=body, headers=self.headers) as answer:
            return answer.status, await answer.read()


def fresh() -> aiohttp.ClientSession:
    """Each request on a connection of its own, so that any process may get it."""
    timeout = aiohttp.ClientTimeout(30)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout)


@asynccontextmanager
async def several(tmp_path: Path, kafka: str, upstream: str, key: str) -> AsyncIterator[Stage]:
    (port,) = free_ports(1)
    settings = make_settings(tmp_path / "data", kafka, upstream)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | {
        "HEADRACE_DATA_DIR": str(settings.data_dir),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "HEADRACE_GATEWAY__PORT": str(port),
        "HEADRACE_CONFIG": str(tmp_path / "headrace.toml"),
    }
    stage = Stage.__new__(Stage)
    stage.folder, stage.config = settings.data_dir, tmp_path / "headrace.toml"
    stage.url, stage.headers = f"http://127.0.0.1:{port}", {"x-headrace-key": key}
    stage.write(upstream)
    with (tmp_path / "log").open("wb") as log:
        stage.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "inference.gateway", "--workers", "2", env=environment, stderr=log
        )
    try:
        await until_ready(stage)
        yield stage
    finally:
        if stage.process.returncode is None:
            stage.process.terminate()
            await asyncio.wait_for(stage.process.wait(), 60)


async def until_ready(stage: Stage, num_processes: int = 2) -> None:
    """Until so many processes say that they are ready."""
    seen: set[str] = set()
    async with fresh() as http:
        for _ in range(3000):
            try:
                async with http.get(f"{stage.url}/ready") as answer:
                    async with http.get(f"{stage.url}/metrics") as metrics:
                        lines = (await metrics.text()).splitlines()
                    healthy = [line for line in lines if line.startswith("headrace_healthy{")]
                    seen = {line for line in healthy if line.endswith(" 1.0")}
                    if answer.status == 200 and len(seen) == num_processes:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)
    raise AssertionError(f"only {sorted(seen)} are ready")


async def test_a_dead_process_is_started_again_and_its_calls_are_kept(
    tmp_path: Path, kafka: str
) -> None:
    holds = asyncio.Event()

    async def held(connection: Connection) -> None:
        if connection.body == b"held":
            await connection.send(SSE_HEAD)
            await connection.chunk(b"data: begun\n\n")
            await holds.wait()
        await echo(connection)

    upstream = ScriptedUpstream(held)
    await upstream.start()
    bus = make_bus(kafka)
    tenant, key = new_key(bus, "capture")
    start = positions(bus)
    async with several(tmp_path, kafka, upstream.url, key) as stage, fresh() as http:
        for number in range(20):
            assert await stage.post(http, str(number).encode()) == (200, str(number).encode())
        before, spools = set(stage.children()), stage.spools()
        assert len(before) == len(spools) == 2
        async with http.post(stage.url + CHAT, data=b"held", headers=stage.headers) as answer:
            assert await answer.content.readany() == b"data: begun\n\n"
            victim = int(next(iter(before)))
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: len(set(stage.children()) - {victim}) == 2, 30)
            holds.set()
        # What the dead one left is adopted and published, and the new one has a spool of its own.
        await eventually(lambda: len(stage.spools()) == 2 and len(stage.spools() - spools) == 1, 60)
        await until_ready(stage)
        assert (await stage.post(http, b"after"))[0] == 200
        async with http.get(f"{stage.url}/metrics") as metrics:
            text = await metrics.text()
        assert 'worker="0"' in text
        assert 'worker="1"' in text
    assert stage.process.returncode == 0
    assert list((stage.folder / "spool").iterdir()) == [], "a clean stop leaves nothing behind"
    calls = {b"held", b"after", *(str(number).encode() for number in range(20))}
    events = await all_events(bus, start, tenant)
    by_id = {e.event_id: e.request_body for e in events}  # a kill may publish one twice
    assert sorted(by_id.values()) == sorted(calls)
    await upstream.stop()


async def all_events(bus: Bus, start: dict[tuple[str, int], int], tenant: str) -> list[Exchange]:
    """What the tenant has on the raw topic now."""
    ends = positions(bus)
    num_records = sum(ends[at] - offset for at, offset in start.items())
    consumer = bus.consumer()
    consumer.assign(start)
    received: list[Received] = []
    try:
        while len(received) < num_records:
            received += await asyncio.to_thread(consumer.poll, 500, 0.1)
    finally:
        consumer.close()
    events = [codec.decode(r.value) for r in received if r.value is not None]
    return [e for e in events if isinstance(e, Exchange) and e.tenant_id == tenant]


async def test_streams_finish_when_the_gateway_is_told_to_end(tmp_path: Path, kafka: str) -> None:
    may_end = asyncio.Event()
    upstream = ScriptedUpstream(in_two(b"data: 1\n\n", may_end, b"data: 2\n\n"))
    await upstream.start()
    _, key = new_key(make_bus(kafka), "capture")
    async with several(tmp_path, kafka, upstream.url, key) as stage, fresh() as http:
        answers = [
            await http.post(stage.url + CHAT, data=b"x", headers=stage.headers) for _ in range(4)
        ]
        for answer in answers:
            assert await answer.content.readany() == b"data: 1\n\n"
        stage.process.terminate()
        await eventually(lambda: is_refused(stage.url), 20)
        may_end.set()
        for answer in answers:
            assert await answer.content.read() == b"data: 2\n\n"
        assert await asyncio.wait_for(stage.process.wait(), 60) == 0
    assert list((stage.folder / "spool").iterdir()) == []
    await upstream.stop()


def is_refused(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


async def test_upstreams_are_read_anew_under_calls_that_go_on(tmp_path: Path, kafka: str) -> None:
    may_end = asyncio.Event()
    old = ScriptedUpstream(in_two(b"first ", may_end, b"to the end"))
    new = ScriptedUpstream(echo)
    await old.start()
    await new.start()
    bus = make_bus(kafka)
    tenant, key = new_key(bus, "capture")
    start = positions(bus)
    async with several(tmp_path, kafka, old.url, key) as stage, aiohttp.ClientSession() as http:
        under_way = await http.post(stage.url + CHAT, data=b"x", headers=stage.headers)
        assert await under_way.content.readany() == b"first "
        stage.write("ftp://wrong")
        stage.process.send_signal(signal.SIGHUP)
        log = tmp_path / "log"
        await eventually(lambda: log.read_text().count("settings_not_reloaded") == 2)
        stage.write(new.url, capture=False)
        stage.process.send_signal(signal.SIGHUP)
        await eventually(lambda: log.read_text().count("settings_reloaded") == 2)
        async with fresh() as other:
            assert await stage.post(other, b"new") == (200, b"new")
        may_end.set()
        assert await under_way.content.read() == b"to the end"
        assert await stage.post(http, b"on the same connection") == (200, b"on the same connection")
    assert stage.process.returncode == 0
    assert len(old.seen) == 1
    [event] = await all_events(bus, start, tenant)  # of the one that began while capture was on
    assert (event.response_body, event.outcome) == (b"first to the end", Outcome.COMPLETE)
    await old.stop()
    await new.stop()


async def test_a_fleet_that_cannot_be_configured_ends_with_2() -> None:
    fleet = Fleet(2, 1, 5.0, lambda _: [sys.executable, "-c", "raise SystemExit(2)"])
    assert await asyncio.wait_for(fleet.run(), 30) == 2


async def test_a_process_that_cannot_start_again_ends_no_other(tmp_path: Path) -> None:
    """Its settings are being edited, perhaps, or the disk is full: the others go on."""
    starts = tmp_path / "starts"
    dies = f"""if True:
        import pathlib
        starts = pathlib.Path({str(starts)!r})
        starts.write_text(f"{{starts.read_text() if starts.exists() else ''}}x")
        raise SystemExit(1 if starts.read_text() == "x" else 2)"""
    goes_on = "import signal; signal.pause()"
    fleet = Fleet(2, 1, 5.0, lambda number: [sys.executable, "-c", (dies, goes_on)[number]])
    running = asyncio.create_task(fleet.run())
    await eventually(lambda: starts.exists() and len(starts.read_text()) == 3, 30)
    assert not running.done(), "it was started once more after it ended with 2"
    signal.raise_signal(signal.SIGTERM)
    assert await asyncio.wait_for(running, 30) == 0


def test_a_host_that_has_no_address_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        hold_port("256.256.256.256", 0)


def test_a_port_that_others_listen_on_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as other,
        pytest.raises(ConfigError, match="cannot listen"),
    ):
        hold_port("127.0.0.1", other.getsockname()[1])
