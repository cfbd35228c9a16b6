"""Workers killed by SIGKILL at each step of an update: what is served is true, and all heals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.worker.dying import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]
#: Fewer steps than this would mean that they are not counted any more.
MIN_STEPS = 20


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_worker_killed_at_any_step_heals(tmp_path: Path, scenario: str) -> None:
    """At every step, until it is killed, nobody is answered by what the label does not say."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.worker.dying", str(tmp_path), scenario],
        capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= MIN_STEPS
    assert {tuple(ends) for ends in found} == {(-signal.SIGKILL, 0)}, found
