"""Kafka away, a full spool, killed processes, hostile requests, real clients' requests."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inference.access.keys import KeyBook, KeyFollower, _save
from inference.edge.server import start_server
from inference.gateway.app import Gateway
from infra.cli.keys import make_key
from schemas.atdp.types import Outcome
from schemas.bus.kafka import KafkaBus
from schemas.settings import Settings
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    echo,
    eventually,
    make_bus,
    make_settings,
    new_key,
    positions,
    read_events,
    running,
)
from tests.ports import free_ports

pytestmark = pytest.mark.integration

NOWHERE = "127.0.0.1:1"


@asynccontextmanager
async def without_kafka(
    tmp_path: Path, upstream: ScriptedUpstream, **gateway: Any
) -> AsyncIterator[tuple[Gateway, str, dict[str, str]]]:
    """A gateway whose broker cannot be reached, with keys from the copy on the disk."""
    await upstream.start()
    settings = make_settings(tmp_path, NOWHERE, upstream.url, **gateway)
    key, record = make_key("acme", ("capture", "feedback:write"))
    _save(tmp_path / "run" / "gateway-keys.json", KeyBook([record]))
    made = Gateway(settings, KafkaBus(NOWHERE))
    made.start()
    runner = await start_server(made.app(), made.settings.gateway)
    try:
        yield made, f"http://127.0.0.1:{runner.addresses[0][1]}", {"x-headrace-key": key}
    finally:
        await runner.cleanup()
        made.publisher.stop(0.1)
        await made.close()
        await upstream.stop()


async def test_the_relay_does_not_wait_for_kafka(tmp_path: Path, kafka: str) -> None:
    async with (
        without_kafka(tmp_path, ScriptedUpstream(echo)) as (gateway, url, headers),
        aiohttp.ClientSession(headers=headers) as http,
    ):
        for number in range(20):
            async with http.post(f"{url}{CHAT}", data=str(number)) as answer:
                assert (answer.status, await answer.text()) == (200, str(number))
        assert gateway.spool.backlog_bytes > 0
    start = positions(make_bus(kafka))
    settings = make_settings(tmp_path, kafka, "http://127.0.0.1:1")
    later = Gateway(settings, KafkaBus(kafka))
    later.start()
    events = await read_events(KafkaBus(kafka), start, "acme", 20)
    await later.close()
    assert sorted(int(e.request_body) for e in events) == list(range(20))
    assert {e.outcome for e in events} == {Outcome.COMPLETE}
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_full_spool_blocks(tmp_path: Path) -> None:
    upstream = ScriptedUpstream(echo)
    options = {"spool_max_bytes": 1024**2}
    async with (
        without_kafka(tmp_path, upstream, **options) as (_, url, headers),
        aiohttp.ClientSession(headers=headers) as http,
    ):
        statuses = Counter[int]()
        for _ in range(12):
            async with http.post(f"{url}{CHAT}", data=b"x" * 100_000) as answer:
                statuses[answer.status] += 1
                retry_after = answer.headers.get("Retry-After")
        assert set(statuses) == {200, 503}
        assert retry_after == "2"
        assert len(upstream.seen) == statuses[200], "what is refused does not reach the upstream"
        body = b'{"target":{"step_id":"s"},"name":"n","text":"' + b"x" * 200_000 + b'"}'
        async with http.post(f"{url}/v1/feedback", data=body) as answer:
            assert answer.status == 503


async def test_a_full_spool_sheds_and_counts(tmp_path: Path) -> None:
    options = {"spool_max_bytes": 1024**2, "when_spool_full": "shed"}
    async with (
        without_kafka(tmp_path, ScriptedUpstream(echo), **options) as (_, url, headers),
        aiohttp.ClientSession(headers=headers) as http,
    ):
        for _ in range(12):
            async with http.post(f"{url}{CHAT}", data=b"x" * 100_000) as answer:
                assert await answer.read() == b"x" * 100_000
        async with http.get(f"{url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
    (shed,) = [line for line in lines if line.startswith("headrace_gateway_shed_total")]
    assert 0 < float(shed.split()[1]) < 12


async def test_an_unknown_key_while_kafka_was_never_seen_is_503(tmp_path: Path) -> None:
    async with (
        without_kafka(tmp_path, ScriptedUpstream(echo)) as (_, url, _headers),
        aiohttp.ClientSession() as http,
        http.post(f"{url}/k/hr_acme_other{CHAT}", data=b"{}") as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")


async def test_the_copy_of_the_keys_is_private_and_hashed(tmp_path: Path, kafka: str) -> None:
    bus = make_bus(kafka)
    _, key = new_key(bus, "capture")
    cache = tmp_path / "run" / "keys"
    follower = KeyFollower(bus, cache)
    follower.start()
    await eventually(lambda: follower.seen_end_at > 0, 20)
    follower.stop()
    assert oct(cache.stat().st_mode & 0o777) == "0o600"
    assert key.encode() not in cache.read_bytes()
    assert len(KeyFollower(bus, cache).book.records()) == len(follower.book.records()) > 0


class Load:
    """Clients that call until they are told to stop, and what they saw."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"x-headrace-key": key}
        self.completed: dict[str, bytes] = {}
        self.seen: dict[str, bytes] = {}
        self.stopped = False

    async def run(self, name: int) -> None:
        number = 0
        async with aiohttp.ClientSession(headers=self._headers) as http:
            while not self.stopped:
                number += 1
                try:
                    await self._call(http, f"{name}-{number}")
                except (aiohttp.ClientError, ConnectionError):
                    await asyncio.sleep(0.02)

    async def _call(self, http: aiohttp.ClientSession, body: str) -> None:
        async with http.post(f"{self._url}{CHAT}", data=body) as answer:
            step_id = answer.headers["x-headrace-step-id"]
            self.seen[step_id] = b""
            async for data in answer.content.iter_any():
                self.seen[step_id] += data
            self.completed[step_id] = self.seen[step_id]


