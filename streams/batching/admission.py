"""May a sample be trained, and as what. Pure: sample, steps and rules → candidate or refusal.

Outcome classes. Only success and failure carry a reward; an infrastructure error is never one of 0:

    infrastructure_error   a step ended as upstream_error, timeout, rejected or gateway_crashed
    aborted                the client left
    censored               how it ended was not seen: an unknown outcome, a hole, no number
    success, failure       by the reward
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from schemas.atdp.internal import Sample
from schemas.atdp.training import SampleOutcome, SequenceKind, TrainingSequence
from schemas.atdp.types import Outcome, RewardKind, Step
from streams.batching.memory import Memory
from streams.batching.tokens import Tokens, has_logprobs, has_tokens, sequences


class Why(StrEnum):
    """Reasons of decisions. A closed list, described in docs/learning.md."""

    # dropped
    NOT_PERMITTED = "not_permitted"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    ABORTED = "aborted"
    CENSORED = "censored"
    REWARD_RETRACTED = "reward_retracted"
    REPLAYED = "replayed"
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    TRAINED_BEFORE = "trained_before"
    PLACES_UNKNOWN = "places_unknown"
    STEPS_EXPIRED = "steps_expired"
    TOKENS_MISSING = "tokens_missing"
    LOGPROBS_MISSING = "logprobs_missing"
    POLICY_UNKNOWN = "policy_unknown"
    POLICIES_MIXED = "policies_mixed"
    VERSION_UNKNOWN = "version_unknown"
    TOO_LONG = "too_long"
    STALE = "stale"
    CRITIQUE = "critique"
    DEMONSTRATION = "demonstration"
    PREFERENCE = "preference"
    TEXT_MISSING = "text_missing"
    TEXT_REDACTED = "text_redacted"
    # dropped or held
    TENANT_SHARE = "tenant_share"
    # held
    BUDGET = "budget"
    # trained
    PARTLY = "partly"


_ENDINGS: Mapping[str, SampleOutcome] = {
    Outcome.COMPLETE: SampleOutcome.SUCCESS,
    Outcome.UPSTREAM_ERROR: SampleOutcome.INFRASTRUCTURE_ERROR,
    Outcome.TIMEOUT: SampleOutcome.INFRASTRUCTURE_ERROR,
    Outcome.REJECTED: SampleOutcome.INFRASTRUCTURE_ERROR,
    Outcome.GATEWAY_CRASHED: SampleOutcome.INFRASTRUCTURE_ERROR,
    Outcome.CLIENT_ABORTED: SampleOutcome.ABORTED,
}
_WORST_FIRST = (SampleOutcome.INFRASTRUCTURE_ERROR, SampleOutcome.ABORTED, SampleOutcome.CENSORED)
_DROPPED_AS = {
    SampleOutcome.INFRASTRUCTURE_ERROR: Why.INFRASTRUCTURE_ERROR,
    SampleOutcome.ABORTED: Why.ABORTED,
    SampleOutcome.CENSORED: Why.CENSORED,
}
#: Reasons of assembly that say more than an outcome.
_NOT_PERMITTED, _MISSING_PARENT, _RETRACTED = "not_permitted", "missing_parent", "reward_retracted"


@dataclass(frozen=True, slots=True)
class Rules:
    """`success_reward` is the least reward of a success; lengths are in tokens. `demonstrations`
    and `preferences` say whether these are trained."""

    success_reward: float
    max_staleness: int
    max_sample_tokens: int
    retrain: bool
    demonstrations: bool = True
    preferences: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sample that may be trained: its sequences, and what its trajectory is then to remember.

    `step_ids` are the steps that it trains.
    """

    sample: Sample
    policy: str
    revision: int
    outcome: SampleOutcome
    sequences: tuple[TrainingSequence, ...]
    step_ids: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def leaf(self) -> str:
        """The last step, which names the branch."""
        return leaf_of(self.sample)

    @property
    def is_retraction(self) -> bool:
        """It only says that an earlier revision no longer holds."""
        return all(s.kind is SequenceKind.RETRACTION for s in self.sequences)

    @property
    def num_tokens(self) -> int:
        """Tokens of all its sequences."""
        return sum(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def num_trained_tokens(self) -> int:
        """Those that are trained."""
        return sum(num_trained(sequence) for sequence in self.sequences)

    @property
    def oldest_version(self) -> int | None:
        """The oldest version that sampled a trained token."""
        known = [s.oldest_version for s in self.sequences if s.oldest_version is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sample that is not trained."""

    why: Why
    outcome: SampleOutcome
    policy: str | None = None


def num_trained(sequence: TrainingSequence) -> int:
    """Trained tokens of a sequence."""
    return sum(span.end - span.first for span in sequence.trained)


def leaf_of(sample: Sample) -> str:
    """The step that names the sample's branch. A signal is a branch of its own."""
    leaf = sample.step_ids[-1] if sample.step_ids else sample.sample_id
    return leaf if sample.signal is None else f"{leaf}\x00{sample.rewards[0].reward_id}"


def outcome_of(sample: Sample, success_reward: float) -> SampleOutcome:
    """The class of a sample."""
    endings = {_ENDINGS.get(o, SampleOutcome.CENSORED) for o in sample.step_outcomes}
    is_unseen = not endings and not sample.eligible  # samples of old do not name their outcomes
    is_unrated = sample.reward is None and sample.signal is None
    if is_unrated or _MISSING_PARENT in sample.reasons or is_unseen:
        endings.add(SampleOutcome.CENSORED)
    for worst in _WORST_FIRST:
        if worst in endings:
            return worst
    if sample.reward is None:
        return SampleOutcome.UNKNOWN  # a signal says nothing of how it ended
    good = sample.reward >= success_reward
    return SampleOutcome.SUCCESS if good else SampleOutcome.FAILURE


def before_steps(sample: Sample, memory: Memory, rules: Rules) -> Candidate | Refusal | None:
    """What can be said without the steps; None where they are needed."""
    outcome = outcome_of(sample, rules.success_reward)
    if sample.replayed and not rules.retrain:
        return Refusal(Why.REPLAYED, outcome)
    if sample.signal is not None and (off := _switched_off(sample.signal, rules)):
        return Refusal(off, outcome)
    if _RETRACTED in sample.reasons:
        return _retraction(sample, memory, outcome) or Refusal(Why.REWARD_RETRACTED, outcome)
    if _NOT_PERMITTED in sample.reasons:
        return Refusal(Why.NOT_PERMITTED, outcome)
    if outcome in _DROPPED_AS or not sample.eligible:
        return Refusal(_DROPPED_AS.get(outcome, Why.CENSORED), outcome)
    branch = memory.branch(leaf_of(sample))
    is_rated = sample.signal is None  # of a signal each revision has another text
    if is_rated and branch.sample_id is not None and branch.reward == sample.reward:
        return Refusal(Why.UNCHANGED, outcome, branch.policy)
    if len(sample.step_refs) != len(sample.step_ids):
        return Refusal(Why.PLACES_UNKNOWN, outcome)
    return None


def _switched_off(kind: RewardKind, rules: Rules) -> Why | None:
    """Why a signal of that kind is not learned from, whatever it says."""
    if kind is RewardKind.DEMONSTRATION:
        return None if rules.demonstrations else Why.DEMONSTRATION
    if kind is RewardKind.PREFERENCE:
        return None if rules.preferences else Why.PREFERENCE
    return Why.CRITIQUE


def _retraction(sample: Sample, memory: Memory, outcome: SampleOutcome) -> Candidate | None:
    """Tells the trainer, where the branch was trained, that its reward no longer holds."""
    branch = memory.branch(leaf_of(sample))
    if branch.sample_id is None or branch.policy is None:
        return None
    plain = _plain(sample, memory, outcome)
    sequence = replace(plain, kind=SequenceKind.RETRACTION, reward=None)
    return Candidate(sample, branch.policy, sequence.revision, outcome, (sequence,))


def with_steps(
    sample: Sample, steps: Mapping[str, Step], memory: Memory, rules: Rules
) -> Candidate | Refusal:
    """The candidate made of a sample whose steps were read; those that are gone are absent."""
    outcome = outcome_of(sample, rules.success_reward)
    known = [steps[step_id] for step_id in sample.step_ids if step_id in steps]
    if len(known) < len(sample.step_ids):
        return Refusal(Why.STEPS_EXPIRED, outcome)
    usable = [step for step in known if has_tokens(step)]
    policy = _policy_of(usable)
    if isinstance(policy, Why):
        return Refusal(policy, outcome)
    others = memory.owned_by_others(leaf_of(sample), (step.step_id for step in usable))
    mine = [step for step in usable if step.step_id not in others]
    if not mine:
        return Refusal(Why.TRAINED_BEFORE, outcome, policy)
    if outcome is not SampleOutcome.SUCCESS:  # a failure teaches nothing where only text is known
        mine = [step for step in mine if has_logprobs(step)]
        if not mine:
            return Refusal(Why.LOGPROBS_MISSING, outcome, policy)
    step_ids = tuple(step.step_id for step in mine)
    plain = _plain(sample, memory, outcome)
    candidate = Candidate(
        sample,
        policy,
        plain.revision,
        outcome,
        tuple(_filled(plain, tokens) for tokens in sequences(known, frozenset(step_ids))),
        step_ids,
        is_whole=len(mine) + len(others) == len(known),
    )
    return _limited(candidate, rules)


def _policy_of(usable: Sequence[Step]) -> str | Why:
    """The one policy that sampled the tokens of these steps."""
    policies = {step.model_version.policy for step in usable}
    if len(policies) > 1:
        return Why.POLICIES_MIXED
    return next(iter(policies), Why.TOKENS_MISSING) or Why.POLICY_UNKNOWN


def _limited(candidate: Candidate, rules: Rules) -> Candidate | Refusal:
    why = None
    if candidate.num_tokens > rules.max_sample_tokens:
        why = Why.TOO_LONG
    elif any(
        s.kind is SequenceKind.POLICY_GRADIENT and s.oldest_version is None
        for s in candidate.sequences
    ):
        why = Why.VERSION_UNKNOWN
    return candidate if why is None else Refusal(why, candidate.outcome, candidate.policy)


def _filled(plain: TrainingSequence, tokens: Tokens) -> TrainingSequence:
    versions = [span.version for span in tokens.trained if span.version is not None]
    kind = SequenceKind.POLICY_GRADIENT if tokens.logprobs else SequenceKind.SUPERVISED
    return replace(
        plain,
        kind=kind,
        token_ids=tokens.token_ids,
        trained=tokens.trained,
        logprobs=tokens.logprobs,
        oldest_version=min(versions, default=None),
    )


def _plain(sample: Sample, memory: Memory, outcome: SampleOutcome) -> TrainingSequence:
    """What all sequences of a rewarded sample say alike."""
    before = memory.branch(leaf_of(sample)).reward
    named = named_after(sample, memory)
    return replace(named, reward=sample.reward, outcome=outcome, replaced_reward=before)


def named_after(sample: Sample, memory: Memory) -> TrainingSequence:
    """A sequence without tokens that says whose it is, and which revision of its branch."""
    branch = memory.branch(leaf_of(sample))
    return TrainingSequence(
        sample_id=sample.sample_id,
        revision=branch.revision + 1,
        tenant_id=sample.tenant_id,
        trajectory_id=sample.trajectory_id,
        task_key=sample.task_key,
        replayed=sample.replayed,
        replaces=branch.sample_id,
    )


def staleness(candidate: Candidate, newest: int | None) -> int | None:
    """Versions between the oldest trained token and the newest version; None where unknown."""
    oldest = candidate.oldest_version
    return None if newest is None or oldest is None else max(0, newest - oldest)
