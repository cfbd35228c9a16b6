"""Takes calls in: who calls, under which ids, recorded or refused; then relays them."""

import asyncio
from datetime import UTC, datetime

from aiohttp import web

from inference.access.check import Access
from inference.access.keys import CAPTURE
from inference.capture import headers
from inference.capture.body import read_body
from inference.capture.exchange import begun
from inference.capture.idempotency import KeyWindow
from inference.capture.identity import Identity, UnsafeIdError, identify
from inference.capture.recorder import Recorder
from inference.capture.refusal import spool_refusal
from inference.capture.route import Route
from inference.dialects.refusal import RefusedError
from inference.edge import paths
from inference.gateway.relay import Relay
from inference.routing.router import Router
from inference.spool import SpoolFullError, SpoolWriteError
from inference.upstreams.endings import Ending
from inference.upstreams.http import Upstream
from inference.upstreams.sending import Sending, Way
from schemas.atdp.internal import KeyRecord
from schemas.atdp.types import Outcome
from schemas.telemetry import Metrics

_KNOWN_PATHS = frozenset({
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/models",
})  # fmt: skip


class Calls:
    """Relays every call that is not one of our own routes."""

    def __init__(
        self, access: Access, recorder: Recorder, upstream: Upstream, root: bytes,
        eligible_tenants: tuple[str, ...], metrics: Metrics, router: Router | None = None,
    ) -> None:  # fmt: skip
        self._access = access
        self._recorder = recorder
        self._upstream = upstream
        self._router = router
        self._root = root
        self._eligible_tenants = eligible_tenants
        self._metrics = metrics
        self._window = KeyWindow()
        self._running: dict[asyncio.Task[web.StreamResponse], Relay] = {}

    async def handle(self, request: web.Request, route: Route) -> web.StreamResponse:
        """Relay one call. RefusedError where it does not get that far."""
        _refuse_what_cannot_be_relayed(request, route)
        key = await self._access.grant(request, route, CAPTURE)
        started_at = datetime.now(UTC)
        body = await read_body(request, self._upstream.settings)
        identity = self._identify(key, route, request, body)
        places = self._upstream.places.find(body, identity.kafka_key)
        router, places = (
            (None, places) if places else (self._router, [self._upstream.places.default])
        )
        ways = [Way(place, route.path, body) for place in places]
        ways[0].body()  # a call that cannot go where it belongs is refused before it is recorded
        asked = ways[0].asked
        eligible = key.tenant_id in self._eligible_tenants
        exchange = begun(
            request, route, key, identity, body, started_at, training_eligible=eligible,
            added_fields=() if asked is None else asked.added,
        )  # fmt: skip
        try:
            capture = self._recorder.begin(exchange, identity.kafka_key)
        except (SpoolFullError, SpoolWriteError) as error:
            self._count(route.path, Outcome.REJECTED)
            raise spool_refusal(error) from error
        query = request.rel_url.raw_query_string
        sending = Sending(self._upstream, router, route.path, query, identity.kafka_key, ways)
        relay = Relay(
            request, sending, identity, capture, self._upstream,
            lambda end, seconds: self._ended(route.path, end, seconds),
        )  # fmt: skip
        return await self._run(relay)

    async def _run(self, relay: Relay) -> web.StreamResponse:
        task = asyncio.create_task(relay.run())
        self._running[task] = relay
        task.add_done_callback(lambda done: self._running.pop(done, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            relay.client_left(task)
            raise

    @property
    def num_running(self) -> int:
        """Calls that have begun and not ended."""
        return len(self._running)

    def end_stalled(self) -> None:
        """Break off the calls whose clients have stopped reading. Due every second."""
        for relay in list(self._running.values()):
            relay.end_if_stalled()

    async def stop(self, timeout_seconds: float) -> None:
        """Let calls finish for that long, then end them and record that the gateway stopped."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=timeout_seconds)
        for task, relay in list(self._running.items()):
            relay.is_stopping = True
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=timeout_seconds)

    def _identify(
        self, key: KeyRecord, route: Route, request: web.Request, body: bytes
    ) -> Identity:
        try:
            identity = identify(key.tenant_id, self._root, route, request.headers, body)
        except UnsafeIdError as error:
            raise RefusedError(400, "invalid_id", str(error)) from error
        idempotency_key = identity.idempotency_key
        if idempotency_key is not None and self._window.is_other_body(
            key.tenant_id, idempotency_key, body
        ):
            raise RefusedError(
                422, "idempotency_key_reused",
                "This Idempotency-Key came before with another body. Use a new key per request.",
            )  # fmt: skip
        return identity

    def _ended(self, path: str, ending: Ending, overhead_seconds: float | None) -> None:
        self._count(path, ending.outcome)
        if overhead_seconds is not None:
            self._metrics.histogram("headrace_gateway_overhead_seconds").observe(overhead_seconds)

    def _count(self, path: str, outcome: Outcome) -> None:
        known = path if path in _KNOWN_PATHS else "other"
        self._metrics.counter("headrace_gateway_requests", path=known, outcome=outcome.value).inc()


def _refuse_what_cannot_be_relayed(request: web.Request, route: Route) -> None:
    if request.headers.get("Upgrade", "").lower() == "websocket":
        raise RefusedError(426, "no_websocket", "Use plain HTTP: websockets are not relayed.")
    paths.refuse_own(request.method, route.path)
    paths.refuse_unless_below_v1(request.method, route.path)
    if not headers.is_text(list(request.headers.items())):
        raise RefusedError(400, "bad_header", "A header holds bytes that are not UTF-8.")