async def stream(connection: Connection) -> None:
    await connection.send(SSE_HEAD)
    for number in range(5):
        await connection.chunk(f"data: {number} ".encode() + connection.body + b"\n\n")
        await asyncio.sleep(0.002)
    await connection.send(b"0\r\n\r\n")


async def start_process(settings: Settings, port: int) -> asyncio.subprocess.Process:
    """A gateway of its own, accepting connections."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | {
        "HEADRACE_DATA_DIR": str(settings.data_dir),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "HEADRACE_GATEWAY__PORT": str(port),
        "HEADRACE_GATEWAY__UPSTREAM__URL": settings.gateway.upstream.url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inference.gateway", env=environment,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    async with aiohttp.ClientSession() as http:
        for _ in range(400):
            try:
                async with http.get(f"http://127.0.0.1:{port}/health") as answer:
                    if answer.status == 200:
                        return process
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
    raise AssertionError("the gateway did not become ready")


async def test_killed_gateways_lose_nothing(tmp_path: Path, kafka: str) -> None:
    """Kill -9 under load at seeded moments; the next process adopts the spool."""
    rng = random.Random(7)
    (free_port,) = free_ports(1)
    bus = make_bus(kafka)
    tenant, key = new_key(bus, "capture")
    start = positions(bus)
    upstream = ScriptedUpstream(stream)
    await upstream.start()
    settings = make_settings(tmp_path, kafka, upstream.url)
    load = Load(f"http://127.0.0.1:{free_port}", key)
    process = await start_process(settings, free_port)
    clients = [asyncio.create_task(load.run(name)) for name in range(8)]
    for _ in range(3):
        await asyncio.sleep(rng.uniform(0.4, 1.0))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        process = await start_process(settings, free_port)
    await asyncio.sleep(0.5)
    load.stopped = True
    await asyncio.gather(*clients)
    await eventually(lambda: len(list((tmp_path / "spool").iterdir())) == 1, 40)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert list((tmp_path / "spool").iterdir()) == [], "a clean stop leaves nothing behind"
    await upstream.stop()
    events = {e.event_id: e for e in await read_events(bus, start, tenant, len(load.seen))}
    by_step = Counter(e.step_id for e in events.values())
    assert len(load.completed) > 50
    assert all(by_step[step_id] == 1 for step_id in load.seen)
    recorded = {e.step_id: e for e in events.values()}
    for step_id, body in load.seen.items():
        assert recorded[step_id].response_body.startswith(body), "released means recorded"
    for step_id, body in load.completed.items():
        assert recorded[step_id].response_body == body
    crashed = [e for e in events.values() if e.outcome is Outcome.GATEWAY_CRASHED]
    assert crashed, "calls in flight when the process was killed are kept"
    assert {e.outcome for e in events.values()} <= {
        Outcome.COMPLETE, Outcome.GATEWAY_CRASHED, Outcome.CLIENT_ABORTED,
    }  # fmt: skip


ODD_LINES = (
    b"x-headrace-trajectory-id: \xff\xfe",
    b"Idempotency-Key: \xc3\x28 odd",
    b"Session-Id: a b/c",
    b"Content-Encoding: gzip",
    b"Content-Length: -1",
    b"Transfer-Encoding: chunked",
    b"Expect: x",
    b"x-headrace-parent-step-id: a b",
    b"Upgrade: websocket",
    b"Connection: close, x-headrace-key",
    b"x-headrace-task-key: " + b"k" * 9000,
    b"Content-Type: \x80",
    b"x: " + b"y" * 40_000,
    b"Accept-Encoding: zstd",
    b"Cookie: a=b",
)


def hostile(rng: random.Random, key: str) -> bytes:
    """A request that is wrong somewhere."""
    method = rng.choice(["POST", "GET", "PUT", "HEAD", "OPTIONS", "P\x7fST", "post", ""])
    path = rng.choice([
        CHAT, "/v1/feedback", "/v1/events", f"/k/{key}{CHAT}", f"/t/%00/k/{key}{CHAT}", "/v1/",
        f"/t/{'a' * 300}{CHAT}", "/v1/trajectories/%ff", "/schemas/ids/99999999999", "//", "/k/",
        f"{CHAT}?\xff=%zz", "/v1/../health", "*", "http://other/v1/models", "/subjects/x/versions",
    ])  # fmt: skip
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
    if rng.random() < 0.5:
        body = rng.choice([
            b"{", b"[" * 3000, b'{"a":' * 1500, b"null", b'"\\ud800"', b'{"target":[]}', b"\x00",
            b'{"type":"step"}', b'[{"type":1}]', b'{"metadata":{"user_id":"{\\"session_id\\":3}"}}',
            b'{"messages":[[[{"role":"user"}]],7,null]}', b'{"input":{"a":1}}', b"1e999",
        ])  # fmt: skip
    extra = rng.choice(ODD_LINES)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode("latin-1")
    key_line = f"x-headrace-key: {rng.choice([key, 'wrong', ''])}\r\n".encode()
    length = b"" if b"Length" in extra else f"Content-Length: {len(body)}\r\n".encode()
    return head + key_line + extra + b"\r\n" + length + b"\r\n" + body


async def send_raw(port: int, request: bytes) -> bytes:
    """What a server answers to these bytes, as far as it says anything."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 0.5)
    except (ConnectionError, TimeoutError):  # it may wait for the rest of a body
        return b""
    finally:
        writer.close()


