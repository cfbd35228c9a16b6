"""The next change to make, if any: a proposal to answer, a refused version to take back. Pure.

A change is an assignment, an answer, or both. Making the change and asking again comes to an end:
each one answers a proposal, freezes a ring, or moves the acks that count.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from controlplane.promotion.state import Proposed, RingName, State
from schemas.atdp.weights import (
    AckStatus,
    Proposal,
    ProposalAnswer,
    ProposalStatus,
    RingAssignment,
    RingState,
    VersionRef,
    WeightsAck,
)
from schemas.ids import derive_id
from schemas.rings import MAX_SERVED, TRAINER, canary_workers, is_name, proposal_id

#: A proposal may be read before the manifest of its version: they lie on different topics.
MANIFEST_SECONDS = 5.0
_NOT_TAKEN = {AckStatus.REFUSED, AckStatus.QUARANTINED}


@dataclass(frozen=True, slots=True)
class Rules:
    """How this process decides. With `manual` only commands are accepted, no trainer's proposal."""

    mode: Literal["auto", "manual"]
    epoch: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The time to write down, and on our own clock the moment up to which topics are known."""

    at: datetime
    as_of: float


@dataclass(frozen=True, slots=True)
class Change:
    """What to write, all of it or nothing."""

    assignment: RingAssignment | None = None
    answer: ProposalAnswer | None = None


def next_change(state: State, moment: Moment, rules: Rules) -> Change | None:
    """The first change that is due; None when there is nothing to do."""
    for proposed in state.pending():
        answered = _answer(state, proposed, moment, rules)
        if answered is not None:
            return answered
    for name, ring in state.rings.items():
        changed = _take_back(state, name, ring, moment, rules) or _recast(
            state, name, ring, moment, rules
        )
        if changed is not None:
            return Change(assignment=changed)
    return None


# -- proposals ---------------------------------------------------------------------------------


def _answer(state: State, proposed: Proposed, moment: Moment, rules: Rules) -> Change | None:
    """The answer to a proposal, None while its manifest may still be on its way."""
    proposal = proposed.proposal
    root = state.root_of(proposal.policy, proposal.target.version)
    if root is None and moment.as_of - proposed.read_at < MANIFEST_SECONDS:
        return None
    if rules.mode == "manual" and proposal.proposed_by == TRAINER:
        reason = "promotion.mode is manual: `headrace promote` accepts it."
        return Change(answer=_answered(proposal, moment, ProposalStatus.HELD, reason))
    refusal = _refusal(state, proposal, root, moment)
    if refusal is not None:
        return Change(answer=_answered(proposal, moment, ProposalStatus.REFUSED, refusal))
    assignment = _accepted(state, proposal, moment, rules)
    answer = _answered(
        proposal, moment, ProposalStatus.ACCEPTED, proposal.reason, assignment.sequence
    )
    return Change(assignment, answer)


def _answered(
    proposal: Proposal, moment: Moment, status: ProposalStatus, reason: str,
    sequence: int | None = None,
) -> ProposalAnswer:  # fmt: skip
    return ProposalAnswer(
        proposal_id=proposal_id(proposal),
        policy=proposal.policy,
        ring=proposal.ring,
        version=proposal.target.version,
        status=status,
        reason=reason,
        sequence=sequence,
        answered_at=moment.at,
    )


def _refusal(state: State, proposal: Proposal, root: str | None, moment: Moment) -> str | None:
    """Why a proposal cannot be accepted, and what to do instead."""
    policy, version = proposal.policy, proposal.target.version
    if not (is_name(policy) and is_name(proposal.ring)):
        return "A policy or a ring has 1 to 100 letters, digits, `.`, `_` or `-`."
    if root is None:
        signed = "" if state.key is None else " signed with the key of weights_key_file"
        return (
            f"Policy {policy} has no version {version}{signed}. `headrace versions list --policy "
            f"{policy}` shows them."
        )
    if root != proposal.target.root:
        return f"Version {version} of {policy} has another root than the proposal names."
    if proposal.proposed_by == TRAINER and proposal.epoch < state.histories[policy].epoch:
        return f"A later trainer writes policy {policy} now. This one has to stop."
    return None if proposal.canary_share is None else _canary_refusal(state, proposal, moment)


def _canary_refusal(state: State, proposal: Proposal, moment: Moment) -> str | None:
    policy, ring = proposal.policy, proposal.ring
    share = proposal.canary_share or 0.0
    assigned = state.rings.get((policy, ring))
    if not 0.0 < share < 1.0:
        return "The share of a trial lies between 0 and 1, as in 0.1."
    if assigned is None:
        return f"Ring {ring} of {policy} serves nothing yet. Promote a version without a trial."
    if assigned.stable.version == proposal.target.version:
        return f"Ring {ring} of {policy} serves version {assigned.stable.version} to all already."
    num_workers = len(state.roster.live(policy, ring, moment.as_of))
    if num_workers < 2:
        return (
            f"A trial needs two workers, and ring {ring} of {policy} has {num_workers}. Start "
            "another one, or promote the version to all."
        )
    return None


def _accepted(state: State, proposal: Proposal, moment: Moment, rules: Rules) -> RingAssignment:
    name = proposal.policy, proposal.ring
    assigned = state.rings.get(name)
    made = _next(state, name, moment, rules)
    made = replace(
        made,
        decision_id=proposal_id(proposal),
        reason=proposal.reason,
        evidence=proposal.evidence,
    )
    if proposal.canary_share is not None and assigned is not None:
        workers = state.roster.live(*name, moment.as_of)
        return replace(
            made,
            stable=assigned.stable,
            served=assigned.served,
            canary=proposal.target,
            canary_share=proposal.canary_share,
            canary_workers=canary_workers(workers, proposal.canary_share),
            state=RingState.CANARY,
        )
    before = () if assigned is None else (assigned.stable, *assigned.served)
    back = assigned is not None and proposal.target.version < assigned.stable.version
    return replace(
        made,
        stable=proposal.target,
        served=_without(before, proposal.target),
        state=RingState.ROLLED_BACK if back else RingState.STABLE,
    )


def _without(versions: Iterable[VersionRef], present: VersionRef) -> tuple[VersionRef, ...]:
    """Those that are not the present one, each once, the latest first."""
    others = dict.fromkeys(v for v in versions if v.version != present.version)
    return tuple(others)[:MAX_SERVED]


def _next(state: State, name: RingName, moment: Moment, rules: Rules) -> RingAssignment:
    """The frame of a ring's next assignment. Whoever asks fills in what it serves."""
    assigned = state.rings.get(name)
    return RingAssignment(
        policy=name[0],
        ring=name[1],
        stable=VersionRef(version=0, root="") if assigned is None else assigned.stable,
        decision_id="",
        epoch=rules.epoch,
        sequence=1 if assigned is None else assigned.sequence + 1,
        acks_from=state.acks_end,
        decided_at=moment.at,
    )


