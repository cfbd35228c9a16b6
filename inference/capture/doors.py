"""The doors through which feedback and events come in: 202 only once they are in the spool."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aiohttp import web

from inference.access.check import Access
from inference.access.keys import EVENTS, FEEDBACK, has_scope
from inference.capture import events, feedback
from inference.capture.body import read_plain_body
from inference.capture.feedback import InvalidError, Keyed
from inference.capture.recorder import Recorder
from inference.capture.refusal import spool_refusal
from inference.capture.route import Route
from inference.dialects.refusal import RefusedError, json_response
from inference.spool import SpoolFullError, SpoolWriteError
from schemas import codec, ids
from schemas.errors import PermanentError
from schemas.settings import Settings
from schemas.telemetry import Metrics

Handler = Callable[[web.Request, Route], Awaitable[web.StreamResponse]]


class Doors:
    """`POST /v1/feedback` and `POST /v1/events`."""

    def __init__(
        self, access: Access, recorder: Recorder, settings: Settings, metrics: Metrics
    ) -> None:
        self._access = access
        self._recorder = recorder
        self._max_event_bytes = settings.kafka.max_record_bytes
        self._eligible_tenants = settings.training_eligible_tenants
        self._settings = settings.gateway
        self._metrics = metrics

    def find(self, method: str, path: str) -> Handler | None:
        """The handler of one of our own POST routes."""
        if method != "POST":
            return None
        return {"/v1/feedback": self._feedback, "/v1/events": self._events}.get(path)

    async def _feedback(self, request: web.Request, route: Route) -> web.StreamResponse:
        key = await self._access.grant(request, route, FEEDBACK)
        body = await read_plain_body(request, self._settings)
        now = datetime.now(UTC)
        try:
            bodies = feedback.parse(body)
        except InvalidError as error:
            raise _refusal(error) from error
        keyed = [feedback.feedback_of(item, key, now) for item in bodies]
        self._take(keyed)
        for item in bodies:
            self._metrics.counter("headrace_gateway_feedback", target=item.target.named[0]).inc()
        return json_response(202, {"ids": [item.event.reward_id for item in keyed]})

    async def _events(self, request: web.Request, route: Route) -> web.StreamResponse:
        key = await self._access.grant(request, route, EVENTS)
        body = await read_plain_body(request, self._settings)
        now = datetime.now(UTC)
        eligible = key.tenant_id in self._eligible_tenants
        try:
            plain = events.parse(body)
            if any(map(events.needs_feedback_scope, plain)) and not has_scope(key, FEEDBACK):
                raise RefusedError(403, "missing_scope", f"Rating needs the scope {FEEDBACK}.")
            keyed = [events.event_of(p, key, now, training_eligible=eligible) for p in plain]
        except InvalidError as error:
            raise _refusal(error) from error
        except events.ForeignTenantError as error:
            text = "An event names another tenant than the key's. Leave tenant_id out."
            raise RefusedError(403, "foreign_tenant", text, param="tenant_id") from error
        self._take(keyed)
        return json_response(202, {"ids": [_id_of(item) for item in keyed]})

    def _take(self, keyed: list[Keyed]) -> None:
        """All into the spool. A batch that fails half-way is sent again by its client; ids are
        functions of content or given by the client, so that makes no second event."""
        try:
            values = [codec.encode(item.event) for item in keyed]
        except PermanentError as error:
            raise _refusal(InvalidError("A text or number has no place in the schema.")) from error
        if any(len(value) > self._max_event_bytes for value in values):
            limit = self._max_event_bytes
            raise RefusedError(413, "event_too_large", f"An event is larger than {limit} bytes.")
        try:
            for item, value in zip(keyed, values, strict=True):
                self._recorder.record(ids.uuid7(), item.kafka_key, value)
        except (SpoolFullError, SpoolWriteError) as error:
            raise spool_refusal(error) from error


def _id_of(item: Keyed) -> str:
    event = item.event
    return str(getattr(event, "reward_id", None) or event.event_id)


def _refusal(error: InvalidError) -> RefusedError:
    return RefusedError(422, "invalid_body", str(error), param=error.field)
