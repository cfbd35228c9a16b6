"""The gateway's process: what it is made of, how it starts and ends."""

import asyncio
import signal
import time

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from inference.access.check import Access
from inference.access.keys import KeyFollower
from inference.capture import route as routes
from inference.capture.doors import Doors
from inference.capture.recorder import Recorder
from inference.dialects.refusal import RefusedError
from inference.edge.reads import Reads
from inference.edge.server import drain, start_server
from inference.fleet.siblings import Siblings
from inference.gateway.calls import Calls
from inference.gateway.relay import ARRIVED_AT
from inference.routing.opening import open_router
from inference.spool import Publisher
from inference.spool.assemble import Assembler
from inference.spool.health import GatewayHealth, judge, look
from inference.spool.opening import open_spool
from inference.spool.sweeping import BlobSweep
from inference.upstreams.http import Upstream
from schemas.bus import Bus
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError
from schemas.secrets import load_root_secret
from schemas.settings import Settings, load_settings
from schemas.store import BlobStore, sync_path
from schemas.telemetry import Metrics
from schemas.tracing import make_tracing

_log = structlog.get_logger("gateway")

_HOUSEKEEPING_SECONDS = 1.0
_STOP_SECONDS = 10.0
#: With 0.002 a broker on the same cores takes twice the time at 1,000 calls a second; calls wait.
_LINGER_SECONDS = 0.01
#: A process that is told to end has ended this long after its calls: threads, connections, Kafka.
GRACE_SECONDS = 25.0


