"""What lineage needs to know of a captured call, and what the call leaves for later ones."""

from dataclasses import dataclass

from schemas.atdp.types import Exchange, Outcome, TrajectorySource
from schemas.ids import keyed_digest
from streams.redaction.chat import ChatRequest, ChatResponse, loads
from streams.redaction.dialects.registry import Dialect
from streams.redaction.harness import Caller, tasks_given, texts_of
from streams.redaction.lineage import Call, Left, chain
from streams.redaction.redacting import EventRedaction
from streams.redaction.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Asking:
    """A call with its parsed request and answer."""

    exchange: Exchange
    dialect: Dialect
    request: ChatRequest
    response: ChatResponse | None
    caller: Caller


def call_of(
    asking: Asking, scope: str, step_id: str, trajectory_id: str, tenant: Tenant,
    redaction: EventRedaction,
) -> Call:  # fmt: skip
    """The call as lineage sees it. `trajectory_id` is the one that was named, or its own."""
    exchange, request, dialect = asking.exchange, asking.request, asking.dialect
    key = tenant.lineage_key
    previous = request.previous_response_id
    return Call(
        scope=scope,
        step_id=step_id,
        chain=chain(key, [dialect.canonical(message) for message in request.messages]),
        answers=[i for i, message in enumerate(request.messages) if dialect.is_answer(message)],
        trajectory_id=trajectory_id if exchange.trajectory_id is not None else None,
        parent_step_id=redaction.identifier(exchange.parent_step_id),
        own_trajectory_id=trajectory_id,
        started_us=int(exchange.started_at.timestamp() * 1e6),
        has_failed=_has_failed(asking),
        branch=_branch(asking.caller, redaction),
        tasks=_tasks_taken(asking, key),
        previous=None if previous is None else keyed_digest(key, "response", previous),
        is_session=exchange.trajectory_source is TrajectorySource.SESSION,
    )


def _has_failed(asking: Asking) -> bool:
    """Whether the client has reason to ask the same again. A caller's own key says that by
    itself."""
    if asking.exchange.idempotency_key is not None:
        return False
    status, response = asking.exchange.status or 0, asking.response
    broken = response is not None and (response.failed or response.damaged)
    return asking.exchange.outcome is not Outcome.COMPLETE or status >= 400 or broken


def _branch(caller: Caller, redaction: EventRedaction) -> str:
    if caller.subagent is not None:
        return redaction.identifier(caller.subagent) or ""
    if caller.is_beside:
        return "beside"
    return f"context-{caller.window}" if caller.window else ""


def _tasks_taken(asking: Asking, key: bytes) -> tuple[str, ...]:
    """Digests of what the user of a subagent says: one of them is its task."""
    if asking.caller.subagent is None:
        return ()
    asked = [m for m in asking.request.messages if m.get("role") == "user"]
    texts = [text for message in asked for text in texts_of(message.get("content"))]
    return tuple(keyed_digest(key, "task", text) for text in texts)


def left_by(asking: Asking, call: Call, tenant: Tenant) -> Left:
    """The digests under which later calls find this one."""
    key, response = tenant.lineage_key, asking.response
    if response is None:
        return Left()
    ends = []
    for output in response.outputs:
        digest = call.chain[-1]
        for text in asking.dialect.ends_of(output):
            digest = keyed_digest(key, digest, text)
        ends.append(digest)
    named = response.response_id
    return Left(
        ends=ends,
        tasks=_tasks_handed(asking, key) if call.is_session else (),
        response=None if named is None else keyed_digest(key, "response", named),
    )


def _tasks_handed(asking: Asking, key: bytes) -> tuple[str, ...]:
    outputs = asking.response.outputs if asking.response else ()
    arguments = [given for output in outputs for given in asking.dialect.calls_of(output)]
    texts = [text for given in arguments for text in tasks_given(_parsed(given))]
    return tuple(keyed_digest(key, "task", text) for text in texts)


def _parsed(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = loads(arguments)
    except ValueError:
        return None
    return parsed
