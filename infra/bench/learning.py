"""python -m infra.bench learning [--seeds 1,2,3,4,5] [--tasks N] [--write docs/training.md]

For each seed the demo of learning, and its control: the same without a trainer. What has ended is
kept in a folder, so that an interrupted run goes on where it was; `--fresh` begins anew.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from infra.bench.machine import load_average, this_machine
from infra.bench.page import Run, circumstances, machine_markdown, with_parts
from infra.demo.learning.figures import paired_gain
from infra.local.processes import stop_process
from infra.local.signals import leaving_on_sigterm
from schemas.errors import HeadraceError, TransientError
from trainer.comparison import interval

#: What the lower bound of the gain should be above.
GOAL = 0.2
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Pair:
    """The `--json` lines of a seed: with a trainer, and of its control."""

    seed: int
    learned: dict[str, Any]
    control: dict[str, Any]

    @property
    def gain(self) -> float:
        """Held-out score at the end over that of the control, the same tasks."""
        return paired_gain(*self._rights())[0]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the gain over tasks."""
        return paired_gain(*self._rights())[1]

    @property
    def control_change(self) -> float:
        """By how much the control's reward moved from its first to its last fifth."""
        return float(self.control["reward_last"] - self.control["reward_first"])

    def _rights(self) -> tuple[list[bool], list[bool]]:
        ends = (self.control["held_out_right_after"], self.learned["held_out_right_after"])
        before, after = ([digit == "1" for digit in end] for end in ends)
        return before, after


def over_seeds(gains: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Mean of the seeds' gains and its interval of 95 % by Student's t. (-1, 1) below two."""
    return interval(gains) if len(gains) > 1 else (mean(gains), (-1.0, 1.0))


def table(pairs: Sequence[Pair]) -> str:
    """What is published of the seeds, as Markdown."""
    head = (
        "| seed | held-out, control | held-out, learned | gain, paired (95 %) | reward, fifths | "
        "control, fifths | distinct answers | entropy | updates, stopped | s an update |"
    )
    lines = [
        head,
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_row, pairs),
        "",
    ]
    gain, (low, high) = over_seeds([pair.gain for pair in pairs])
    if len(pairs) > 1:
        verdict = "met" if low > GOAL else "missed"
        lines.append(
            f"**Gain over the control: {gain:+.3f} (95 % over {len(pairs)} seeds: {low:+.3f} to "
            f"{high:+.3f}); goal: the lower bound above {GOAL:+.2f}: {verdict}.**"
        )
    worst = max(abs(pair.control_change) for pair in pairs)
    flat = "met" if worst <= 0.05 else "missed"
    lines.append(f"The control moved by {worst:.3f} at most; goal: at most 0.05: {flat}.")
    lines += _engine(pairs)
    return "\n".join(lines)


def _row(pair: Pair) -> str:
    learned, control = pair.learned, pair.control
    low, high = pair.interval
    return (
        f"| {pair.seed} | {control['held_out_after']:.3f} | {learned['held_out_after']:.3f} "
        f"| {pair.gain:+.3f} ({low:+.3f} to {high:+.3f}) "
        f"| {learned['reward_first']:.3f} → {learned['reward_last']:.3f} "
        f"| {control['reward_first']:.3f} → {control['reward_last']:.3f} "
        f"| {learned['diversity_before']:.0%} → {learned['diversity_after']:.0%} "
        f"| {learned['entropy_first']} → {learned['entropy_last']} "
        f"| {learned['updates']}, {learned['updates_stopped']} "
        f"| {learned['seconds_per_update']} |"
    )


def _engine(pairs: Sequence[Pair]) -> Iterator[str]:
    """Agreement, versions, deltas and pauses over all seeds."""
    found = [pair.learned for pair in pairs]
    worst = max((one["agreement_k3_max"] or 0.0) for one in found)
    known = sum(one["agreement_known"] for one in found) / sum(one["updates"] for one in found)
    yield (
        f"Trainer and engine: k3 at most {worst:.1e}, known for {known:.0%} of the updates. "
        f"Versions served: {min(one['versions_served'] for one in found)} to "
        f"{max(one['versions_served'] for one in found)}. A delta, median: "
        f"{mean(one['delta_bytes_median'] for one in found) / 1e6:.2f} MB of "
        f"{mean(one['full_bytes'] for one in found) / 1e6:.2f} MB. Pause of the engine, median: "
        f"{mean(one['pause_ms_p50'] for one in found):.0f} ms. Age of the tokens, median: "
        f"{mean(one['lag_median'] for one in found):.1f} versions. Learning took "
        f"{max(one['learn_seconds'] for one in found):.0f} s at most."
    )


def main(arguments: Sequence[str]) -> int:
    """0 when every seed was played, 1 when one could not be; stderr then says why."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench learning", description=__doc__)
    parser.add_argument("--seeds", default="1,2,3,4,5", help="numbers with commas between")
    parser.add_argument("--tasks", type=int, default=6_400)
    parser.add_argument("--fresh", action="store_true", help="play again what is kept")
    parser.add_argument("--kept", type=Path, default=Path(".headrace") / "bench-learning",
                        help="folder of what has ended")  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    given = parser.parse_args(arguments)
    try:
        seeds = [int(seed) for seed in given.seeds.split(",")]
    except ValueError:
        parser.error("--seeds takes numbers with commas between, such as 1,2,3")
    command = " ".join(["python -m infra.bench learning", *arguments])
    load, at = load_average(), f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    try:
        with leaving_on_sigterm():
            pairs = [_pair(given.kept, seed, given.tasks, fresh=given.fresh) for seed in seeds]
        machine = this_machine()
        run = Run(machine, at, load, load_average(), command)
        found = f"{machine_markdown(machine)}\n{table(pairs)}\n\n{circumstances(run)}\n"
        sys.stdout.write(found)
        if given.write is not None:
            given.write.write_text(with_parts(given.write.read_text(), [("learning", found)]))
    except HeadraceError as error:
        sys.stderr.write(f"Not measured: {error}\n")
        return 1
    return 0


def _pair(folder: Path, seed: int, num_tasks: int, *, fresh: bool) -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    learned, control = (
        _kept(folder / f"seed-{seed}-{num_tasks}-{name}.json", seed, num_tasks, extra, fresh=fresh)
        for name, extra in (("learned", []), ("control", ["--no-updates"]))
    )
    return Pair(seed, learned, control)


def _kept(
    file: Path, seed: int, num_tasks: int, extra: Sequence[str], *, fresh: bool
) -> dict[str, Any]:
    """The figures in the file, played first where it is not there."""
    if fresh or not file.is_file():
        sys.stderr.write(f"seed {seed}, {file.stem}\n")
        line = _played(file.parent / "stack", seed, num_tasks, extra)
        half = file.with_suffix(".half")
        half.write_text(line)
        half.replace(file)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _played(data_dir: Path, seed: int, num_tasks: int, extra: Sequence[str]) -> str:
    """The demo's line. TransientError when it failed."""
    arguments = ["--learn", "--json", "--seed", str(seed), "--tasks", str(num_tasks), *extra]
    command = [sys.executable, "-m", "infra.cli.main", "demo", "-d", str(data_dir), *arguments]
    # In a session of its own: it is told to end once, by us, and takes its stack along.
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            out, _ = process.communicate()
        finally:
            stop_process(process, _STOP_SECONDS)
    lines = out.decode().splitlines()
    if process.returncode != 0 or not lines:
        raise TransientError(f"The demo of seed {seed} failed; what it said stands above.")
    return lines[-1] + "\n"
