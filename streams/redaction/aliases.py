"""Feedback that names a step or a response meets that step, in either order.

Both sides are keyed by the same HMAC of the id, so they land in one partition. State, one value
an alias: the step once it is known, else the feedback that waits for it (original text, which is
why this changelog is listed among the places that hold it).
"""

import base64
from typing import Any

import orjson

from schemas.atdp.internal import Alias, UnresolvedFeedback
from schemas.atdp.types import Feedback
from schemas.bus import Received, Record
from schemas.codec import decode, encode
from schemas.errors import PermanentError, Reason
from streams.redaction.processor import reward_record
from streams.redaction.published import clean_reward
from streams.redaction.tenants import Tenants
from streams.runtime import Effects, ReplayMark, State

#: Feedback that may wait for one step. More than this is a fault of the sender.
MAX_WAITING = 1_000


class AliasProcessor:
    """Handles aliases and unresolved feedback."""

    def __init__(self, tenants: Tenants, mark: ReplayMark) -> None:
        self._tenants = tenants
        self._mark = mark

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects:  # noqa: ARG002
        """Join. See `streams.runtime.lane.Processor`."""
        event = decode(record.value)
        if isinstance(event, Alias):
            return self._alias(event, record, state)
        if isinstance(event, UnresolvedFeedback):
            return self._unresolved(event, record, state)
        raise PermanentError(Reason.UNEXPECTED_EVENT)

    def _alias(self, alias: Alias, record: Received, state: State) -> Effects:
        known = _load(state, alias.alias)
        waiting = [decode(base64.b64decode(item)) for item in known["waiting"]]
        outputs = tuple(
            self._resolve(w, alias.step_id, alias.trajectory_id, record) for w in waiting
        )
        value = {"step": [alias.step_id, alias.trajectory_id], "waiting": []}
        return Effects(outputs, ((alias.alias, orjson.dumps(value)),))

    def _unresolved(self, waiting: UnresolvedFeedback, record: Received, state: State) -> Effects:
        known = _load(state, waiting.alias)
        if known["step"] is not None:
            step_id, trajectory_id = known["step"]
            return Effects((self._resolve(waiting, step_id, trajectory_id, record),))
        item = base64.b64encode(encode(waiting)).decode()
        if item in known["waiting"]:
            return Effects()
        if len(known["waiting"]) >= MAX_WAITING:
            raise PermanentError(Reason.OVERSIZED, "target")
        known["waiting"].append(item)
        return Effects(state=((waiting.alias, orjson.dumps(known)),))

    def _resolve(
        self, waiting: UnresolvedFeedback, step_id: str, trajectory_id: str, record: Received
    ) -> Record:
        feedback: Feedback = waiting.feedback
        tenant = self._tenants.get(feedback.tenant_id)
        redaction = self._tenants.redaction(feedback.tenant_id)
        reward = clean_reward(feedback, trajectory_id, step_id, redaction, tenant.digest_key)
        return reward_record(reward, self._mark, record, waiting.raw)


def _load(state: State, alias: str) -> dict[str, Any]:
    stored = state.get(alias)
    value: dict[str, Any] = (
        {"step": None, "waiting": []} if stored is None else orjson.loads(stored)
    )
    return value