async def test_no_input_makes_an_internal_error(tmp_path: Path, kafka: str) -> None:
    rng = random.Random(11)
    async with running(tmp_path, kafka, ScriptedUpstream(echo)) as gw:
        port = int(gw.url.rpartition(":")[2])
        statuses = Counter[bytes]()
        for _ in range(1_000):
            request = hostile(rng, gw.key)
            answer = await send_raw(port, request)
            status = answer[9:12]
            assert status != b"500", request[:300]
            statuses[status] += 1
        async with gw.post(CHAT, b"{}") as answer_after:
            assert answer_after.status == 200
        async with gw.http.get(f"{gw.url}/health") as health:
            assert (await health.json())["alive"] is True
    assert len(statuses) > 4, statuses


async def test_requests_of_real_clients(tmp_path: Path, kafka: str, shared_data: Path) -> None:
    files = sorted((shared_data / "requests").glob("*/*POST-v1_*.json"))
    requests = [json.loads(f.read_text()) for f in files]
    bodies = [json.dumps(r["body"]).encode() for r in requests]
    upstream = ScriptedUpstream(echo)
    trajectories: dict[str, set[str | None]] = {}
    async with running(tmp_path, kafka, upstream) as gw:
        for file, request, body in zip(files, requests, bodies, strict=True):
            skipped = ("host", "content-length")
            pairs = [(n, v) for n, v in request["headers"] if n.lower() not in skipped]
            url, headers = f"{gw.url}{request['path']}", [*pairs, *gw.headers.items()]
            async with gw.http.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200
                assert await answer.read() == body
                named = answer.headers.get("x-headrace-trajectory-id")
                trajectories.setdefault(file.parent.name, set()).add(named)
        events = await gw.events(len(files), 60)
    assert [c.body for c in upstream.seen] == bodies
    assert Counter(e.request_body for e in events) == Counter(bodies)
    for client, ids_seen in trajectories.items():
        sends_session = client.startswith(("codex", "opencode", "claude"))
        assert (None not in ids_seen) is sends_session, (client, ids_seen)
