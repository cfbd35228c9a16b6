"""What the gateway answers about itself: health, metrics, schemas, trajectories."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from urllib.parse import unquote

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from inference.access.check import Access
from inference.access.keys import TRAJECTORIES
from inference.capture.route import Route
from inference.dialects.refusal import RefusedError, json_response
from inference.dialects.registry import registry_answer
from inference.fleet.siblings import Siblings
from inference.spool.health import GatewayHealth
from schemas import ids
from schemas.errors import HeadraceError
from schemas.settings import Settings
from schemas.telemetry import Metrics

Handler = Callable[[web.Request, Route], Awaitable[web.StreamResponse]]
_TRAJECTORY = "/v1/trajectories/"
_REGISTRY_TYPE = "application/vnd.schemaregistry.v1+json"


class Reads:
    """Our own GET routes."""

    def __init__(
        self, access: Access, settings: Settings, metrics: Metrics,
        health: Callable[[], GatewayHealth], siblings: Siblings | None = None,
    ) -> None:  # fmt: skip
        self._access = access
        self._settings = settings
        self._registered = metrics.registry
        self._judge = health
        self._siblings = siblings

    def find(self, method: str, path: str) -> Handler | None:
        """The handler of one of our own GET routes."""
        if method not in ("GET", "HEAD"):
            return None
        if path.startswith(_TRAJECTORY):
            return self._trajectory
        if path.startswith(("/schemas/ids/", "/subjects")):
            return self._registry
        own = {"/health": self._health, "/ready": self._ready, "/metrics": self._metrics}
        return own.get(path)

    async def _health(self, _request: web.Request, _route: Route) -> web.StreamResponse:
        """For whoever watches: 503 also while events only pile up in the spool, of any process."""
        health = self._judge()
        others = self._siblings.why() if self._siblings is not None else ""
        if others and health.healthy:
            health = replace(health, healthy=False, why=others)
        return json_response(200 if health.healthy else 503, asdict(health))

    async def _ready(self, _request: web.Request, _route: Route) -> web.StreamResponse:
        """For whoever sends calls here: a gateway takes them while Kafka is away."""
        health = self._judge()
        return json_response(200 if health.ready else 503, asdict(health))

    async def _metrics(self, _request: web.Request, _route: Route) -> web.StreamResponse:
        siblings, registered = self._siblings, self._registered
        text = siblings.metrics(registered) if siblings else generate_latest(registered)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _registry(self, _request: web.Request, route: Route) -> web.StreamResponse:
        answer = registry_answer(route.path)
        if answer is None:
            status, answer = 404, {"error_code": 40403, "message": "Schema not found"}
        else:
            status = 200
        text = json.dumps(answer)
        return web.Response(status=status, text=text, content_type=_REGISTRY_TYPE)

    async def _trajectory(self, request: web.Request, route: Route) -> web.StreamResponse:
        key = await self._access.grant(request, route, TRAJECTORIES)
        trajectory_id = unquote(route.path.removeprefix(_TRAJECTORY), errors="replace")
        if not ids.is_safe_id(trajectory_id):
            raise RefusedError(404, "not_found", "No trajectory has an id of that form.")
        # Imported on use: only this route needs the store, and a gateway starts without it.
        from inference.trajectories import read_trajectory

        try:
            found = await read_trajectory(self._settings, key.tenant_id, trajectory_id)
        except HeadraceError as error:
            raise RefusedError(
                503, "store_unavailable", str(error), retry_after_seconds=2
            ) from error
        if found is None:
            raise RefusedError(404, "not_found", "This tenant has no trajectory with that id.")
        return json_response(200, found)
