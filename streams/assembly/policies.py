"""Reward policies: which rewards of a trajectory count, and as which number.

A policy has a name and a version; both are part of every sample's id, because a change of
policy changes what is learned. A policy sees, of every reward, the version that won.
"""

from collections.abc import Sequence
from typing import Protocol

from schemas.atdp.types import Reward, RewardKind, RewardStatus
from schemas.errors import ConfigError
from streams.assembly.state import RewardFacts

#: Labels that have a number. Case, spaces and hyphens do not matter. Other labels do not count.
LABEL_SCORES: dict[str, float] = {
    "resolved": 1.0, "success": 1.0, "correct": 1.0, "pass": 1.0, "passed": 1.0, "good": 1.0,
    "accepted": 1.0, "thumbs_up": 1.0, "yes": 1.0, "true": 1.0,
    "partial": 0.5, "partially_resolved": 0.5, "neutral": 0.5,
    "unresolved": 0.0, "failure": 0.0, "failed": 0.0, "incorrect": 0.0, "fail": 0.0, "bad": 0.0,
    "rejected": 0.0, "thumbs_down": 0.0, "no": 0.0, "false": 0.0,
}  # fmt: skip


def score(reward: Reward) -> float | None:
    """The number a reward stands for; None for critiques, demonstrations, preferences and
    labels that `LABEL_SCORES` does not list."""
    if reward.kind not in (RewardKind.SCALAR, RewardKind.LABEL):
        return None
    if reward.value is not None:
        return float(reward.value)
    if reward.label is None:
        return None
    return LABEL_SCORES.get(reward.label.strip().lower().replace(" ", "_").replace("-", "_"))


class RewardPolicy(Protocol):
    """Chooses among the rewards whose target is known."""

    name: str

    def counting(self, rewards: Sequence[RewardFacts]) -> tuple[RewardFacts, ...]:
        """The rewards that count, latest judgement last; the last one gives the number."""


class LatestFinal:
    """`latest_final/1`: the latest final judgement, else the latest provisional one.

    Retracted rewards and rewards without a number do not count. As soon as one final reward
    counts, provisional ones do not. Rewards of steps and of the whole trajectory count alike.
    The latest is the greatest by (occurred_at, digest).
    """

    name = "latest_final/1"

    def counting(self, rewards: Sequence[RewardFacts]) -> tuple[RewardFacts, ...]:
        usable = [r for r in rewards if not r.retracted and r.score is not None]
        finals = [r for r in usable if r.final]
        return tuple(sorted(finals or usable, key=lambda r: r.order))


POLICIES: dict[str, RewardPolicy] = {policy.name: policy for policy in (LatestFinal(),)}


def policy_named(name: str) -> RewardPolicy:
    """The registered policy; ConfigError lists the known ones."""
    if name not in POLICIES:
        raise ConfigError(
            f"assembly.reward_policy is {name!r}, which is no reward policy. "
            f"Set it to one of: {', '.join(sorted(POLICIES))}."
        )
    return POLICIES[name]


def status(counting: Sequence[RewardFacts]) -> RewardStatus:
    """How settled the rewards that count are: corrected ones make it `revised`."""
    if not counting:
        return RewardStatus.NONE
    if any(reward.revision > 1 for reward in counting):
        return RewardStatus.REVISED
    return RewardStatus.FINAL if counting[-1].final else RewardStatus.PROVISIONAL
