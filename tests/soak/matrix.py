"""The crash matrix: `python -m tests.soak.matrix --seeds 1,2,3,4,5 --kills 2 --steps 20000`.

Each seed is a run of its own; those with an even number have two workers in each group. A run
appends one JSON line to the results file. `--publish` writes docs/reliability.md from its lines.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from infra.local.signals import leaving_on_sigterm
from tests.soak.report import publish
from tests.soak.trial import Order, run_trial


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Command line; 1 when a run lost, doubled or misjoined anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1,2,3,4,5", help="comma-separated numbers")
    parser.add_argument("--kills", type=int, default=2, help="kills of each process and run")
    parser.add_argument("--steps", type=int, default=20_000, help="calls of each run")
    parser.add_argument("--concurrency", type=int, default=24, help="conversations at a time")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between their calls")
    parser.add_argument("--results", type=Path, default=Path(".soak/crash-matrix.jsonl"))
    parser.add_argument("--publish", type=Path, help="write the page, here docs/reliability.md")
    given = parser.parse_args()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    # the stack runs in a session of its own: it is ended on the way out, so there must be one
    with leaving_on_sigterm():
        all_right = _run_all(given)
    if given.publish is not None:
        publish(given.results, given.publish)
    return 0 if all_right else 1


def _run_all(given: argparse.Namespace) -> bool:
    """Whether every run was right."""
    all_right = True
    for seed in (int(text) for text in given.seeds.split(",")):
        order = Order(
            seed, given.steps, given.kills, two_workers=seed % 2 == 0,
            concurrency=given.concurrency, pause_seconds=given.pause,
        )  # fmt: skip
        folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
        outcome = run_trial(order, folder, _say)
        line = json.dumps(outcome.plain())
        with given.results.open("a") as results:
            results.write(line + "\n")
        _say(line)
        all_right = all_right and outcome.verdict.is_right
        if outcome.verdict.is_right:
            shutil.rmtree(folder)
        else:
            _say(f"what the run left is in {folder}")
    return all_right


if __name__ == "__main__":
    sys.exit(main())
