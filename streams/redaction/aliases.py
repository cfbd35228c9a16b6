"""Feedback that names a step or a response meets that step, in either order.

Both sides are keyed by the same HMAC of the id, so they land in one partition. While it waits,
feedback shows as a reward without a trajectory; once the step is known the reward goes out again
under the same id, whole. State, small rows so that none outgrows a record:

    <alias>      the step once it is known, else the names of the feedback that waits for it
    <alias>~<n>  one waiting feedback (original text, which is why this changelog is listed among
                 the places that hold it)
"""

from dataclasses import replace
from typing import Any

import orjson

from schemas.atdp.internal import Alias, UnresolvedFeedback
from schemas.atdp.types import Feedback
from schemas.bus import Received, Record
from schemas.codec import decode, encode
from schemas.errors import PermanentError, Reason
from schemas.ids import derive_id
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
        self._tenants.begin_event()
        event = decode(record.value)
        if isinstance(event, Alias):
            return self._alias(event, record, state)
        if isinstance(event, UnresolvedFeedback):
            return self._unresolved(event, record, state)
        raise PermanentError(Reason.UNEXPECTED_EVENT)

    def _alias(self, alias: Alias, record: Received, state: State) -> Effects:
        names = _load(state, alias.alias)["waiting"]
        rows = [(name, state.get(name)) for name in names]
        outputs = tuple(
            self._resolve(decode(row), alias.step_id, alias.trajectory_id, record)
            for _, row in rows
            if row is not None
        )
        value = {"step": [alias.step_id, alias.trajectory_id], "waiting": []}
        # The step first: dying in between leaves rows that nothing names, never a lost reward.
        return Effects(
            outputs, ((alias.alias, orjson.dumps(value)), *((name, None) for name in names))
        )

    def _unresolved(self, waiting: UnresolvedFeedback, record: Received, state: State) -> Effects:
        known = _load(state, waiting.alias)
        if known["step"] is not None:
            step_id, trajectory_id = known["step"]
            return Effects((self._resolve(waiting, step_id, trajectory_id, record),))
        row = encode(replace(waiting, raw=None))
        name = f"{waiting.alias}~{derive_id('waiting', row.hex())}"
        effects = Effects((self._provisional(waiting, record),))
        if name in known["waiting"]:
            return effects
        if len(known["waiting"]) >= MAX_WAITING:
            raise PermanentError(Reason.OVERSIZED, "target")
        known["waiting"].append(name)
        # The row before its name, so that no name is without its row.
        changes = ((name, encode(waiting)), (waiting.alias, orjson.dumps(known)))
        return replace(effects, state=changes)

    def _provisional(self, waiting: UnresolvedFeedback, record: Received) -> Record:
        """The reward without a trajectory, so that what is unmatched can be seen."""
        feedback: Feedback = waiting.feedback
        redaction = self._tenants.redaction(feedback.tenant_id)
        step_id = redaction.identifier(feedback.target.step_id)
        tenant = self._tenants.get(feedback.tenant_id)
        reward = clean_reward(feedback, "", step_id, redaction, tenant.digest_key)
        made = reward_record(reward, self._mark, record, waiting.raw)
        return replace(made, key=waiting.alias.encode())  # no trajectory to gather them under

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
