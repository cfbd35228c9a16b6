"""Samples become figures, figures become sections. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.demo.visibility import percentile

MILLI = 1e3


@dataclass(frozen=True)
class Figure:
    """One measured number. `goal` is the bound it should keep, None where there is none."""

    name: str
    value: float | None
    unit: str
    goal: float | None = None
    #: True where larger is better, so that the goal is a lower bound.
    is_rate: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None without a goal. What was not measured misses it."""
        if self.goal is None:
            return None
        if self.value is None:
            return False
        return self.value >= self.goal if self.is_rate else self.value <= self.goal


@dataclass(frozen=True)
class Section:
    """What one part of the benchmark found, and under which conditions."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    note: str


def quantile(seconds: Sequence[float], share: float) -> float | None:
    """The smallest sample that at least `share` of all do not exceed; None without samples."""
    return percentile(list(seconds), share)


def milliseconds(seconds: float | None) -> float | None:
    """Seconds as milliseconds; None stays None."""
    return None if seconds is None else seconds * MILLI


def difference(one: float | None, other: float | None) -> float | None:
    """How much `one` exceeds `other`, where both are known."""
    return None if one is None or other is None else one - other


def ratio(total: float, number: float) -> float | None:
    """Total divided by number; None where there were none."""
    return total / number if number > 0 else None


def shown(value: float | None) -> str:
    """A number with the digits that a measurement of this kind carries."""
    if value is None:
        return "none"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
