"""A gateway process whose every write to a file is refused for a while, under load."""

import asyncio
import resource
import signal
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from schemas.atdp.types import Outcome
from tests.integration.gateway.harness import (
    CHAT,
    ScriptedUpstream,
    eventually,
    make_bus,
    make_settings,
    new_key,
    positions,
    read_events,
)
from tests.integration.gateway.test_faults import start_process, stream
from tests.ports import free_ports

pytestmark = pytest.mark.integration


class Ledger:
    """What clients saw: by step id for answers, by status for refusals."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"x-headrace-key": key}
        self.completed: dict[str, bytes] = {}
        self.begun: dict[str, bytes] = {}
        self.statuses: Counter[int] = Counter()
        self.stopped = False

    async def run(self, name: int) -> None:
        number = 0
        async with aiohttp.ClientSession(headers=self._headers) as http:
            while not self.stopped:
                number += 1
                try:
                    await self._call(http, f"{name}-{number}")
                except aiohttp.ClientError:  # an answer that was broken off
                    self.statuses[0] += 1

    async def _call(self, http: aiohttp.ClientSession, body: str) -> None:
        async with http.post(f"{self._url}{CHAT}", data=body) as answer:
            self.statuses[answer.status] += 1
            if answer.status != 200:
                await asyncio.sleep(0.01)
                return
            step_id = answer.headers["x-headrace-step-id"]
            self.begun[step_id] = b""
            async for data in answer.content.iter_any():
                self.begun[step_id] += data
            self.completed[step_id] = self.begun[step_id]


def refuse_writes(pid: int, *, beyond_bytes: int) -> None:
    """From now on no file of that process grows beyond that."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (beyond_bytes, hard))


def allow_writes(pid: int) -> None:
    """As before."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


async def test_a_disk_that_refuses_every_write_for_a_while(tmp_path: Path, kafka: str) -> None:
    """`block`: what a client got whole is recorded whole, once; the rest says what it is."""
    (free_port,) = free_ports(1)
    bus = make_bus(kafka)
    tenant, key = new_key(bus, "capture")
    start = positions(bus)
    upstream = ScriptedUpstream(stream)
    await upstream.start()
    settings = make_settings(tmp_path, kafka, upstream.url)
    process = await start_process(settings, free_port)
    ledger = Ledger(f"http://127.0.0.1:{free_port}", key)
    clients = [asyncio.create_task(ledger.run(name)) for name in range(6)]
    for _ in range(3):
        num_refused = ledger.statuses[503]
        num_completed = len(ledger.completed)
        await eventually(lambda n=num_completed: len(ledger.completed) > n + 20, 20)  # type: ignore[misc]
        refuse_writes(process.pid, beyond_bytes=0)
        await eventually(lambda n=num_refused: ledger.statuses[503] > n + 20, 20)  # type: ignore[misc]
        allow_writes(process.pid)
    num_completed = len(ledger.completed)
    await eventually(lambda: len(ledger.completed) > num_completed + 20, 20)
    ledger.stopped = True
    await asyncio.gather(*clients)
    assert process.returncode is None, "the gateway went on"
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert list((tmp_path / "spool").iterdir()) == [], "a clean stop leaves nothing behind"
    await upstream.stop()
    events = await read_events(bus, start, tenant, len(ledger.begun))
    recorded = {event.step_id: event for event in events}
    assert len({event.event_id for event in events}) == len(recorded) == len(events)
    assert recorded.keys() >= ledger.begun.keys()
    for step_id, body in ledger.completed.items():
        assert recorded[step_id].outcome is Outcome.COMPLETE
        assert recorded[step_id].response_body == body
    for step_id, body in ledger.begun.items():
        assert recorded[step_id].response_body.startswith(body), "released means recorded"
    others = [e for e in events if e.step_id not in ledger.completed]
    assert {(e.outcome, e.error_class) for e in others} == {
        (Outcome.UPSTREAM_ERROR, "spool_write_failed")
    }
