"""What is known of a call when it begins."""

from datetime import datetime

from aiohttp import web

from inference.capture import headers
from inference.capture.identity import Identity
from inference.capture.route import Route
from schemas import ids
from schemas.atdp import Exchange
from schemas.atdp.internal import KeyRecord
from schemas.atdp.types import Outcome


def begun(
    request: web.Request, route: Route, key: KeyRecord, identity: Identity,
    body: bytes, started_at: datetime, *, training_eligible: bool,
    added_fields: tuple[str, ...] = (),
) -> Exchange:  # fmt: skip
    """The record of a call that begins; its outcome is what is true if nothing else is added."""
    return Exchange(
        event_id=ids.uuid7(),
        tenant_id=key.tenant_id,
        step_id=identity.step_id,
        idempotency_key=identity.idempotency_key,
        trajectory_id=identity.trajectory_id,
        trajectory_source=identity.trajectory_source,
        parent_step_id=identity.parent_step_id,
        agent_id=identity.agent_id or key.agent_id,
        task_key=identity.task_key,
        api_key_id=key.key_id,
        training_eligible=training_eligible,
        method=request.method,
        path=_text(route.path),
        query=_text(request.rel_url.raw_query_string),
        request_headers=headers.for_record(list(request.headers.items())),
        request_body=body,
        added_fields=added_fields,
        # What is true of this call if the process dies before it says otherwise.
        outcome=Outcome.GATEWAY_CRASHED,
        started_at=started_at,
    )


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
