"""What the learning benchmark makes of the lines of its runs."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.bench import learning
from infra.bench.learning import Pair, main, over_seeds, table


def line(right: int, first: float = 0.45, last: float = 0.46) -> dict[str, Any]:
    return {
        "reward_first": first, "reward_last": last, "held_out_after": right / 100,
        "held_out_right_after": "1" * right + "0" * (100 - right), "diversity_before": 0.6,
        "diversity_after": 0.5, "entropy_first": 0.3, "entropy_last": 0.2, "updates": 50,
        "updates_stopped": 1, "seconds_per_update": 2.0, "agreement_k3_max": 2e-5,
        "agreement_known": 49, "versions_served": 50, "delta_bytes_median": 500_000,
        "full_bytes": 5_000_000, "pause_ms_p50": 50.0, "lag_median": 3.0, "learn_seconds": 100.0,
    }  # fmt: skip


def test_the_interval_over_seeds_is_students() -> None:
    gain, (low, high) = over_seeds([0.3, 0.4, 0.5])
    assert gain == pytest.approx(0.4)
    assert low == pytest.approx(0.4 - 0.2484, abs=1e-3)
    assert high == pytest.approx(0.4 + 0.2484, abs=1e-3)
    assert over_seeds([0.4]) == (0.4, (-1.0, 1.0))


def test_a_small_or_uncertain_gain_misses_the_goal() -> None:
    good = [Pair(seed, line(80 + seed), line(45)) for seed in (1, 2, 3)]
    assert "goal: the lower bound above +0.20: met" in table(good)
    uncertain = [Pair(1, line(90), line(45)), Pair(2, line(60), line(45))]
    assert "goal: the lower bound above +0.20: missed" in table(uncertain)
    assert "**Gain" not in table(good[:1])


def test_a_control_that_moves_is_told() -> None:
    moving = Pair(1, line(80), line(45, first=0.4, last=0.5))
    assert "The control moved by 0.100 at most; goal: at most 0.05: missed." in table([moving])


def test_what_has_ended_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[tuple[int, tuple[str, ...]]] = []

    def play(_folder: Path, seed: int, _num_tasks: int, extra: list[str]) -> str:
        played.append((seed, tuple(extra)))
        return json.dumps(line(45 if extra else 80))

    monkeypatch.setattr(learning, "_played", play)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench:learning -->\n<!-- /bench:learning -->\nafter\n")
    assert main(["--seeds", "1", "--kept", str(tmp_path)]) == 0
    assert main(["--seeds", "1,2", "--kept", str(tmp_path), "--write", str(page)]) == 0
    assert played == [(1, ()), (1, ("--no-updates",)), (2, ()), (2, ("--no-updates",))]
    assert page.read_text().count("+0.350") >= 2
    assert "after" in page.read_text()
    assert "--seeds 1,2" in capsys.readouterr().out


class ToldToEnd(subprocess.Popen[bytes]):
    """A process whose parent is told to end as soon as it runs."""

    def communicate(self, *_arguments: Any, **_options: Any) -> Any:
        assert self.stdout is not None
        assert self.stdout.readline() == b"ready\n"
        signal.raise_signal(signal.SIGTERM)


def test_a_benchmark_that_is_told_to_end_ends_its_demo_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = tmp_path / "python"
    demo.write_text(
        "#!/bin/sh\n"
        "trap 'touch \"$0.told\"; exit 0' TERM\n"
        "echo ready\n"
        "sleep 60 & wait\n"
    )  # fmt: skip
    demo.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(demo))
    monkeypatch.setattr("subprocess.Popen", ToldToEnd)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        main(["--seeds", "1", "--kept", str(tmp_path / "kept")])
    assert (tmp_path / "python.told").is_file()
    assert signal.getsignal(signal.SIGTERM) is before
