"""A worker without an engine: it follows assignments, proves, stamps and answers as a real one.

Its answers name the version that made them. Run as `python -m tests.integration.routing.double
SERVERS PREFIX WORKER_ID PORT`; `--help` lists its faults.
"""

import argparse
import asyncio
import os
import signal
import time
from datetime import UTC, datetime

from aiohttp import web

from schemas import codec, topics
from schemas.atdp.weights import AckStatus, RingAssignment, VersionRef
from schemas.bus import Bus
from schemas.bus.access import KafkaAccess
from schemas.bus.following import Following
from schemas.bus.kafka import KafkaBus
from schemas.rings import target_of
from tests.ring_events import POLICY, RING, ack, beat, write

_ANSWER_SECONDS = 0.01
_PAUSE_SECONDS = 0.02
_HEARTBEAT_SECONDS = 1.0


class Double:
    """One worker. An update waits for the answers under way, as the real one's does."""

    def __init__(
        self, bus: Bus, worker_id: str, port: int, refused: int | None, deadly: int | None
    ) -> None:
        self._bus, self._id, self._refused, self._deadly = bus, worker_id, refused, deadly
        self._address = f"http://127.0.0.1:{port}"
        self._started_at = datetime.now(UTC)
        self._serves: VersionRef | None = None
        self._num_running = 0
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._beat_at = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        """A completion that says which version made it."""
        await request.read()
        await self._may_run.wait()
        self._num_running += 1
        try:
            served = self._serves
            await asyncio.sleep(_ANSWER_SECONDS)
        finally:
            self._num_running -= 1
        stamp = {"x-headrace-worker": self._id}
        if served is not None:
            stamp |= {
                "x-headrace-policy": POLICY, "x-headrace-policy-version": str(served.version),
                "x-headrace-weights-root": served.root,
            }  # fmt: skip
        version = None if served is None else served.version
        return web.json_response({"made_by": version, "worker": self._id}, headers=stamp)

    async def follow(self) -> None:
        """Obey every assignment of the ring once, and say so."""
        following = await asyncio.to_thread(Following, self._bus, [topics.WEIGHTS_PROMOTIONS])
        sequence = 0
        while True:
            if time.monotonic() > self._beat_at + _HEARTBEAT_SECONDS:
                await self._say()
            for received in await asyncio.to_thread(following.poll, 0.02):
                event = codec.decode(received.value)
                ours = isinstance(event, RingAssignment) and event.ring == RING
                if ours and event.sequence > sequence:
                    sequence = event.sequence
                    await self._obey(target_of(event, self._id))

    async def _obey(self, target: VersionRef) -> None:
        if target.version == self._refused:
            await self._say(ack(self._id, target.version, AckStatus.REFUSED, occurred_at=_now()))
            return
        if target.version == self._deadly:
            while not self._num_running:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        self._may_run.clear()
        while self._num_running:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        await asyncio.sleep(_PAUSE_SECONDS)
        self._serves = target
        self._may_run.set()
        await self._say(ack(self._id, target.version, occurred_at=_now()))

    async def _say(self, *events: object) -> None:
        version = None if self._serves is None else self._serves.version
        heartbeat = beat(
            self._id, version, address=self._address, started_at=self._started_at,
            heartbeat_at=_now(),
        )  # fmt: skip
        self._beat_at = time.monotonic()
        await asyncio.to_thread(write, self._bus, [*events, heartbeat])


def _now() -> datetime:
    return datetime.now(UTC)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("servers", "prefix", "worker_id"):
        parser.add_argument(name)
    parser.add_argument("port", type=int)
    parser.add_argument("--refuses", type=int, help="the version it does not prove")
    parser.add_argument("--dies-at", type=int, help="the version whose update kills it, answering")
    return parser.parse_args()


async def main(told: argparse.Namespace) -> None:
    """Serve until killed."""
    bus = KafkaBus(KafkaAccess(told.servers, prefix=told.prefix))
    worker = Double(bus, told.worker_id, told.port, told.refuses, told.dies_at)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", worker.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", told.port).start()
    await worker.follow()


if __name__ == "__main__":
    asyncio.run(main(_arguments()))
