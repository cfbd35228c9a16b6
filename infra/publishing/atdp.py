"""Lines of ATDP JSON as events: the rules of `POST /v1/events`, plus ids and times of the file's.

The gateway takes tenant and rater from its key. Whoever writes to the topic directly says both.
"""

from typing import Any

import orjson

from inference.capture import events as door
from inference.capture.feedback import InvalidError
from infra.publishing.documents import Entry, Problem
from infra.publishing.minting import Mint
from schemas.atdp.internal import KeyRecord
from schemas.codec import PUBLISHABLE

RATER = "headrace-publish"
_TIMES = {"step": ("started_at",), "trajectory_end": ("occurred_at",)}


def event_of(entry: Entry, index: int, mint: Mint) -> Any:
    """The event in an entry, or the Problem with it. `index` is its place in the file."""
    plain = entry.value
    if not isinstance(plain, dict) or plain.get("type") not in PUBLISHABLE:
        kinds = ", ".join(PUBLISHABLE)
        return Problem(
            entry.where, "type", f"each event is an object whose type is one of {kinds}."
        )
    rater_id = plain.get("rater_id") or RATER
    if not isinstance(rater_id, str):
        return Problem(entry.where, "rater_id", "it must be a text.")
    filled = _filled(plain, index, mint)
    try:
        return door.event_of(
            filled, _key(mint, rater_id), mint.time(index), training_eligible=mint.training_eligible
        ).event
    except door.ForeignTenantError:
        return Problem(
            entry.where,
            "tenant_id",
            f"the event names another tenant than {mint.tenant_id}. Publish it with --tenant.",
        )
    except InvalidError as error:
        return Problem(entry.where, error.field, f"{error} docs/publish.md shows every field.")


def _filled(plain: dict[str, Any], index: int, mint: Mint) -> dict[str, Any]:
    kind = plain["type"]
    filled = dict(plain)
    if kind == "feedback":
        if "reward_id" not in filled:
            filled.pop("rater_id", None)
        else:
            filled.setdefault("received_at", mint.time(index).isoformat())
            filled.setdefault("occurred_at", filled["received_at"])
        return filled
    if kind == "step" and "step_id" not in filled:
        filled["step_id"] = _content_id("step", plain, mint)
    if "event_id" not in filled:
        filled["event_id"] = _content_id("event", plain, mint)
    for name in _TIMES[kind]:
        filled.setdefault(name, mint.time(index).isoformat())
    return filled


def _content_id(kind: str, plain: dict[str, Any], mint: Mint) -> str:
    try:
        return mint.content_id(kind, plain)
    except orjson.JSONEncodeError:  # nested deeper than it writes: the check that follows says so
        return kind


def _key(mint: Mint, rater_id: str) -> KeyRecord:
    return KeyRecord(
        key_id=RATER,
        key_hash="",
        tenant_id=mint.tenant_id,
        scopes=("events:write", "feedback:write"),
        rater_id=rater_id,
        created_at=mint.base_time,
    )