# -- what workers say --------------------------------------------------------------------------


def _take_back(
    state: State, name: RingName, ring: RingAssignment, moment: Moment, rules: Rules
) -> RingAssignment | None:
    """The ring without the version that every worker refused that should serve it."""
    live = set(state.roster.live(*name, moment.as_of))
    trial = live & set(ring.canary_workers) if ring.canary is not None else set()
    if ring.canary is not None and (why := _refused_by(state, ring, ring.canary, trial)):
        return _returned(state, name, ring.canary, why, moment, rules)
    if ring.state is RingState.FROZEN:
        return None
    why = _refused_by(state, ring, ring.stable, live - trial)
    if not why:
        return None
    if _is_return(ring) or not ring.served:  # never to and fro between two refused versions
        frozen = _returned(state, name, ring.stable, why, moment, rules)
        reason = f"{frozen.reason}, and there is nothing to return to. Promote another version."
        return replace(frozen, state=RingState.FROZEN, reason=reason)
    back = ring.served[0]
    return replace(
        _returned(state, name, ring.stable, why, moment, rules), stable=back, served=ring.served[1:]
    )


def _refused_by(
    state: State, ring: RingAssignment, version: VersionRef, workers: set[str]
) -> dict[str, str]:
    """Worker → why it refused; empty unless all did, and there is one."""
    found: dict[str, str] = {}
    for worker_id in sorted(workers):
        ack, offset = state.acks.get(worker_id, (None, -1))
        if ack is None or offset < ring.acks_from or not _refuses(ack, ring.policy, version):
            return {}
        found[worker_id] = ack.error or ack.status.value
    return found


def _refuses(ack: WeightsAck, policy: str, version: VersionRef) -> bool:
    about = (ack.policy, ack.version) == (policy, version.version)
    return about and ack.status in _NOT_TAKEN


def _returned(
    state: State, name: RingName, refused: VersionRef, why: dict[str, str], moment: Moment,
    rules: Rules,
) -> RingAssignment:  # fmt: skip
    """The ring as it is without its trial; a caller changes the stable version where need be."""
    made = _next(state, name, moment, rules)
    causes = ", ".join(sorted(set(why.values())))
    return replace(
        made,
        served=state.rings[name].served,
        state=RingState.ROLLED_BACK,
        decision_id=_return_id(made),
        reason=f"Every worker refused version {refused.version}: {causes}",
        evidence=json.dumps({"refused_version": refused.version, "workers": why}),
    )


def _return_id(ring: RingAssignment) -> str:
    return derive_id("return", ring.policy, ring.ring, ring.sequence)


def _is_return(ring: RingAssignment) -> bool:
    """Whether we took a version back by ourselves, which a rollback that was proposed is not."""
    return ring.decision_id == _return_id(ring)


def _recast(
    state: State, name: RingName, ring: RingAssignment, moment: Moment, rules: Rules
) -> RingAssignment | None:
    """The same trial on other workers, where some of those that had it are gone."""
    if ring.canary is None:
        return None
    live = state.roster.live(*name, moment.as_of)
    number = len(canary_workers(live, ring.canary_share))
    kept = [worker for worker in ring.canary_workers if worker in live]
    others = [worker for worker in live if worker not in kept]
    cast = tuple(sorted((kept + others)[:number]))
    if cast == tuple(sorted(ring.canary_workers)):
        return None
    return replace(
        _next(state, name, moment, rules),
        served=ring.served,
        canary=ring.canary,
        canary_share=ring.canary_share,
        canary_workers=cast,
        state=ring.state,
        decision_id=ring.decision_id,
        reason=ring.reason,
        evidence=ring.evidence,
    )
