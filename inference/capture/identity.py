"""Under which ids a call is kept, from what its client says about itself."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from inference.capture.headers import OURS
from inference.capture.route import Route
from schemas import ids, secrets
from schemas.atdp.types import TrajectorySource

#: Session ids that agents send: Claude Code; OpenCode; Codex, new and old.
#: OpenCode gives each subagent a session of its own and says which one started it. In Responses it
#: sends its own session under the name that Codex uses as well, so what started it comes first.
_SESSION_HEADERS = (
    "x-claude-code-session-id", "x-parent-session-id", "session-id", "session_id", "x-session-id",
)  # fmt: skip
#: A body above this is not parsed for its opening; its digest still spreads calls over partitions.
_MAX_PARSED_BYTES = 4 * 1024**2


class UnsafeIdError(ValueError):
    """An id given by the client cannot be used. The text names where it came from, not the id."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"The id in {where} must be 1 to 200 letters, digits or any of . _ : @ + = -"
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids of one call. `kafka_key` decides the partition."""

    step_id: str
    idempotency_key: str | None
    trajectory_id: str | None
    trajectory_source: TrajectorySource
    parent_step_id: str | None
    agent_id: str | None
    task_key: str | None
    kafka_key: bytes


def identify(
    tenant_id: str, root: bytes, route: Route, headers: Mapping[str, str], body: bytes
) -> Identity:
    """The ids of a call. UnsafeIdError for an id that does not pass `is_safe_id`."""
    idempotency_key = headers.get("Idempotency-Key")
    trajectory_id, source, parsed = _trajectory(tenant_id, root, route, headers, body)
    return Identity(
        step_id=step_id(tenant_id, idempotency_key),
        idempotency_key=_utf8(idempotency_key),
        trajectory_id=trajectory_id,
        trajectory_source=source,
        parent_step_id=_checked(headers.get(f"{OURS}parent-step-id"), f"{OURS}parent-step-id"),
        agent_id=_checked(headers.get(f"{OURS}agent-id"), f"{OURS}agent-id"),
        task_key=_checked(headers.get(f"{OURS}task-key"), f"{OURS}task-key"),
        kafka_key=(
            ids.trajectory_key(tenant_id, trajectory_id)
            if trajectory_id is not None
            else ids.opening_key(tenant_id, _fingerprint(tenant_id, root, parsed, body))
        ),
    )


def step_id(tenant_id: str, idempotency_key: str | None) -> str:
    """The client's key where it can be an id, so that feedback may name the step beforehand."""
    if idempotency_key is None:
        return ids.uuid7()
    if ids.is_safe_id(idempotency_key):
        return idempotency_key
    return ids.derive_id("step", tenant_id, idempotency_key)


def _trajectory(
    tenant_id: str, root: bytes, route: Route, headers: Mapping[str, str], body: bytes
) -> tuple[str | None, TrajectorySource, Any]:
    """The trajectory's id, who named it, and the parsed body where that was needed."""
    header = _checked(headers.get(f"{OURS}trajectory-id"), f"{OURS}trajectory-id")
    path = _checked(route.trajectory_id, "the path after /t/")
    if header is not None:
        return header, TrajectorySource.HEADER, None
    if path is not None:
        return path, TrajectorySource.PATH, None
    session = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), None)
    parsed = _parse(body) if session is None else None
    session = session or _session_in_body(parsed)
    if session is None:
        return None, TrajectorySource.NONE, parsed
    if not ids.is_safe_id(session):
        key = _fingerprint_key(root, tenant_id)
        session = ids.keyed_digest(key, "session", session)
    return session, TrajectorySource.SESSION, None


def _parse(body: bytes) -> Any:
    if not body.startswith((b"{", b" ", b"\n", b"\t", b"\r")) or len(body) > _MAX_PARSED_BYTES:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _session_in_body(parsed: Any) -> str | None:
    """Claude Code's and its SDK's session id in `metadata.user_id`, itself a JSON text."""
    metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str) or '"session_id"' not in user:
        return None
    inner = _parse(user.encode())
    session = inner.get("session_id") if isinstance(inner, dict) else None
    return session if isinstance(session, str) and session else None


@functools.lru_cache(maxsize=1_024)
def _fingerprint_key(root: bytes, tenant_id: str) -> bytes:
    return secrets.tenant_key(root, tenant_id, "fingerprint")


def _fingerprint(tenant_id: str, root: bytes, parsed: Any, body: bytes) -> str:
    """Keyed digest of the messages up to the first of the user, else of the whole body."""
    key = _fingerprint_key(root, tenant_id)
    opening = _opening(parsed)
    try:
        text = orjson.dumps(opening, option=orjson.OPT_SORT_KEYS) if opening else b""
    except orjson.JSONEncodeError:  # nested deeper than it writes
        text = b""
    if not text:
        return ids.keyed_digest(key, "body", hashlib.sha256(body).digest())
    return ids.keyed_digest(key, "opening", text)


def _opening(parsed: Any) -> list[Any]:
    """What later calls of a conversation repeat, without what clients change from turn to turn."""
    if not isinstance(parsed, dict):
        return []
    messages = parsed.get("messages") or parsed.get("input")
    if not isinstance(messages, list):
        return [messages] if isinstance(messages, str) else []
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return [_said(message) for message in messages[: index + 1]]
    return [_said(message) for message in messages]


def _said(message: Any) -> Any:
    """Who said which texts: a text may come as a string or in parts, and cache marks move."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", part) if isinstance(part, dict) else part for part in parts]
    return [message.get("role"), texts]


def _checked(value: str | None, where: str) -> str | None:
    if value is not None and not ids.is_safe_id(value):
        raise UnsafeIdError(where)
    return value


def _utf8(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()
