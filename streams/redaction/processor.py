"""Raw events in, clean events out. The pure part of the redaction processor.

Exchange       → trajectory.steps.v1, and an alias for each id that feedback may name
Step           → the same, as its producer told it
Feedback       → trajectory.rewards.v1 if it names a trajectory, else raw.unresolved.v1
TrajectoryEnd  → trajectory.ends.v1
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from schemas import topics
from schemas.atdp import limits
from schemas.atdp.internal import Alias, UnresolvedFeedback
from schemas.atdp.types import (
    Coordinates,
    Exchange,
    Feedback,
    FeedbackTarget,
    Outcome,
    Step,
    StepKind,
    TrajectoryEnd,
)
from schemas.bus import Received, Record
from schemas.codec import decode, encode
from schemas.errors import HeadraceError, PermanentError, Reason
from schemas.ids import derive_id, keyed_digest, trajectory_key
from schemas.store import BlobStore
from streams.redaction import gaps
from streams.redaction.asking import Asking, call_of, left_by
from streams.redaction.bodies import is_whole, request_bytes, response_bytes
from streams.redaction.captured import Identity, chat_step, unparsed_step
from streams.redaction.dialects.registry import dialect_of, kind_aside, reader_of
from streams.redaction.harness import caller_of
from streams.redaction.lineage import Node, Waits, place, remember
from streams.redaction.outgoing import outgoing, outgoing_step
from streams.redaction.published import clean_end, clean_reward, published_step
from streams.redaction.redacting import EventRedaction
from streams.redaction.retokenise import Tokenizer
from streams.redaction.tenants import Tenant, Tenants
from streams.runtime import Effects, Hold, ReplayMark, State

#: Of the messages of a call, those that are read ahead: most calls bring two or three new ones.
_NUM_LATEST = 4

StateChanges = tuple[tuple[str, bytes | None], ...]

#: What is kept of a published step: whether its text and all its ancestors' were clean.
_CLEAN, _UNCLEAN = b"1", b"0"


class RedactionProcessor:
    """Handles one raw record at a time."""

    def __init__(
        self,
        tenants: Tenants,
        blobs: BlobStore,
        mark: ReplayMark,
        hold_seconds: float,
        eligible_tenants: Collection[str] = (),
        tokenizers: Mapping[str, Tokenizer] | None = None,
    ) -> None:
        """`eligible_tenants` permit training; a producer's own word for it is not enough.
        `tokenizers` are those of policies by name."""
        self._tokenizers = tokenizers
        self._tenants = tenants
        self._blobs = blobs
        self._mark = mark
        self._hold = Hold(hold_seconds)
        self._eligible_tenants = frozenset(eligible_tenants)

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects | Hold:
        """Decode, place, redact. See `streams.runtime.lane.Processor`."""
        self._tenants.begin_event()
        event = decode(record.value)
        if isinstance(event, Feedback):
            _refuse_other_than_one_target(event.target)
        if isinstance(event, Exchange | Step | Feedback | TrajectoryEnd):
            limits.check(event)
        if isinstance(event, Exchange):
            return self._exchange(event, record, state, overdue=overdue)
        if isinstance(event, Step):
            return self._published(event, record, state)
        if isinstance(event, Feedback):
            return self._feedback(event, record)
        if isinstance(event, TrajectoryEnd):
            return self._end(event, record)
        raise PermanentError(Reason.UNEXPECTED_EVENT)

    def read_ahead(self, records: Sequence[Received]) -> None:
        """Have a model read the last messages and the answers of several calls at once. What
        cannot be read here fails where its record is handled."""
        if len(records) < 2 or not self._tenants.read_ahead:
            return
        self._tenants.begin_event()
        by_tenant: dict[str, list[Any]] = {}
        for record in records:
            with suppress(HeadraceError):
                event = decode(record.value)
                if isinstance(event, Exchange):
                    texts = self._latest(event)
                    by_tenant.setdefault(event.tenant_id, []).extend(texts)
        for tenant_id, documents in by_tenant.items():
            with suppress(HeadraceError):
                self._tenants.redaction(tenant_id).read_ahead(documents)

    def _latest(self, exchange: Exchange) -> list[Any]:
        """The messages of a call that earlier calls hardly had."""
        dialect = reader_of(dialect_of(exchange.method, exchange.path))
        request = dialect.parse_request(request_bytes(exchange, self._blobs)) if dialect else None
        if dialect is None or request is None:
            return []
        answered = response_bytes(exchange, self._blobs)
        response = dialect.parse_response(answered) if answered else None
        outputs = response.outputs if response else ()
        return [*request.messages[-_NUM_LATEST:], *outputs]

    def _exchange(
        self, exchange: Exchange, record: Received, state: State, *, overdue: bool
    ) -> Effects | Hold:
        tenant = self._tenants.get(exchange.tenant_id)
        # Any producer may use any key: a tenant's state is under its own name.
        scope = f"{exchange.tenant_id}/{keyed_digest(tenant.lineage_key, record.key or b'')}"
        asked = request_bytes(exchange, self._blobs)
        answered = _readable_answer(exchange, self._blobs)
        clean_id = self._tenants.redaction(exchange.tenant_id).identifier(exchange.step_id) or ""
        exchange = replace(exchange, step_id=clean_id, outcome=_outcome(exchange, answered))
        identity, claimed = _identity(exchange, scope, asked, answered, tenant, state)
        name = dialect_of(exchange.method, exchange.path)
        dialect = reader_of(name)
        request = dialect.parse_request(asked) if dialect else None
        if dialect is None or request is None:
            step = self._unparsed(exchange, identity, name, has_reader=dialect is not None)
            return self._step_effects(step, record, tenant, None, claimed)
        response = dialect.parse_response(answered) if answered else None
        redaction = self._tenants.redaction(exchange.tenant_id)
        caller = caller_of(exchange.request_headers, request.tools)
        asking = Asking(exchange, dialect, request, response, caller)
        call = call_of(
            asking, scope, identity.step_id, self._trajectory_id(exchange), tenant, redaction
        )
        where = place(call, state, overdue=overdue)
        if isinstance(where, Waits):
            return self._hold
        identity = replace(identity, attempt_of=identity.attempt_of or where.attempt_of)
        step, redacted = chat_step(
            exchange, identity, request, response, where, call.chain[-1], redaction, caller,
            self._tokenizers,
        )  # fmt: skip
        node = Node(
            identity.step_id, where.trajectory_id, where.step_index, redacted, branch=where.branch
        )
        changes = remember(call, where, node, left_by(asking, call, tenant), state)
        raw_id = response.response_id if response else None
        return self._step_effects(step, record, tenant, raw_id, (*claimed, *changes))

    def _unparsed(
        self, exchange: Exchange, identity: Identity, name: str, *, has_reader: bool
    ) -> Step:
        """The step of a call whose messages are not read. One that asks for no decision belongs to
        no trajectory, unless it is of an embedding and its client named one."""
        redaction = self._tenants.redaction(exchange.tenant_id)
        trajectory_id = self._trajectory_id(exchange)
        aside = kind_aside(exchange.method, name)
        if aside is not None:
            named = aside is StepKind.RETRIEVAL and exchange.trajectory_id is not None
            return unparsed_step(
                exchange, identity, trajectory_id if named else "", redaction, gaps.NO_DECISION,
                aside,
            )  # fmt: skip
        gap = gaps.REQUEST_NOT_PARSED if has_reader else gaps.DIALECT_NOT_PARSED
        return unparsed_step(exchange, identity, trajectory_id, redaction, gap)

    def _trajectory_id(self, exchange: Exchange) -> str:
        """The trajectory that was named, without private data, else one of the call's own."""
        named = self._tenants.redaction(exchange.tenant_id).identifier(exchange.trajectory_id)
        return named or derive_id("trajectory", exchange.tenant_id, exchange.step_id)

    def _published(self, step: Step, record: Received, state: State) -> Effects:
        tenant = self._tenants.get(step.tenant_id)
        scope = trajectory_key(step.tenant_id, step.trajectory_id).decode()
        # No id holds a control character, so no two slots are one.
        slot = f"{scope}\x00clean\x00{step.step_id}"
        parent = step.lineage.parent_step_id
        # A parent that was never seen may have held anything. What was decided once holds, also
        # when the parent has come since: the same event makes the same step.
        parent_slot = None if parent is None else f"{scope}\x00clean\x00{parent}"
        unclean = parent_slot is not None and state.get(parent_slot) != _CLEAN
        before = state.get(slot)
        clean, redacted = published_step(
            step,
            self._tenants.redaction(step.tenant_id),
            tenant.digest_key,
            ancestors_redacted=unclean if before is None else before != _CLEAN,
        )
        changes: StateChanges = ((slot, _UNCLEAN if redacted else _CLEAN),)
        return self._step_effects(clean, record, tenant, step.response_id, changes)

    def _step_effects(
        self,
        step: Step,
        record: Received,
        tenant: Tenant,
        response_id: str | None,
        changes: StateChanges,
    ) -> Effects:
        permitted = step.tenant_id in self._eligible_tenants
        governance = replace(
            step.governance,
            redaction_policy_version=tenant.policy_version,
            training_eligible=permitted and step.governance.training_eligible,
        )
        stamped = replace(
            step,
            governance=governance,
            source=_coordinates(record),
            replay_epoch=self._mark.epoch,
            replayed=self._mark.is_replayed(record),
        )
        key = trajectory_key(step.tenant_id, step.trajectory_id or step.step_id)
        aliases = self._aliases(stamped, response_id, tenant)
        return Effects((outgoing_step(key, stamped), *aliases), changes)

    def _aliases(self, step: Step, response_id: str | None, tenant: Tenant) -> list[Record]:
        known = [("step", step.step_id), ("response", response_id)]
        if step.lineage.attempt_of is not None:
            known = known[1:]  # feedback by step id means the attempt that became the step
        redaction = self._tenants.redaction(step.tenant_id)
        records = []
        for kind, value in known:
            if value:
                alias = alias_of(tenant, kind, value, redaction)
                event = Alias(
                    alias=alias,
                    tenant_id=step.tenant_id,
                    step_id=step.step_id,
                    trajectory_id=step.trajectory_id,
                    recorded_at=step.started_at,
                )
                records.append(Record(topics.RAW_ALIASES, alias.encode(), encode(event)))
        return records

    def _feedback(self, feedback: Feedback, record: Received) -> Effects:
        tenant = self._tenants.get(feedback.tenant_id)
        target = feedback.target
        redaction = self._tenants.redaction(feedback.tenant_id)
        if target.trajectory_id is None:
            kind, value = ("step", target.step_id) if target.step_id else (
                "response", target.response_id)  # fmt: skip
            alias = alias_of(tenant, kind, value or "", redaction)
            event = UnresolvedFeedback(alias=alias, feedback=feedback, raw=_coordinates(record))
            return Effects((outgoing(topics.RAW_UNRESOLVED, alias.encode(), event),))
        trajectory_id = redaction.identifier(target.trajectory_id) or ""
        reward = clean_reward(feedback, trajectory_id, None, redaction, tenant.digest_key)
        return Effects((reward_record(reward, self._mark, record, _coordinates(record)),))

    def _end(self, end: TrajectoryEnd, record: Received) -> Effects:
        clean = clean_end(end, self._tenants.redaction(end.tenant_id))
        stamped = replace(clean, raw=_coordinates(record), replay_epoch=self._mark.epoch)
        key = trajectory_key(clean.tenant_id, clean.trajectory_id)
        return Effects((outgoing(topics.ENDS, key, stamped),))


