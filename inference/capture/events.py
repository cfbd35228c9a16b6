"""ATDP events as clients post them: one JSON object, a list, or one object a line."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from inference.capture import feedback
from inference.capture.feedback import InvalidError, Keyed
from schemas import codec, ids
from schemas.atdp import limits
from schemas.atdp.internal import KeyRecord
from schemas.atdp.types import Feedback, Step, TrajectoryEnd
from schemas.errors import PermanentError, Reason

MAX_ITEMS = 1_000
_SAFE_FIELDS = ("event_id", "step_id", "trajectory_id", "task_key", "agent_id", "reward_id")


class ForeignTenantError(ValueError):
    """The event names another tenant than the key's."""


def parse(body: bytes) -> list[dict[str, Any]]:
    """The objects of a body. InvalidError where it is not JSON objects, or too many."""
    items = list(_objects(body))
    if not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidError(f"Send 1 to {MAX_ITEMS} events at once.")
    if not all(isinstance(item, dict) for item in items):
        raise InvalidError("Each event must be a JSON object with a field type.")
    return items


def _objects(body: bytes) -> Iterator[Any]:
    try:
        whole = orjson.loads(body)
    except orjson.JSONDecodeError:
        lines = [line for line in body.splitlines() if line.strip()]
        if len(lines) < 2:
            raise InvalidError("The body is neither JSON nor JSON lines.") from None
        yield from (_line(line, number) for number, line in enumerate(lines, 1))
        return
    yield from whole if isinstance(whole, list) else [whole]


def _line(line: bytes, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        raise InvalidError(f"Line {number} is not valid JSON.") from None


def needs_feedback_scope(plain: dict[str, Any]) -> bool:
    """True for events that rate."""
    return plain.get("type") == "feedback"


def event_of(
    plain: dict[str, Any], key: KeyRecord, received_at: datetime, *, training_eligible: bool
) -> Keyed:
    """The event under the key's tenant. InvalidError, ForeignTenantError."""
    plain = dict(plain)
    if plain.setdefault("tenant_id", key.tenant_id) != key.tenant_id:
        raise ForeignTenantError
    if plain.get("type") == "feedback" and "reward_id" not in plain:
        body = {k: v for k, v in plain.items() if k not in ("type", "tenant_id")}
        return feedback.feedback_of(_feedback_body(body), key, received_at)
    if plain.get("type") in ("step", "trajectory_end"):
        plain.setdefault("event_id", ids.uuid7())
    for name in _SAFE_FIELDS:
        value = plain.get(name)
        if isinstance(value, str) and not ids.is_safe_id(value):
            raise InvalidError(
                f"The field {name} must be 1 to 200 letters, digits or any of . _ : @ + = -", name
            )
    event = _decoded(plain)
    if isinstance(event, Feedback):
        _refuse_what_cannot_rate(event)
    try:
        limits.check(event)
    except PermanentError as error:
        raise InvalidError(f"The field {error.field} is out of range.", error.field) from None
    return _owned(event, key, received_at, training_eligible=training_eligible)


def _decoded(plain: dict[str, Any]) -> Any:
    try:
        return codec.decode_json(orjson.dumps(plain))
    except PermanentError as error:
        raise _invalid(error) from None
    except orjson.JSONEncodeError:
        raise InvalidError("The event is nested too deeply.") from None


def _refuse_what_cannot_rate(event: Feedback) -> None:
    """What `POST /v1/feedback` asks for, of feedback that brings its own reward_id."""
    target = event.target
    given = (target.trajectory_id, target.step_id, target.response_id)
    if sum(name is not None for name in given) != 1 or not all(map(_is_absent_or_safe, given)):
        raise InvalidError("The field target must hold exactly one id.", "target")
    if event.confidence is not None and not 0 <= event.confidence <= 1:
        raise InvalidError("The field confidence must lie between 0 and 1.", "confidence")


def _is_absent_or_safe(name: str | None) -> bool:
    return name is None or ids.is_safe_id(name)


def _feedback_body(plain: dict[str, Any]) -> feedback.FeedbackBody:
    try:
        return feedback.parse_plain(plain)
    except orjson.JSONEncodeError:
        raise InvalidError("The event is nested too deeply.") from None


def _owned(event: Any, key: KeyRecord, received_at: datetime, *, training_eligible: bool) -> Keyed:
    """What the sender may not decide is set here, whatever the event said."""
    tenant_id = key.tenant_id
    if isinstance(event, Feedback):
        rater_id = key.rater_id or key.key_id
        event = replace(event, rater_id=rater_id, received_at=received_at)
        return Keyed(event, feedback.kafka_key(tenant_id, event.target))
    if isinstance(event, Step):
        governance = replace(event.governance, training_eligible=training_eligible)
        event = replace(event, governance=governance, source=None, replay_epoch=0, replayed=False)
    elif isinstance(event, TrajectoryEnd):
        event = replace(event, raw=None, replay_epoch=0)
    return Keyed(event, ids.trajectory_key(tenant_id, event.trajectory_id))


def _invalid(error: PermanentError) -> InvalidError:
    if error.field is None:
        return InvalidError("The event does not follow its schema.")
    if error.field == "type":
        kinds = ", ".join(sorted(codec.PUBLISHABLE))
        return InvalidError(f"The field type must be one of {kinds}.", "type")
    if error.reason is Reason.NOT_FINITE:
        return InvalidError(f"The field {error.field} must be a finite number.", error.field)
    return InvalidError(f"The field {error.field} does not follow the schema.", error.field)
