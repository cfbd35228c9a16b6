"""How a model does on held-out conversations, and how much of a difference is noise. Pure."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

#: Two-sided 95 % of Student's t by degrees of freedom; `_t` has those above.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Scored:
    """A held-out conversation: nats per answer token under some weights."""

    task: str
    is_success: bool
    nats: float


@dataclass(frozen=True, slots=True)
class Change:
    """Mean over tasks of the change within them, and its interval of 95 %."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Mean and its interval of 95 % by Student's t, of two values at least."""
    middle = mean(values)
    half = _t(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return middle, (middle - half, middle + half)


def _t(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    # The expansion around the normal quantile; from ten degrees on it is exact to 0.003.
    first = (_Z**3 + _Z) / (4 * freedom)
    return _Z + first + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)


def change(before: Sequence[Scored], after: Sequence[Scored], *, success: bool) -> Change | None:
    """Of the successes, or of the failures, in pairs by conversation and then by task: those of one
    task are no independent witnesses. None below two tasks."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for old, new in zip(before, after, strict=True):
        if old.is_success is success:
            by_task[old.task].append(new.nats - old.nats)
    means = [mean(found) for found in by_task.values()]
    if len(means) < 2:
        return None
    middle, (low, high) = interval(means)
    return Change(middle, low, high)


def nats(scored: Sequence[Scored], *, success: bool) -> float | None:
    """Mean nats per answer token; None where there is none."""
    found = [one.nats for one in scored if one.is_success is success]
    return mean(found) if found else None


def separation(scored: Sequence[Scored]) -> float | None:
    """Chance that a success is likelier than a failure, both held out; 0.5 says nothing."""
    good = [one.nats for one in scored if one.is_success]
    bad = [one.nats for one in scored if not one.is_success]
    if not good or not bad:
        return None
    wins = sum((g < b) + 0.5 * (g == b) for g in good for b in bad)
    return wins / (len(good) * len(bad))


def report(base: Sequence[Scored], arms: Mapping[str, Sequence[Scored]]) -> dict[str, object]:
    """All figures, by arm; `base` is the model before."""
    found: dict[str, object] = {"base": _of(base)}
    for name, scored in arms.items():
        changes = {
            f"change_{kind}": _values(change(base, scored, success=kind == "success"))
            for kind in ("success", "failure")
        }
        found[name] = {**_of(scored), **changes}
    return found


def _of(scored: Sequence[Scored]) -> dict[str, float | None]:
    return {
        "nats_success": _rounded(nats(scored, success=True)),
        "nats_failure": _rounded(nats(scored, success=False)),
        "separation": _rounded(separation(scored)),
    }


def _values(found: Change | None) -> list[float] | None:
    return None if found is None else [round(x, 4) for x in (found.mean, found.low, found.high)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
