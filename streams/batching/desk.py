"""The desk at which samples wait: what is taken in, what goes out together, what is refused. Pure.

    sample ─▶ known? ─▶ refused, with a reason
                 └────▶ waits ─▶ held, with a reason ─▶ in a micro-batch, once
                          └────▶ refused: stale, superseded by a correction, over its tenant's share

A tenant's share bounds what it may fill of a batch while others wait. The budget bounds how many
tokens may be ahead of the trainer: what is over it stays here, and while the desk is full nothing
more is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.atdp.internal import Sample
from schemas.atdp.training import Decision, MicroBatch, SampleOutcome, TrainingSequence
from streams.batching.admission import (
    Candidate,
    Refusal,
    Rules,
    Why,
    before_steps,
    leaf_of,
    outcome_of,
    staleness,
)
from streams.batching.memory import Memory
from streams.batching.packing import Limits, Waiting, Where, choose, crowding, is_due, pack
from streams.batching.signals import Material, with_material


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a sample. All but held ones are final: its record may be acknowledged."""

    where: Where
    sample: Sample
    decision: Decision
    why: Why | None
    outcome: SampleOutcome
    candidate: Candidate | None = None
    policy: str | None = None
    batch_id: str | None = None
    staleness: int | None = None

    @property
    def is_final(self) -> bool:
        """Nothing more will be decided of the sample."""
        return self.decision is not Decision.HELD


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the policies and their trainer stand: newest versions, and tokens not trained yet."""

    newest: Mapping[str, int] = field(default_factory=dict)
    tokens_ahead: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Closed:
    """What leaves the desk at one moment."""

    batches: list[MicroBatch] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


class Desk:
    """The samples that wait. Knows no clock, no bus and no table."""

    def __init__(
        self, rules: Rules, limits: Limits, *, max_tokens_ahead: int, epoch: int = 0
    ) -> None:
        self._rules = rules
        self._limits = limits
        self._max_tokens_ahead = max_tokens_ahead
        self._epoch = epoch
        self._waiting: dict[Where, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self) -> bool:
        """Whether more may be taken in."""
        return len(self._waiting) < self._limits.max_waiting

    def forget(self, topic: str, partition: int) -> None:
        """Another process owns that partition now."""
        for where in [w for w in self._waiting if w[:2] == (topic, partition)]:
            del self._waiting[where]

    def needs_steps(self, sample: Sample, memory: Memory) -> bool:
        """Whether its steps have to be read before it is offered."""
        return not memory.knows(sample.sample_id) and (
            before_steps(sample, memory, self._rules) is None
        )

    # --- in -----------------------------------------------------------------------------------

    def supersede(self, sample: Sample) -> Iterator[Verdict]:
        """Take out what waits of the same branch: of several samples the newest holds.

        To be called, and its verdicts remembered, before the sample is offered.
        """
        if sample.replayed and not self._rules.retrain:
            return
        for one in list(self._of_trajectory(sample)):
            older = one.candidate.sample
            if older.sample_id != sample.sample_id and leaf_of(older) == leaf_of(sample):
                del self._waiting[one.where]
                yield self._dropped(one, Why.SUPERSEDED, None)

    def offer(
        self, where: Where, sample: Sample, found: Material, memory: Memory, now: float
    ) -> Verdict | None:
        """Take a sample in; the verdict where it does not wait.

        `memory` is that of its trajectory. What waits of other branches trains its steps too.
        """
        for one in self._of_trajectory(sample):
            other = one.candidate
            memory = memory.trained(
                other.leaf, other.step_ids, other.sample.sample_id, other.sample.reward,
                other.policy,
            )  # fmt: skip
        made = before_steps(sample, memory, self._rules)
        made = with_material(sample, found, memory, self._rules) if made is None else made
        if isinstance(made, Refusal):
            return Verdict(
                where, sample, Decision.DROPPED, made.why, made.outcome, policy=made.policy
            )
        self._waiting[where] = Waiting(where, made, now)
        return None

    def waits(self, sample: Sample) -> bool:
        """Whether this very sample waits here already."""
        return any(
            one.candidate.sample.sample_id == sample.sample_id
            for one in self._of_trajectory(sample)
        )

    def known_sent(
        self,
        where: Where,
        sample: Sample,
        sequences: tuple[TrainingSequence, ...],
        policy: str,
        batch_id: str,
    ) -> Verdict:
        """The verdict of a sample whose sequences lie in a batch that went out before a crash."""
        outcome = outcome_of(sample, self._rules.success_reward)
        mine = dict.fromkeys(
            span.step_id for s in sequences if sample.signal is None for span in s.trained
        )
        revision = max(s.revision for s in sequences)
        found = Candidate(sample, policy, revision, outcome, sequences, tuple(mine))
        decision, why = Decision.TRAINED, None
        if found.is_retraction:
            decision, why = Decision.DROPPED, Why.REWARD_RETRACTED
        return Verdict(where, sample, decision, why, outcome, found, policy, batch_id)

    # --- out ----------------------------------------------------------------------------------

    def close(self, standing: Standing, now: float, at: datetime) -> Closed:
        """What goes out now: batches that are due, and refusals. Each leaves the desk."""
        closed = Closed()
        for policy in dict.fromkeys(w.candidate.policy for w in self._waiting.values()):
            newest = standing.newest.get(policy)
            self._drop_stale(policy, newest, closed)
            ahead = standing.tokens_ahead.get(policy, 0)
            while is_due(waiting := self._of_policy(policy), now, self._limits):
                choice = choose(waiting, self._limits)
                num_tokens = sum(w.candidate.num_tokens for w in choice.chosen)
                if ahead and ahead + num_tokens > self._max_tokens_ahead:
                    self._hold(waiting, Why.BUDGET, newest, closed)
                    break
                ahead += num_tokens
                batch = pack(policy, choice.chosen, newest, at, self._epoch)
                closed.batches.append(batch)
                closed.verdicts += [self._trained(w, batch.batch_id, newest) for w in choice.chosen]
                self._hold(choice.over_share, Why.TENANT_SHARE, newest, closed)
        self._drop_crowding(closed)
        return closed

    def _drop_stale(self, policy: str, newest: int | None, closed: Closed) -> None:
        for one in self._of_policy(policy):
            lag = staleness(one.candidate, newest)
            if lag is not None and lag > self._rules.max_staleness:
                del self._waiting[one.where]
                closed.verdicts.append(self._dropped(one, Why.STALE, lag))

    def _drop_crowding(self, closed: Closed) -> None:
        while (one := crowding([*self._waiting.values()], self._limits)) is not None:
            del self._waiting[one.where]
            closed.verdicts.append(self._dropped(one, Why.TENANT_SHARE, None))

    def _hold(
        self, waiting: "list[Waiting] | tuple[Waiting, ...]", why: Why, newest: int | None,
        closed: Closed,
    ) -> None:  # fmt: skip
        for one in waiting:
            if not one.is_told:
                self._waiting[one.where] = replace(one, is_told=True)
                lag = staleness(one.candidate, newest)
                closed.verdicts.append(_verdict(one, Decision.HELD, why, lag))

    def _trained(self, one: Waiting, batch_id: str, newest: int | None) -> Verdict:
        del self._waiting[one.where]
        candidate = one.candidate
        lag = staleness(candidate, newest)
        if candidate.is_retraction:
            found = _verdict(one, Decision.DROPPED, Why.REWARD_RETRACTED, lag)
        else:
            why = None if candidate.is_whole else Why.PARTLY
            found = _verdict(one, Decision.TRAINED, why, lag)
        return replace(found, batch_id=batch_id)

    def _dropped(self, one: Waiting, why: Why, lag: int | None) -> Verdict:
        return replace(_verdict(one, Decision.DROPPED, why, lag), candidate=None)

    def _of_policy(self, policy: str) -> list[Waiting]:
        return [w for w in self._waiting.values() if w.candidate.policy == policy]

    def _of_trajectory(self, sample: Sample) -> Iterator[Waiting]:
        for one in self._waiting.values():
            other = one.candidate.sample
            if (other.tenant_id, other.trajectory_id) == (sample.tenant_id, sample.trajectory_id):
                yield one


def _verdict(one: Waiting, decision: Decision, why: Why | None, lag: int | None) -> Verdict:
    found = one.candidate
    return Verdict(
        one.where, found.sample, decision, why, found.outcome, found, found.policy, staleness=lag
    )


def remember(memory: Memory, verdict: Verdict) -> Memory:
    """The memory of a trajectory once the verdict on one of its samples is final."""
    sample, candidate = verdict.sample, verdict.candidate
    leaf = leaf_of(sample)
    memory = memory.decided(sample.sample_id)
    if candidate is None or verdict.batch_id is None:
        return memory
    if candidate.is_retraction:
        return memory.retracted(leaf)
    return memory.trained(
        leaf, candidate.step_ids, sample.sample_id, sample.reward, candidate.policy
    )