class Gateway:
    """All parts of one gateway, wired. `bus` is the only way to Kafka."""

    def __init__(self, settings: Settings, bus: Bus, worker: int | None = None) -> None:
        root = load_root_secret(settings.root_secret_file)
        self.settings = settings
        self.metrics = Metrics()
        spool_root = settings.data_dir / "spool"
        gateway = settings.gateway
        self.keys = KeyFollower(bus, settings.data_dir / "run" / "gateway-keys.json")
        self.upstream = Upstream(gateway, self.metrics)
        self.router = open_router(settings, bus, root, self.metrics)
        self.spool = open_spool(settings, spool_root)
        sync = sync_path if gateway.spool_fsync else None
        blobs = BlobStore(settings.original_blobs, sync, renews=True)
        self.publisher = Publisher(
            self.spool, spool_root, lambda: bus.producer("inference.gateway"),
            Assembler(blobs, settings.kafka.max_record_bytes), self.metrics,
            make_tracing("inference.gateway", settings.tracing),
        )  # fmt: skip
        self._sweep = BlobSweep(settings, self.metrics)
        access = Access(self.keys, self.upstream.has_own_credentials)
        self.recorder = Recorder(self.spool, gateway.when_spool_full, self.metrics)
        self.recorder.is_on = gateway.capture
        self.calls = Calls(
            access,
            self.recorder,
            self.upstream,
            root,
            settings.training_eligible_tenants,
            self.metrics,
            self.router,
        )
        self._doors = Doors(access, self.recorder, settings, self.metrics)
        run = settings.data_dir / "run" / "gateway"
        self._siblings = None if worker is None else Siblings(run, worker, gateway.workers)
        self._reads = Reads(access, settings, self.metrics, self.health, self._siblings)

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(
            client_max_size=self.settings.gateway.max_body_bytes, middlewares=[self._dispatch]
        )
        app.router.add_route("*", "/{path:.*}", _unreached, expect_handler=_continue)
        return app

    @web.middleware
    async def _dispatch(self, request: web.Request, handler: Handler) -> web.StreamResponse:  # noqa: ARG002
        """Every request, also `OPTIONS *` and others that no path matches."""
        request[ARRIVED_AT] = time.perf_counter()
        route = routes.split(request.rel_url.raw_path)
        try:
            own = self._doors.find(request.method, route.path) or self._reads.find(
                request.method, route.path
            )
            return await (own or self.calls.handle)(request, route)
        except RefusedError as error:
            return error.response(route.path)

    def start(self) -> None:
        """Start the threads."""
        self.keys.start()
        if self.router is not None:
            self.router.follower.start()
        self.publisher.start()
        self._sweep.start()

    def housekeeping(self) -> None:
        """What is due every second."""
        if self.recorder.num_owed:
            self.recorder.settle()
        self.calls.end_stalled()
        self._measure()
        delivered = self.publisher.caught_up_at
        if delivered is not None:
            self.spool.roll_if_read(delivered)
        routes = self.router is None or self.router.follower.is_alive
        if not (self.publisher.is_alive and self._sweep.is_alive and self.keys.is_alive and routes):
            _log.error("thread_ended")  # a bug; the supervisor starts a new process
            signal.raise_signal(signal.SIGTERM)

    def health(self) -> GatewayHealth:
        """Whether calls are taken and events get on to Kafka."""
        routes = None if self.router is None else self.router.follower
        facts = look(
            self.publisher, self.spool, self.keys, self.settings.gateway, routes,
            captures=self.recorder.is_on,
        )  # fmt: skip
        return judge(facts, self.settings.stalled_after_seconds)

    def reload(self) -> None:
        """Read upstreams and the switch for capture anew; wrong settings change nothing."""
        try:
            gateway = load_settings().gateway
            self.upstream.reload(gateway)
        except ConfigError as error:
            _log.error("settings_not_reloaded", error=str(error))
            return
        self.recorder.is_on = gateway.capture
        names = list(self.upstream.places.names)
        _log.info("settings_reloaded", upstreams=names, capture=gateway.capture)

    def _measure(self) -> None:
        health = self.health()
        self.metrics.gauge("headrace_spool_bytes").set(health.spool_bytes)
        self.metrics.gauge("headrace_spool_age_seconds").set(health.spool_age_seconds)
        self.metrics.gauge("headrace_healthy").set(health.healthy)
        if health.routable_workers is not None:
            self.metrics.gauge("headrace_routable_workers").set(health.routable_workers)
        if self._siblings is not None:
            self._siblings.tell(self.metrics.registry, health.why)

    async def close(self) -> None:
        """Finish calls, publish what is whole, close everything."""
        await self.calls.stop(_STOP_SECONDS)
        self.recorder.settle()
        await self.upstream.close()
        if self.router is not None:
            await asyncio.to_thread(self.router.follower.stop)
        await asyncio.to_thread(self.keys.stop)
        await asyncio.to_thread(self.publisher.stop, _STOP_SECONDS)
        await asyncio.to_thread(self._sweep.stop, _STOP_SECONDS)
        self.spool.close()


async def _unreached(_request: web.Request) -> web.StreamResponse:
    raise AssertionError("the middleware answers every request")


async def _continue(request: web.Request) -> None:
    """Ask for the body of a client that waits for that. Other expectations are passed over."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # this was no part of the answer


async def serve(settings: Settings, bus: Bus | None = None, worker: int | None = None) -> int:
    """Run until SIGINT or SIGTERM. `worker` is the number of one process among several."""
    # What waits is in the spool, so nothing is given up, and calls reach Kafka in their order.
    lasting = {"delivery_timeout_seconds": None, "linger_seconds": _LINGER_SECONDS}
    bus = bus or KafkaBus.from_settings(settings.kafka, **lasting)
    gateway = Gateway(settings, bus, worker)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    gateway.start()
    try:
        shared = worker is not None
        runner = await start_server(gateway.app(), settings.gateway, is_shared=shared)
        _log.info("gateway_listens", host=settings.gateway.host, port=settings.gateway.port)
        while not stop.is_set():
            gateway.housekeeping()
            try:
                await asyncio.wait_for(stop.wait(), _HOUSEKEEPING_SECONDS)
            except TimeoutError:
                continue
        await drain(runner, lambda: gateway.calls.stop(settings.gateway.drain_seconds))
    finally:
        await gateway.close()
    return 0
