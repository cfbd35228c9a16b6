"""What a step learns from which sample: the advantage of each, or why it is left out.

Late rewards. A sample with another reward than before replaces an earlier one. When that was
trained here, the gradient of the difference is what is missing, so the difference is its
advantage; it is applied when it is large and the sample young, else only the baseline follows. A
retraction has no tokens any more: the baseline alone follows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.atdp.training import SequenceKind
from trainer.advantage import Baselines, in_groups, whitened
from trainer.examples import Example
from trainer.ledger import Ledger


class LeftOut(StrEnum):
    """Why a sample of a micro-batch is not trained. A closed list."""

    TRAINED_BEFORE = "trained_before"
    RETRACTED = "retracted"
    SMALL_CHANGE = "small_change"
    LATE_CHANGE = "late_change"
    ANSWER_TOO_LONG = "answer_too_long"


@dataclass(frozen=True, slots=True)
class Rules:
    """How credit is given. `objective` is the name that settings have."""

    objective: str
    deviation_floor: float = 0.1
    revision_min_change: float = 0.25
    revision_max_steps: int = 50


@dataclass(frozen=True, slots=True)
class Credit:
    """The sequences to learn from with the advantage of each, and what became of the others."""

    examples: tuple[Example, ...]
    advantages: tuple[float, ...]
    rewards: tuple[float, ...]
    left_out: Counter[str]


#: Kinds that are learned from without a reward.
SHOWN = (SequenceKind.SUPERVISED, SequenceKind.PREFERENCE)
_GROUPED = {"grpo", "gspo"}
_FILTERED = "supervised"


def give_credit(
    examples: Sequence[Example], step: int, ledger: Ledger, baselines: Baselines, rules: Rules
) -> Credit:
    """Credit for the samples of a step, each of which may have several sequences.

    Moves the ledger and the baselines: to be called once for a step.
    """
    first_of: dict[str, Example] = {}
    left_out: Counter[str] = Counter()
    for example in examples:
        first_of.setdefault(example.sample_id, example)
    fresh: dict[str, Example] = {}
    changes: dict[str, float] = {}
    for sample_id, example in first_of.items():
        reason = _sort(example, step, ledger, baselines, rules, changes)
        if reason is not None:
            left_out[reason] += 1
        elif sample_id not in changes:
            fresh[sample_id] = example
        if reason is not LeftOut.TRAINED_BEFORE:
            ledger.add(sample_id, example.revision, step)
    advantages = _of_fresh(fresh, baselines, rules)
    deviation = advantages.pop("", rules.deviation_floor)
    advantages |= {sample: change / deviation for sample, change in changes.items()}
    chosen = [e for e in examples if e.sample_id in advantages and e.positions.size]
    return Credit(
        tuple(chosen),
        tuple(advantages[e.sample_id] for e in chosen),
        tuple(e.reward for e in fresh.values() if e.reward is not None),
        left_out,
    )


def _sort(
    example: Example, step: int, ledger: Ledger, baselines: Baselines, rules: Rules,
    changes: dict[str, float],
) -> LeftOut | None:  # fmt: skip
    """Why a sample is left out. A correction that is applied goes into `changes`."""
    if ledger.has(example.sample_id, example.revision):
        return LeftOut.TRAINED_BEFORE
    before = ledger.get(example.replaces)
    if example.kind is SequenceKind.RETRACTION:
        if before is not None and example.replaced_reward is not None:
            expected = baselines.value(example.task)
            baselines.correct(example.task, expected - example.replaced_reward)
        return LeftOut.RETRACTED
    if before is None or example.replaced_reward is None or example.reward is None:
        return None
    change = example.reward - example.replaced_reward
    baselines.correct(example.task, change)
    if abs(change) < rules.revision_min_change:
        return LeftOut.SMALL_CHANGE
    if step - before.step > rules.revision_max_steps:
        return LeftOut.LATE_CHANGE
    changes[example.sample_id] = change
    return None


def _of_fresh(fresh: dict[str, Example], baselines: Baselines, rules: Rules) -> dict[str, float]:
    """Sample → advantage; under the empty name the deviation that they were divided by."""
    shown = {s: 1.0 for s, e in fresh.items() if e.kind in SHOWN}
    rated = {s: e.reward for s, e in fresh.items() if s not in shown and e.reward is not None}
    tasks, rewards = [fresh[s].task for s in rated], [*rated.values()]
    if rules.objective == _FILTERED:
        return shown | dict(zip(rated, rewards, strict=True))
    if rules.objective in _GROUPED:
        return shown | dict(zip(rated, in_groups(rewards, tasks), strict=True))
    expected = baselines.score(tasks, rewards)
    raw = [reward - value for reward, value in zip(rewards, expected, strict=True)]
    found, deviation = whitened(raw, rules.deviation_floor)
    return shown | dict(zip(rated, found, strict=True)) | {"": deviation}