def _refuse_other_than_one_target(target: FeedbackTarget) -> None:
    given = [target.trajectory_id, target.step_id, target.response_id]
    if sum(value is not None for value in given) != 1 or "" in given:
        raise PermanentError(Reason.WRONG_TYPE, "target")


def alias_of(tenant: Tenant, kind: str, value: str, redaction: EventRedaction) -> str:
    """The key under which an id (kind `step` or `response`) meets feedback that names it.

    The id may be the client's own or the pseudonym that stands for it in the tables.
    """
    return keyed_digest(tenant.alias_key, kind, redaction.identifier(value) or "")


def reward_record(
    reward: Any, mark: ReplayMark, record: Received, raw: Coordinates | None
) -> Record:
    """The reward as an output, stamped with its origin and the processing that made it.

    What was made anew on the way, such as unresolved feedback, is as old as its raw record.
    """
    replayed = mark.is_replayed(raw or record)
    stamped = replace(reward, raw=raw, replay_epoch=mark.epoch, replayed=replayed)
    key = trajectory_key(reward.tenant_id, reward.trajectory_id)
    return outgoing(topics.REWARDS, key, stamped)


def _readable_answer(exchange: Exchange, blobs: BlobStore) -> bytes:
    """The response body; nothing where its encoding cannot be undone, which becomes a gap."""
    try:
        return response_bytes(exchange, blobs)
    except PermanentError as error:
        if error.reason is Reason.BLOB_MISSING:
            raise
        return b""


