"""The figures of the demo: what `--json` prints, from the course and from the topics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any

from infra.demo.learning.course import Course, Outcome

#: Two-sided 95 %.
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Served:
    """What the topics say: bytes of each delta and of a snapshot, pauses, versions that workers
    applied."""

    delta_bytes: tuple[int, ...]
    full_bytes: int
    pause_ms: tuple[float, ...]
    versions: tuple[int, ...]


def mean_and_interval(rewards: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Mean of rewards of 0 and 1, and Wilson's interval of 95 %. (0, (0, 1)) for none."""
    number = len(rewards)
    if number == 0:
        return 0.0, (0.0, 1.0)
    share = sum(rewards) / number
    scale = 1 + _Z**2 / number
    middle = (share + _Z**2 / (2 * number)) / scale
    half = _Z * math.sqrt(share * (1 - share) / number + _Z**2 / (4 * number**2)) / scale
    return share, (middle - half, middle + half)


def paired_gain(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, tuple[float, float]]:
    """Mean difference over the same tasks, and its interval of 95 %. (0, (-1, 1)) below two."""
    pairs = [float(b) - float(a) for a, b in zip(before, after, strict=True)]
    if len(pairs) < 2:
        return 0.0, (-1.0, 1.0)
    mean = sum(pairs) / len(pairs)
    half = _Z * stdev(pairs) / math.sqrt(len(pairs))
    return mean, (mean - half, mean + half)


def fifths(outcomes: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    """Rewards of the first and of the last fifth."""
    number = len(outcomes) // 5
    rewards = [outcome.reward for outcome in outcomes]
    return rewards[:number], rewards[len(rewards) - number :]


def numbers(
    course: Course, steps: Sequence[Mapping[str, float]], served: Served, seconds: float
) -> dict[str, Any]:
    """The line of `--json`. Names and order are fixed: users and checks rely on them.

    Where no control was played the course itself is one, since no trainer ran.
    """
    first, last = fifths(course.outcomes)
    half = len(course.control) // 2
    control = [outcome.reward for outcome in course.control]
    controls = (control[:half], control[half:]) if control else (first, last)
    gain, gain_interval = paired_gain(course.exam_before.right, course.exam_after.right)
    (reward_first, ci_first), (reward_last, ci_last) = map(mean_and_interval, (first, last))
    lags = [step["lag"] for step in steps if "lag" in step]
    return {
        "reward_first": round(reward_first, 4),
        "reward_last": round(reward_last, 4),
        "ci_first": [round(x, 4) for x in ci_first],
        "ci_last": [round(x, 4) for x in ci_last],
        "control_first": round(mean_and_interval(controls[0])[0], 4),
        "control_last": round(mean_and_interval(controls[1])[0], 4),
        "versions_served": len(served.versions),
        "delta_bytes_median": median(served.delta_bytes) if served.delta_bytes else None,
        "full_bytes": served.full_bytes,
        "pause_ms_p50": round(median(served.pause_ms), 1) if served.pause_ms else None,
        "lag_median": round(median(lags), 2) if lags else None,
        "tasks": len(course.outcomes),
        "seconds": round(seconds, 1),
        "held_out_before": round(course.exam_before.score, 4),
        "held_out_after": round(course.exam_after.score, 4),
        "held_out_gain": round(gain, 4),
        "held_out_gain_ci": [round(x, 4) for x in gain_interval],
        "held_out_right_before": _bits(course.exam_before.right),
        "held_out_right_after": _bits(course.exam_after.right),
        "diversity_before": round(course.exam_before.diversity, 4),
        "diversity_after": round(course.exam_after.diversity, 4),
        "entropy_first": _edge(steps, "entropy", 0),
        "entropy_last": _edge(steps, "entropy", -1),
        "agreement_k3_max": _worst(steps, "agreement_k3"),
        "agreement_known": sum("agreement_k3" in step for step in steps),
        "updates": len(steps),
        "updates_stopped": sum("stopped" in step for step in steps),
        "seconds_per_update": round(course.learn_seconds / len(steps), 2) if steps else None,
        "learn_seconds": round(course.learn_seconds, 1),
        "failed_calls": course.num_failed,
        "failed_rewards": course.num_rewards_failed,
    }


def _bits(right: Sequence[bool]) -> str:
    """A digit for each task, 1 where it was right: to be paired with those of another run."""
    return "".join(str(int(one)) for one in right)


def _edge(steps: Sequence[Mapping[str, float]], name: str, index: int) -> float | None:
    """Of the first or last step that was made; a stopped one may have had nothing to look at."""
    found = [step[name] for step in steps if name in step and "stopped" not in step]
    return round(found[index], 4) if found else None


def _worst(steps: Sequence[Mapping[str, float]], name: str) -> float | None:
    return max((step[name] for step in steps if name in step), default=None)
