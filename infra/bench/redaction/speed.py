"""How long redaction takes for a text, unseen and seen before, in each tier. In this process."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.bench.figures import Figure, Section, milliseconds, quantile
from infra.bench.texts import prose
from streams.redaction.redactor import DigestCache, Redactor, Tier, build_redactor

_CHARACTERS = 4_000
_TENANT_KEY = b"a key of the benchmark, no secret"
_NUM_WARM_UP = 5
_GOALS: dict[Tier, tuple[float | None, float]] = {
    "regex": (3.0, 0.1),
    "fast": (None, 0.1),
    "accurate": (None, 0.1),
}


@dataclass(frozen=True)
class Timed:
    """CPU seconds of this thread for each text, the first and the second time."""

    unseen: Sequence[float]
    seen: Sequence[float]


def figures_of(tier: Tier, timed: Timed) -> tuple[Figure, ...]:
    """Pure: samples → figures."""
    unseen_goal, seen_goal = _GOALS[tier]
    return (
        Figure(f"`{tier}`, unseen, p50", milliseconds(quantile(timed.unseen, 0.5)), "ms",
               unseen_goal),
        Figure(f"`{tier}`, unseen, p95", milliseconds(quantile(timed.unseen, 0.95)), "ms"),
        Figure(f"`{tier}`, seen before, p50", milliseconds(quantile(timed.seen, 0.5)), "ms",
               seen_goal),
        Figure(f"`{tier}`, seen before, p95", milliseconds(quantile(timed.seen, 0.95)), "ms"),
    )  # fmt: skip


def measure(num_texts: int) -> Section:
    """Every tier over the same texts."""
    figures: list[Figure] = []
    for tier in _GOALS:
        redactor = build_redactor(
            tier,
            tenant_key=_TENANT_KEY,
            cache=DigestCache(),
            policy_version="bench/1",
        )
        figures += figures_of(tier, timed(redactor, num_texts))
    return Section(
        "redaction",
        "Redaction of a text of 4 kB",
        tuple(figures),
        f"CPU time in one process, {num_texts} different texts of everyday words with a name "
        "or an e-mail address in every fourth sentence.",
    )


def timed(redactor: Redactor, num_texts: int) -> Timed:
    """Each text twice; the first few are not counted."""
    rng = random.Random(5)
    texts = [prose(rng, _CHARACTERS) for _ in range(num_texts + _NUM_WARM_UP)]
    unseen = [_cpu(lambda: redactor.text(text)) for text in texts]  # noqa: B023 - called at once
    seen = [_cpu(lambda: redactor.text(text)) for text in texts]  # noqa: B023 - called at once
    return Timed(unseen[_NUM_WARM_UP:], seen[_NUM_WARM_UP:])


def _cpu(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began
