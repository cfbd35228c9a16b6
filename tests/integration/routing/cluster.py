"""A gateway that routes, a promotion process, workers without engines; on topics of their own."""

import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from controlplane.promotion.process import Promotion
from controlplane.promotion.state import TOPICS
from inference.edge.server import start_server
from inference.gateway.app import Gateway
from infra.rings import watching
from schemas import topics
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.settings import PromotionSettings, Settings
from tests.integration.gateway.harness import (
    eventually,
    make_settings,
    new_key,
    positions,
    read_events,
)
from tests.ports import free_ports
from tests.ring_events import POLICY, RING, manifest, proposal, write
from tests.services import running


@dataclass
class Cluster:
    """What a test needs of it."""

    bus: KafkaBus
    servers: str
    prefix: str
    folder: Path
    gateway: Gateway
    url: str
    tenant: str
    key: str
    start: dict[tuple[str, int], int]
    http: aiohttp.ClientSession
    stack: AsyncExitStack
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def add_worker(self, worker_id: str, **behaviour: int) -> None:
        """Start one as a process; `refuses=2` or `dies_at=2` say what it does with a version."""
        [port] = free_ports(1)
        command = [sys.executable, "-m", "tests.integration.routing.double"]
        command += [self.servers, self.prefix, worker_id, str(port)]
        for name, version in behaviour.items():
            command += [f"--{name.replace('_', '-')}", str(version)]
        process = self.stack.enter_context(running(command, self.folder / f"{worker_id}.log"))
        self.processes[worker_id] = process

    def routable(self) -> list[tuple[str, int | None]]:
        """Workers and their versions, as this gateway sees them."""
        assert self.gateway.router is not None
        tiers = self.gateway.router.follower.routes.stable
        return sorted((w.worker_id, w.version) for tier in tiers for w in tier)

    async def until_routable(self, *expected: tuple[str, int | None]) -> None:
        await eventually(lambda: self.routable() == sorted(expected), 30)

    async def until_served(self, version: int) -> None:
        """Until a worker that may get calls has it."""
        await eventually(lambda: version in [served for _, served in self.routable()], 30)

    async def propose(self, version: int, **changes: Any) -> None:
        """Publish a version's manifest and propose it."""
        made = proposal(version, proposed_at=datetime.now(UTC), **changes)
        await asyncio.to_thread(write, self.bus, [manifest(version), made])

    async def promote(self, version: int, **changes: Any) -> None:
        """Propose it and wait until every worker has answered."""
        await self.propose(version, **changes)
        await asyncio.to_thread(self._settle, version)

    def _settle(self, version: int) -> None:
        with watching(self.bus) as watch:
            proposed = watch.state.proposals[POLICY, RING, version].proposal
            answer = watch.answer_to(proposed, 30)
            assert answer is not None
            assert answer.status.value == "accepted", answer.reason
            ring = watch.ring(POLICY, RING)
            assert ring is not None
            assert watch.settle(ring, 30)

    async def ask(
        self, trajectory: str, path: str = "/v1/chat/completions"
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, body and headers of a call."""
        headers = {"x-headrace-key": self.key, "x-headrace-trajectory-id": trajectory}
        body = {"model": "m", "messages": [{"role": "user", "content": "who are you?"}]}
        async with self.http.post(f"{self.url}{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json(), dict(answer.headers)

    async def exchanges(self, count: int) -> list[Any]:
        """What the gateway recorded."""
        return await read_events(self.bus, self.start, self.tenant, count, 60)


def _settings(folder: Path, kafka: str) -> Settings:
    made = make_settings(folder, kafka, "http://127.0.0.1:9", ring=RING)
    return made.model_copy(update={"worker": made.worker.model_copy(update={"policy": POLICY})})


@asynccontextmanager
async def cluster(kafka: str, folder: Path) -> AsyncIterator[Cluster]:
    """All of it but the workers, for the length of the block."""
    prefix = f"r{uuid.uuid4().hex[:8]}."
    bus = KafkaBus(KafkaAccess(kafka, prefix=prefix))
    wanted = [topics.topic(name) for name in (*TOPICS, topics.KEYS, topics.RAW_EVENTS)]
    bus.admin().create_topics(wanted, 2, 1)
    tenant, key = new_key(bus)
    start = positions(bus)
    promotion = Promotion(bus, PromotionSettings())
    deciding = threading.Thread(target=promotion.run, daemon=True)
    deciding.start()
    gateway = Gateway(_settings(folder, kafka), bus)
    gateway.start()
    runner = await start_server(gateway.app(), gateway.settings.gateway)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30))
        )
        try:
            yield Cluster(bus, kafka, prefix, folder, gateway, url, tenant, key, start, http, stack)
        finally:
            await gateway.calls.stop(2)
            await runner.cleanup()
            await gateway.close()
            promotion.stop()
            await asyncio.to_thread(deciding.join, 30)
