"""Sentinels: what stops an update before it is made, and why. A closed list.

Each looks at figures of the step that is about to be taken. The update is left out, the batch
counts as consumed, and the reason is logged and counted. A step that shows nothing to learn
(`no_tokens`, `zero_variance`) is no fault; all others are.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Alarm(StrEnum):
    """Why an update was not made."""

    NOT_FINITE = "not_finite"
    NO_TOKENS = "no_tokens"
    SAMPLE_SIZE = "sample_size"
    DISAGREEMENT = "disagreement"
    MASKED = "masked"
    GRADIENT = "gradient"
    ZERO_VARIANCE = "zero_variance"
    ENTROPY = "entropy"
    LENGTH = "length"
    NO_EFFECT = "no_effect"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the sentinels stand.

    `agreement_k3`: mean k3 divergence between trainer and engine at the same version.
    `gradient_factor`: times the average gradient norm of the last steps. `entropy_share`,
    `length_share`: share of what the first steps had, below which it has collapsed; of the first
    ones, since a slow collapse takes an average of the last ones along. `probe_change`: largest
    change of a probe's log-probability that counts as none.
    """

    ess: float = 0.3
    agreement_k3: float = 0.01
    masked_share: float = 0.2
    gradient_factor: float = 5.0
    entropy_share: float = 0.02
    length_share: float = 0.2
    probe_change: float = 1e-7
    #: Steps that an average needs before it is believed.
    warmup_steps: int = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """A step before it is taken. `agreement_k3` is None where nothing could be compared.

    `num_tokens` are those in the loss. `length` is the mean number of tokens that were sampled,
    also of those left out of the loss: it is to show how the policy answers.
    """

    num_tokens: float
    ess: float
    masked_share: float
    agreement_k3: float | None
    advantage_deviation: float
    gradient_norm: float
    entropy: float
    length: float
    loss: float
    needs_behaviour: bool = True


#: The average gradient norm is one over this many steps.
_WINDOW = 50
#: Advantages below it are what rounding leaves of equal rewards.
_NO_VARIANCE = 1e-9


class Sentinels:
    """Remembers what is usual. Not for several threads."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._norms: deque[float] = deque(maxlen=_WINDOW)
        self._entropies: list[float] = []
        self._lengths: list[float] = []

    def look(self, step: Figures) -> Alarm | None:
        """The first alarm of a step; a step without one becomes part of what is usual."""
        alarm = self._of_numbers(step) or self._of_ratios(step) or self._of_trends(step)
        if alarm is None:
            self._norms.append(step.gradient_norm)
            if len(self._entropies) < self._bounds.warmup_steps:
                self._entropies.append(step.entropy)
                self._lengths.append(step.length)
        return alarm

    def look_after(self, probe_change: float, changed_elements: int) -> Alarm | None:
        """After an update: a version that moved weights has to move a probe's log-probability."""
        if changed_elements == 0 or probe_change <= self._bounds.probe_change:
            return Alarm.NO_EFFECT
        return None

    def state(self) -> Mapping[str, list[float]]:
        """What is usual, as plain values: for a checkpoint."""
        return {
            "norms": [*self._norms],
            "entropies": [*self._entropies],
            "lengths": [*self._lengths],
        }

    def restore(self, state: Mapping[str, list[float]]) -> None:
        """Take back what `state` gave."""
        self._norms = deque(state["norms"], _WINDOW)
        self._entropies = [*state["entropies"]]
        self._lengths = [*state["lengths"]]

    def _of_numbers(self, step: Figures) -> Alarm | None:
        if step.num_tokens == 0:
            return Alarm.NO_TOKENS
        if not all(map(math.isfinite, (step.loss, step.gradient_norm, step.entropy))):
            return Alarm.NOT_FINITE
        return Alarm.ZERO_VARIANCE if step.advantage_deviation < _NO_VARIANCE else None

    def _of_ratios(self, step: Figures) -> Alarm | None:
        bounds = self._bounds
        if step.agreement_k3 is not None and not step.agreement_k3 <= bounds.agreement_k3:
            return Alarm.DISAGREEMENT
        if step.needs_behaviour and step.ess < bounds.ess:
            return Alarm.SAMPLE_SIZE
        return Alarm.MASKED if step.masked_share > bounds.masked_share else None

    def _of_trends(self, step: Figures) -> Alarm | None:
        bounds = self._bounds
        if len(self._norms) < bounds.warmup_steps:
            return None
        if step.gradient_norm > bounds.gradient_factor * _mean(self._norms):
            return Alarm.GRADIENT
        if step.entropy < bounds.entropy_share * _mean(self._entropies):
            return Alarm.ENTROPY
        short = step.length < bounds.length_share * _mean(self._lengths)
        return Alarm.LENGTH if short else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
