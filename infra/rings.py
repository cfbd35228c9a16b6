"""Proposing a version for a ring and watching what becomes of it, for the command line.

Every wait is bounded; what was written stays written when one ends.
"""

import getpass
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.promotion.state import TOPICS, State
from inference.routing.table import serves
from schemas import codec, topics
from schemas.atdp.weights import (
    AckStatus,
    Proposal,
    ProposalAnswer,
    RingAssignment,
    VersionRef,
    WeightsAck,
    WorkerHeartbeat,
)
from schemas.bus import Bus, Record, deliver_now
from schemas.bus.following import Following
from schemas.errors import ConfigError, TransientError
from schemas.rings import STALE_SECONDS, proposal_id, proposal_key, target_of
from schemas.roster import Reading

READ_SECONDS = 30.0
_DELIVERY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_DONE = {AckStatus.APPLIED, AckStatus.REFUSED, AckStatus.QUARANTINED}


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker, as far as the topics tell. `serves` is what it has proved."""

    heartbeat: WorkerHeartbeat
    ack: WeightsAck | None
    target: VersionRef | None
    serves: VersionRef | None
    age_seconds: float
    may_get_calls: bool


class Watch:
    """The present state of all rings, kept up to date while somebody waits."""

    def __init__(self, bus: Bus, key: bytes | None = None) -> None:
        """With `key` manifests that are not signed with it do not count, as for the process that
        decides."""
        self._bus = bus
        self._following = Following(bus, TOPICS)
        self.state = State(key=key)

    def catch_up(self) -> None:
        """Read all there is. TransientError when that takes too long."""
        if not self.until(lambda: self._following.is_caught_up, READ_SECONDS):
            raise TransientError(
                "The topics of weights could not be read in time. `headrace status` shows what is "
                "down."
            )

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read on until it holds; False when the time is over first."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            is_live = self._following.is_caught_up
            received = self._following.poll(_POLL_SECONDS)
            reading = Reading(datetime.now(UTC), self._following.clock(), is_live)
            for record in received:
                self.state.take(record, reading)
        return True

    def propose(self, proposal: Proposal) -> None:
        """Write a proposal and wait until Kafka has it."""
        key = proposal_key(proposal.policy, proposal.target.version, proposal.ring)
        record = Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(proposal))
        producer = self._bus.producer("headrace.cli")
        try:
            deliver_now(producer, [record], _DELIVERY_SECONDS)
        finally:
            producer.close()

    def answer_to(self, proposal: Proposal, seconds: float) -> ProposalAnswer | None:
        """What the promotion process says of it; None when it says nothing in time."""
        at = proposal.policy, proposal.ring, proposal.target.version
        wanted = proposal_id(proposal)

        def is_answered() -> bool:
            answer = self.state.answers.get(at)
            return answer is not None and answer.proposal_id == wanted

        return self.state.answers[at] if self.until(is_answered, seconds) else None

    def settle(self, assignment: RingAssignment, seconds: float) -> bool:
        """Wait until every worker has said what it did, or the ring was assigned anew.

        What every worker refused is taken back, so that is waited for too.
        """

        def is_settled() -> bool:
            ring = self.ring(assignment.policy, assignment.ring)
            if ring is None or ring.sequence > assignment.sequence:
                return True
            views = self.workers(assignment.policy, assignment.ring)
            said = [self._said(view, assignment) for view in views]
            return None not in said and (not said or AckStatus.APPLIED in said)

        return self.until(is_settled, seconds)

    def _said(self, view: WorkerView, assignment: RingAssignment) -> AckStatus | None:
        """What a worker did with an assignment; None while it has not said so."""
        ack, offset = self.state.acks.get(view.heartbeat.worker_id, (None, -1))
        if ack is None or offset < assignment.acks_from or ack.status not in _DONE:
            return None
        target = target_of(assignment, view.heartbeat.worker_id)
        return ack.status if ack.version == target.version else None

    def close(self) -> None:
        """Release the connections."""
        self._following.close()

    def ring(self, policy: str, ring: str) -> RingAssignment | None:
        """The latest assignment."""
        return self.state.rings.get((policy, ring))

    def workers(self, policy: str, ring: str | None = None) -> list[WorkerView]:
        """The workers of a policy that are there, by id; those of one ring where it is given."""
        as_of = self._following.as_of or self._following.clock()
        roster = self.state.roster
        return [
            self._view(worker_id, beat, ring, roster.age_seconds(worker_id, as_of))
            for worker_id, beat in sorted(roster.heartbeats.items())
            if beat.policy == policy
            and (ring is None or ring in beat.rings)
            and (ring is None or roster.age_seconds(worker_id, as_of) <= STALE_SECONDS)
        ]

    def _view(
        self, worker_id: str, beat: WorkerHeartbeat, ring: str | None, age_seconds: float
    ) -> WorkerView:
        ack, _ = self.state.acks.get(worker_id, (None, -1))
        names = [ring] if ring is not None else beat.rings
        assigned = [a for a in (self.ring(beat.policy, name) for name in names) if a is not None]
        proved = serves(beat, ack)
        return WorkerView(
            heartbeat=beat,
            ack=ack,
            target=target_of(assigned[0], worker_id) if assigned else None,
            serves=proved.ref if proved is not None else None,
            age_seconds=age_seconds,
            may_get_calls=proved is not None and age_seconds <= STALE_SECONDS,
        )


@contextmanager
def watching(bus: Bus, key: bytes | None = None) -> Iterator[Watch]:
    """The state of all rings, read to its end."""
    watch = Watch(bus, key)
    try:
        watch.catch_up()
        yield watch
    finally:
        watch.close()


def make_proposal(
    watch: Watch, policy: str, ring: str, version: int, *,
    canary_share: float | None = None, reason: str = "",
) -> Proposal:  # fmt: skip
    """A proposal of whoever runs the command. ConfigError for a version that nobody published."""
    root = watch.state.root_of(policy, version)
    if root is None:
        raise ConfigError(
            f"Policy {policy} has no version {version}. `headrace versions list --policy {policy}` "
            "shows them."
        )
    return Proposal(
        policy=policy,
        target=VersionRef(version=version, root=root),
        proposed_by=_who(),
        reason=reason,
        epoch=watch.state.histories[policy].versions[version].epoch,
        ring=ring,
        canary_share=canary_share,
        proposed_at=datetime.now(UTC),
    )


def version_before(watch: Watch, policy: str, ring: str) -> int:
    """Where a rollback leads: out of a trial, else to the version served last before this one.

    ConfigError where nothing was served before.
    """
    assigned = watch.ring(policy, ring)
    if assigned is None:
        raise ConfigError(f"Ring {ring} of {policy} serves nothing yet: nothing can be taken back.")
    if assigned.canary is not None:
        return assigned.stable.version
    lower = [v.version for v in assigned.served if v.version < assigned.stable.version]
    if not lower:
        raise ConfigError(
            f"Ring {ring} of {policy} served no lower version than {assigned.stable.version}. "
            "Name the one to serve with --to."
        )
    return lower[0]


def _who() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a number without a name
        return "cli"