def _outcome(exchange: Exchange, answered: bytes) -> Outcome:
    """A gateway that was killed after the last byte noted no end, and its client has the answer and
    the step's id: it rates that step and asks no second time."""
    crashed = exchange.outcome is Outcome.GATEWAY_CRASHED
    whole = crashed and exchange.status == HTTPStatus.OK and is_whole(answered)
    return Outcome.COMPLETE if whole else exchange.outcome


def _identity(
    exchange: Exchange, scope: str, asked: bytes, answered: bytes, tenant: Tenant, state: State
) -> tuple[Identity, StateChanges]:
    """The step's ids. Under an idempotency key the first completed attempt is the step."""
    digest = keyed_digest(tenant.digest_key, asked, answered)
    step_id, attempt_of = exchange.step_id, None
    changes: StateChanges = ()
    if exchange.idempotency_key is not None:
        slot = f"{scope}!{exchange.step_id}"
        owner = (state.get(slot) or b"").decode()
        complete = exchange.outcome is Outcome.COMPLETE
        if complete and owner in ("", exchange.event_id):
            changes = ((slot, exchange.event_id.encode()),)
        else:
            attempt_of = exchange.step_id
            step_id = derive_id("attempt", exchange.step_id, exchange.event_id)
    identity = Identity(step_id, attempt_of, digest, tenant.fingerprint_key)
    return identity, changes


def _coordinates(record: Received) -> Coordinates:
    return Coordinates(topic=record.topic, partition=record.partition, offset=record.offset)
