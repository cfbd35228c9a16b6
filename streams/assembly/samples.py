"""Samples: one branch of a closed trajectory with the rewards that count for it.

Branches. A reward of a step takes that step and its ancestors, a reward of the trajectory takes
the branch of the last step. The latest reward that counts decides; other rewards that count are
named where they rate the trajectory or a step of the branch. A step that names no parent and is
not the first follows the step before it in order. Further attempts of a step are not steps of
their own; a reward of an attempt rates the step.

Identity. A sample's id is a function of its step ids in order, the rewards with their revisions
and the policy; where the records of the steps lie is no part of it. So a later revision makes
another sample, and the same content never a second one. Of several samples of one trajectory the
newest holds.

Signals. A demonstration, a preference and a critique have no number. Each is a sample of its own
beside, of the branch that ends with the step it is about (the last one for the trajectory).

Reasons why a sample is not eligible (closed list, in this order):
  not_permitted     a step may not be learned from (`training_eligible` is false)
  incomplete_step   a step did not end as `complete`
  missing_parent    a step's parent is not known, so the branch has a hole
  reward_retracted  no reward counts any more; earlier samples of the trajectory do not hold
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.atdp.internal import RewardRef, Sample, StepRef, TrajectorySummary
from schemas.atdp.types import Outcome, RewardKind, RewardStatus
from schemas.clock import to_time
from schemas.ids import derive_id
from streams.assembly.state import RewardFacts, StepFacts

#: A longer branch becomes several samples, so that no sample grows without bound.
MAX_SAMPLE_STEPS = 2_000

NOT_PERMITTED = "not_permitted"
INCOMPLETE_STEP = "incomplete_step"
MISSING_PARENT = "missing_parent"
REWARD_RETRACTED = "reward_retracted"
#: Kinds of rewards that are learned from without a number, or said to be left out.
SIGNALS = (
    RewardKind.CRITIQUE.value, RewardKind.DEMONSTRATION.value, RewardKind.PREFERENCE.value,
)  # fmt: skip
REASONS = (NOT_PERMITTED, INCOMPLETE_STEP, MISSING_PARENT, REWARD_RETRACTED)


@dataclass(frozen=True, slots=True, order=True)
class Closing:
    """When and why a trajectory closed. `replayed`: an earlier processing had seen it close."""

    at_us: int
    reason: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Material:
    """What samples are made of: `steps` in order and without attempts, `by_id` with them."""

    steps: Sequence[StepFacts]
    by_id: Mapping[str, StepFacts]
    counting: Sequence[RewardFacts]
    withdrawn: bool
    closing: Closing
    signals: Sequence[RewardFacts] = ()


def original(step: StepFacts, by_id: Mapping[str, StepFacts]) -> StepFacts:
    """The step that `step` is an attempt of, itself if none. Circles end at their smallest id."""
    seen = {step.step_id: step}
    while step.attempt_of is not None and step.attempt_of in by_id:
        step = by_id[step.attempt_of]
        if step.step_id in seen:
            return seen[min(seen)]
        seen[step.step_id] = step
    return step


def samples(material: Material, summary: TrajectorySummary) -> Iterator[Sample]:
    """The samples of a closed trajectory; none without steps or before anything was said."""
    if not material.steps:
        return
    if material.counting or material.withdrawn:
        yield from _of_rewards(material, summary)
    for signal in material.signals:
        yield _of_signal(signal, material, summary)


def _of_rewards(material: Material, summary: TrajectorySummary) -> Iterator[Sample]:
    rated = material.counting[-1].step_id if material.counting else None
    branch, has_hole = _branch(material, rated)
    rewards = _rewards_of(branch, material)
    for start in range(0, len(branch), MAX_SAMPLE_STEPS):
        steps = branch[start : start + MAX_SAMPLE_STEPS]
        yield _sample(steps, rewards, has_hole=has_hole, closing=material.closing, summary=summary)


def _of_signal(signal: RewardFacts, material: Material, summary: TrajectorySummary) -> Sample:
    branch, has_hole = _branch(material, signal.step_id)
    made = _sample(
        branch[-MAX_SAMPLE_STEPS:], [signal], has_hole=has_hole, closing=material.closing,
        summary=summary,
    )  # fmt: skip
    reasons = (*made.reasons, REWARD_RETRACTED) if signal.retracted else made.reasons
    return replace(
        made,
        sample_id=derive_id("signal", signal.kind, made.sample_id),
        reward=None,
        reward_status=RewardStatus.NONE,
        eligible=not reasons,
        reasons=reasons,
        signal=RewardKind(signal.kind),
        signal_refs=_refs([signal]),
    )


def _branch(material: Material, rated: str | None) -> tuple[list[StepFacts], bool]:
    """The steps of a step's branch in order, by default the last one's, and whether an ancestor is
    missing."""
    positions = {step.step_id: index for index, step in enumerate(material.steps)}
    leaf: StepFacts | None = material.steps[-1]
    if rated is not None:
        leaf = original(material.by_id[rated], material.by_id)
    branch: dict[str, StepFacts] = {}
    has_hole = False
    while leaf is not None and leaf.step_id not in branch:
        branch[leaf.step_id] = leaf
        has_hole = leaf.parent is not None and leaf.parent not in material.by_id
        leaf = _predecessor(leaf, material, positions)
    return sorted(branch.values(), key=lambda s: s.order), has_hole


def _predecessor(
    step: StepFacts, material: Material, positions: Mapping[str, int]
) -> StepFacts | None:
    if step.parent is not None:
        parent = material.by_id.get(step.parent)
        return None if parent is None else original(parent, material.by_id)
    position = positions.get(step.step_id, 0)
    return material.steps[position - 1] if step.index > 0 and position > 0 else None


def _rewards_of(branch: Sequence[StepFacts], material: Material) -> list[RewardFacts]:
    on_branch = {step.step_id for step in branch}
    return [
        reward
        for reward in material.counting
        if reward.step_id is None
        or original(material.by_id[reward.step_id], material.by_id).step_id in on_branch
    ]


def _sample(
    steps: Sequence[StepFacts],
    rewards: Sequence[RewardFacts],
    *,
    has_hole: bool,
    closing: Closing,
    summary: TrajectorySummary,
) -> Sample:
    reasons = tuple(_reasons(steps, rewards, has_hole=has_hole))
    oldest = [s.oldest_version for s in steps if s.oldest_version is not None]
    newest = [s.newest_version for s in steps if s.newest_version is not None]
    return Sample(
        sample_id=sample_id(steps, rewards, summary.reward_policy),
        tenant_id=summary.tenant_id,
        trajectory_id=summary.trajectory_id,
        task_key=summary.task_key,
        step_ids=tuple(step.step_id for step in steps),
        rewards=tuple(RewardRef(reward_id=r.reward_id, revision=r.revision) for r in rewards),
        reward=summary.reward,
        reward_policy=summary.reward_policy,
        reward_status=summary.reward_status,
        eligible=not reasons,
        reasons=reasons,
        oldest_policy_version=min(oldest, default=None),
        newest_policy_version=max(newest, default=None),
        closed_at=to_time(closing.at_us),
        replay_epoch=summary.replay_epoch,
        replayed=closing.replayed
        and all(step.replayed for step in steps)
        and all(reward.replayed for reward in rewards),
        step_refs=_refs(steps),
        step_outcomes=tuple(sorted({step.outcome for step in steps})),
    )


def _refs(facts: Sequence[StepFacts | RewardFacts]) -> tuple[StepRef, ...]:
    """Where they lie; nothing unless all are known, so that none is taken for another."""
    refs = tuple(
        StepRef(partition=fact.partition, offset=fact.offset)
        for fact in facts
        if fact.partition is not None and fact.offset is not None
    )
    return refs if len(refs) == len(facts) else ()


def sample_id(steps: Sequence[StepFacts], rewards: Sequence[RewardFacts], policy: str) -> str:
    """A function of content alone, so that every processing makes the same id."""
    pairs = [part for reward in rewards for part in (reward.reward_id, reward.revision)]
    return derive_id("sample", *(step.step_id for step in steps), *pairs, policy)


def _reasons(
    steps: Sequence[StepFacts], rewards: Sequence[RewardFacts], *, has_hole: bool
) -> Iterator[str]:
    if not all(step.eligible for step in steps):
        yield NOT_PERMITTED
    if any(step.outcome != Outcome.COMPLETE for step in steps):
        yield INCOMPLETE_STEP
    if has_hole:
        yield MISSING_PARENT
    if not rewards:
        yield REWARD_RETRACTED
