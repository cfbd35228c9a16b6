"""How much better a trajectory did than expected of its task: tracked baselines, whitening.

Production gives one trajectory for a task, so nothing can be compared within a group. Each task
key has a value that is tracked over time; what is scored is compared with the value from before.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

#: As many task keys are tracked; the one that was seen longest ago is forgotten first.
MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Beta:
    """SPO's tracker of a success rate: pseudo-counts that fade.

    `memory` is the number of rewards that it stands on at most.
    """

    successes: float
    failures: float
    memory: float

    @classmethod
    def starting(cls, memory: float, value: float = 0.5) -> "Beta":
        """A tracker that knows nothing: few pseudo-counts, so that the first rewards move it."""
        return cls(2.0 * value, 2.0 * (1.0 - value), memory)

    @property
    def value(self) -> float:
        """The expected reward, in 0 to 1."""
        return self.successes / (self.successes + self.failures)

    def scored(self, reward: float) -> "Beta":
        """After one more reward in 0 to 1."""
        successes, failures = self.successes + reward, self.failures + 1.0 - reward
        fade = min(1.0, self.memory / (successes + failures))
        return replace(self, successes=successes * fade, failures=failures * fade)

    def corrected(self, change: float) -> "Beta":
        """After a reward that was scored before turned out to be larger by `change`."""
        total = self.successes + self.failures
        successes = min(max(self.successes + change, 0.0), total)
        return replace(self, successes=successes, failures=total - successes)


@dataclass(frozen=True, slots=True)
class Running:
    """Mean and variance of rewards of any range; each counts less as others come after it."""

    mean: float
    variance: float
    count: float
    memory: float

    @classmethod
    def starting(cls, memory: float) -> "Running":
        """A tracker that knows nothing; the first reward becomes its mean."""
        return cls(0.0, 0.0, 0.0, memory)

    @property
    def value(self) -> float:
        """The expected reward."""
        return self.mean

    def scored(self, reward: float) -> "Running":
        """After one more reward."""
        count = min(self.count + 1.0, self.memory)
        difference = reward - self.mean
        mean = self.mean + difference / count
        variance = self.variance + (difference * (reward - mean) - self.variance) / count
        return replace(self, mean=mean, variance=max(variance, 0.0), count=count)

    def corrected(self, change: float) -> "Running":
        """After a reward that was scored before turned out to be larger by `change`."""
        return replace(self, mean=self.mean + change / max(self.count, 1.0))


Tracker = Beta | Running


class Baselines:
    """The trackers of all task keys. Not for several threads."""

    def __init__(self, *, binary: bool, memory: float, trackers: dict[str, Tracker] | None = None):
        """`binary` for rewards that are 0 or 1 (anything between is a part of a success)."""
        if memory < 1:
            raise ValueError("a tracker stands on at least one reward")
        self._binary, self._memory = binary, memory
        self._trackers: OrderedDict[str, Tracker] = OrderedDict(trackers or {})

    def value(self, key: str) -> float:
        """What is expected of this task now."""
        return self._tracker(key).value

    def score(self, keys: Sequence[str], rewards: Sequence[float]) -> list[float]:
        """What was expected of each, all looked up before any of these rewards counts."""
        values = [self.value(key) for key in keys]
        for key, reward in zip(keys, rewards, strict=True):
            self._set(key, self._tracker(key).scored(reward))
        return values

    def correct(self, key: str, change: float) -> None:
        """A reward that was scored before turned out to be larger by `change`."""
        if key in self._trackers:
            self._set(key, self._trackers[key].corrected(change))

    def state(self) -> list[list[float | str]]:
        """All of it as plain values, in order: for a checkpoint."""
        rows: list[list[float | str]] = []
        for key, tracker in self._trackers.items():
            match tracker:
                case Beta(successes, failures, _):
                    rows.append([key, successes, failures])
                case Running(mean, variance, count, _):
                    rows.append([key, mean, variance, count])
        return rows

    def restore(self, rows: Sequence[Sequence[float | str]]) -> None:
        """Take back what `state` gave."""
        self._trackers.clear()
        for key, *numbers in rows:
            first, second, *third = map(float, numbers)
            self._trackers[str(key)] = (
                Beta(first, second, self._memory)
                if self._binary
                else Running(first, second, third[0], self._memory)
            )

    def _tracker(self, key: str) -> Tracker:
        if key in self._trackers:
            return self._trackers[key]
        return Beta.starting(self._memory) if self._binary else Running.starting(self._memory)

    def _set(self, key: str, tracker: Tracker) -> None:
        self._trackers[key] = tracker
        self._trackers.move_to_end(key)
        while len(self._trackers) > MAX_KEYS:
            self._trackers.popitem(last=False)


def whitened(advantages: Sequence[float], floor: float) -> tuple[list[float], float]:
    """Advantages with mean 0 and deviation 1 over the batch, and the deviation that was used.

    The deviation is never taken to be below `floor`, so that a batch without differences becomes
    zeros and not noise. A single advantage keeps its mean: there is nothing to compare it with.
    """
    if not advantages:
        return [], floor
    mean = sum(advantages) / len(advantages) if len(advantages) > 1 else 0.0
    variance = sum((a - mean) ** 2 for a in advantages) / len(advantages)
    deviation = max(math.sqrt(variance), floor)
    return [(a - mean) / deviation for a in advantages], deviation


def in_groups(rewards: Sequence[float], groups: Sequence[str], floor: float = 1e-6) -> list[float]:
    """GRPO's advantages: normalised within each group. A group of one has exactly zero."""
    members: dict[str, list[float]] = {}
    for reward, group in zip(rewards, groups, strict=True):
        members.setdefault(group, []).append(reward)
    means = {group: sum(found) / len(found) for group, found in members.items()}
    spread = {
        group: math.sqrt(sum((r - means[group]) ** 2 for r in found) / len(found))
        for group, found in members.items()
    }
    return [
        (reward - means[group]) / max(spread[group], floor)
        for reward, group in zip(rewards, groups, strict=True)
    ]
