"""`headrace demo` as a person runs it: the whole stack, the real client, the one line of JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FIELDS = [
    "calls", "steps", "lost", "duplicated", "dead_lettered", "quarantined", "rewards_sent",
    "rewards_joined", "unmatched", "planted", "leaked", "leaked_by_kind", "visible_p95_seconds",
    "replay_checksum_equal", "seconds",
]  # fmt: skip

#: A placeholder in bold letters of some colour.
COLOURED = re.compile(r"\x1b\[1;\d{2}m<[A-Z_]+_[a-z]{13}>")


def run_demo(data_dir: Path, *arguments: str) -> dict[str, Any]:
    """The last line that the command printed. Fails with what it said where it fails."""
    clickhouse, gateway = free_ports(2)
    environment = os.environ | {
        "HEADRACE_CLICKHOUSE__PORT": str(clickhouse),
        "HEADRACE_GATEWAY__PORT": str(gateway),
        "FORCE_COLOR": "1",
        "TERM": "xterm",
        "COLUMNS": "250",
    }
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "infra.cli.main", "demo", "--json", "-d", str(data_dir)]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "One trajectory before and after redaction" in done.stderr
    assert COLOURED.search(done.stderr), "no placeholder has a colour"
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(line) == FIELDS
    return line


def assert_nothing_lost(line: dict[str, Any]) -> None:
    assert line["steps"] == line["calls"]
    assert line["lost"] == line["duplicated"] == 0
    assert line["dead_lettered"] == line["quarantined"] == 0
    assert line["rewards_joined"] == line["rewards_sent"]
    assert line["unmatched"] == 0
    assert line["replay_checksum_equal"] is True
    assert line["visible_p95_seconds"] > 0


def test_the_demos_own_conversations(tmp_path: Path) -> None:
    line = run_demo(tmp_path / "demo")
    assert_nothing_lost(line)
    assert line["calls"] > 500
    assert line["rewards_sent"] >= 60
    assert line["planted"] > 900
    assert line["leaked"] == 0
    assert line["leaked_by_kind"] == {}


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.soak)])
def test_recorded_airline_conversations(tmp_path: Path, shared_data: Path, every: int) -> None:
    """Ten of them, that a file can be played; `make soak` plays all 200, and
    `test_real_conversations.py` does so without the command."""
    text = (shared_data / "trajectories" / "tau-bench-airline-gpt-4o.json").read_text()
    played = json.loads(text)[::every]
    file = tmp_path / "played.json"
    file.write_text(json.dumps(played))
    line = run_demo(tmp_path / "demo", "--trajectories", str(file))
    assert_nothing_lost(line)
    assert line["calls"] == sum(m["role"] == "assistant" for one in played for m in one["traj"])
    assert line["rewards_sent"] == len(played)
    assert line["planted"] > len(played)
    assert set(line["leaked_by_kind"]) <= {"PERSON", "STREET_ADDRESS"}
    assert line["leaked"] <= max(1, len(played) // 20)
