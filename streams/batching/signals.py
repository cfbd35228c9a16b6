"""Signals without a number as candidates: demonstrations and preferences. Pure.

    demonstration   prompt of the step, and the shown answer as text: the trainer makes tokens of
                    it
    preference      prompt and given answer of the step, and the other answer as text;
                    `value: false` says that the given one is the better
    critique        left out

No token that the policy sampled is trained as one, so a step may have signals and a reward.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from schemas.atdp.internal import Sample
from schemas.atdp.training import SampleOutcome, SequenceKind, TrainedSpan, TrainingSequence
from schemas.atdp.types import Reward, RewardKind, Step
from streams.batching.admission import Candidate, Refusal, Rules, Why, named_after, with_steps
from streams.batching.memory import Memory

_KINDS = {
    RewardKind.DEMONSTRATION: SequenceKind.DEMONSTRATION,
    RewardKind.PREFERENCE: SequenceKind.PREFERENCE,
}


@dataclass(frozen=True, slots=True)
class Material:
    """What was read for a sample: its steps by their ids, and the record of its signal. What is
    gone is absent."""

    steps: Mapping[str, Step]
    reward: Reward | None = None


def with_material(
    sample: Sample, found: Material, memory: Memory, rules: Rules
) -> Candidate | Refusal:
    """The candidate made of a sample whose records were read."""
    if sample.signal is None:
        return with_steps(sample, found.steps, memory, rules)
    step = found.steps.get(sample.step_ids[-1])
    if step is None or found.reward is None:
        return Refusal(Why.STEPS_EXPIRED, SampleOutcome.UNKNOWN)
    policy = step.model_version.policy
    why = _why_not(sample.signal, step, found.reward)
    if why is not None:
        return Refusal(why, SampleOutcome.UNKNOWN, policy)
    assert policy is not None
    sequence = _sequence(sample, step, found.reward, memory)
    if len(sequence.token_ids) > rules.max_sample_tokens:
        return Refusal(Why.TOO_LONG, SampleOutcome.UNKNOWN, policy)
    return Candidate(sample, policy, sequence.revision, SampleOutcome.UNKNOWN, (sequence,))


def _why_not(kind: RewardKind, step: Step, reward: Reward) -> Why | None:
    result = step.action_and_result
    is_pair = kind is RewardKind.PREFERENCE
    if not (reward.text or "").strip():
        return Why.TEXT_MISSING
    if reward.redactions:
        return Why.TEXT_REDACTED
    if not result.prompt_token_ids or (is_pair and not result.token_ids):
        return Why.TOKENS_MISSING
    if is_pair and result.changed_tokens:
        return Why.TEXT_REDACTED
    return None if step.model_version.policy else Why.POLICY_UNKNOWN


def _sequence(sample: Sample, step: Step, reward: Reward, memory: Memory) -> TrainingSequence:
    assert sample.signal is not None
    result = step.action_and_result
    kind = _KINDS[sample.signal]
    first = len(result.prompt_token_ids)
    given = result.token_ids if kind is SequenceKind.PREFERENCE else ()
    span = TrainedSpan(
        first=first,
        end=first + len(given),
        step_id=step.step_id,
        approximate=bool(step.governance.redactions),
    )
    return replace(
        named_after(sample, memory),
        kind=kind,
        token_ids=(*result.prompt_token_ids, *given),
        trained=(span,),
        answer=reward.text,
        answer_is_better=reward.value is None or bool(reward.value),
    )
