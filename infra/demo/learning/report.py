"""What the demo says at its end."""

from collections.abc import Iterator
from pathlib import Path

from infra.demo.learning.curve import terminal
from infra.demo.learning.show import Shown


def lines(
    shown: Shown, data_dir: Path, seed: int, *, keep: bool, model: str | None = None
) -> Iterator[str]:
    """The curve, the figures in sentences, and what to do next."""
    found, course = shown.numbers, shown.course
    yield ""
    yield "reward of the answers, task by task"
    yield from terminal([outcome.reward for outcome in course.outcomes])
    yield ""
    (low, high), (low_last, high_last) = found["ci_first"], found["ci_last"]
    yield f"first fifth   {found['reward_first']:.2f}  (95 %: {low:.2f} to {high:.2f})"
    yield f"last fifth    {found['reward_last']:.2f}  (95 %: {low_last:.2f} to {high_last:.2f})"
    yield (
        f"control       {found['control_first']:.2f} and {found['control_last']:.2f}: the same "
        "tasks, the model as it was before"
    )
    low, high = found["held_out_gain_ci"]
    yield (
        f"held-out      {found['held_out_before']:.2f} before, {found['held_out_after']:.2f} "
        f"after: {found['held_out_gain']:+.2f} on the same tasks (95 %: {low:+.2f} to {high:+.2f})"
    )
    yield (
        f"distinct      {found['diversity_before']:.0%} of the held-out answers before, "
        f"{found['diversity_after']:.0%} after"
    )
    yield (
        f"updates       {found['updates']}, of them {found['updates_stopped']} stopped by a "
        f"sentinel; {found['versions_served']} versions served"
    )
    if found["updates"]:
        yield from _of_updates(shown)
    for problem in shown.problems:
        yield f"not so: {problem}"
    yield ""
    yield f"curve         {shown.picture}"
    yield f"in all        {found['tasks']} tasks, {found['seconds']:.0f} s"
    if keep:
        yield ""
        yield "The stack stays up, with the trainer. Try next:"
        yield f"  headrace workers -d {data_dir}   which version is served"
        yield f"  headrace versions list -d {data_dir}"
        same = f"--seed {seed}" if model is None else f"--seed {seed} --model {model}"
        yield f"Repeat it:  headrace demo --learn {same}"
        yield f"Its control, all of the tasks:  headrace demo --learn --no-updates {same}"
        yield f"Stop it:    headrace down -d {data_dir}"


def _of_updates(shown: Shown) -> Iterator[str]:
    found = shown.numbers
    yield (
        f"an update     {found['seconds_per_update']} s; tokens {found['lag_median']} versions old "
        f"(median); entropy {found['entropy_first']} to {found['entropy_last']}"
    )
    if found["delta_bytes_median"] and found["full_bytes"]:
        share = found["delta_bytes_median"] / found["full_bytes"]
        yield (
            f"a delta       {found['delta_bytes_median'] / 1e6:.2f} MB, {share:.0%} of the whole "
            f"{found['full_bytes'] / 1e6:.2f} MB; pause {found['pause_ms_p50']} ms"
        )
        yield "              (a high rate on a tiny model: large models change far less a step)"
    yield (
        f"agreement     k3 between trainer and engine at most {found['agreement_k3_max']}, "
        f"known for {found['agreement_known']} of {found['updates']} updates"
    )
