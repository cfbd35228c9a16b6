"""What the demo says about what it found."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from infra.demo.checksums import Checksum
from infra.demo.ledger import Call, Ledger
from infra.demo.places import Found
from infra.demo.private_data import Planted
from infra.demo.report import findings, numbers_line, print_next_steps, print_summary
from infra.demo.run import Looked, Played, stages_of
from infra.demo.stage import clear_folder
from infra.demo.verify import Evidence, StepRow, Verdict
from schemas.errors import ConfigError

SECRET = Planted("SECRET", "AKIA234567ABCDEFGHIJ", "user_text")
CALL = Call("a", 2, True, "chatcmpl-1", "s1", (), {"role": "assistant", "content": "x"}, 1.0)
SUMS = (Checksum("steps", 1, 11), Checksum("rewards", 1, 12), Checksum("trajectories", 1, 13))


def played(found: Found | None = None) -> Played:
    return Played(
        ledger=Ledger(calls=[CALL], planted=(SECRET,)),
        evidence=Evidence((StepRow("chatcmpl-1", "s1", "t1"),), 1, {}, {"t1": None}, 0, 0),
        verdict=Verdict(0, 0, 0, 0, 1),
        found=found or Found((SECRET,)),
        looked=Looked(10, 20, 3, 4),
        visible_p95_seconds=0.4321,
        before=SUMS,
        after=SUMS,
        play_seconds=2.0,
        must_not_leak=frozenset({"SECRET"}),
    )


def faults(result: Played) -> list[str]:
    return [finding.name for finding in findings(result, 9.0) if finding.good is False]


def test_a_good_run_has_no_faults_and_one_line_of_json() -> None:
    assert faults(played()) == []
    line = numbers_line(played(), 9.04)
    assert "\n" not in line
    numbers = json.loads(line)
    assert list(numbers)[:4] == ["calls", "steps", "lost", "duplicated"]
    assert numbers["visible_p95_seconds"] == 0.432
    assert numbers["seconds"] == 9.0
    assert numbers["planted"] == 1


def test_a_changed_checksum_is_named() -> None:
    changed = replace(played(), after=(*SUMS[:2], Checksum("trajectories", 2, 13)))
    assert not changed.replay_checksum_equal
    assert faults(changed) == ["replay into wiped tables"]
    (finding,) = [item for item in findings(changed, 9.0) if item.good is False]
    assert finding.value == "different: trajectories (1 rows before, 2 after)"


def test_empty_tables_are_not_equal_tables() -> None:
    empty = tuple(replace(item, num_rows=0, total=0) for item in SUMS)
    assert not replace(played(), before=empty, after=empty).replay_checksum_equal


def test_a_leak_is_a_fault_where_its_kind_must_not_leak() -> None:
    found = Found((SECRET,))
    found.look("log gateway.log", f"key {SECRET.value}")
    assert faults(played(found)) == ["of them found after redaction"]
    assert faults(replace(played(found), must_not_leak=frozenset())) == []
    assert json.loads(numbers_line(played(found), 1.0))["leaked_by_kind"] == {"SECRET": 1}


def test_no_private_value_is_printed_in_the_summary() -> None:
    found = Found((SECRET,))
    found.look("log gateway.log", SECRET.value)
    output = io.StringIO()
    print_summary(Console(file=output, width=120), played(found), 9.0)
    print_next_steps(Console(file=output, width=120), "/data", "t1")
    assert SECRET.value not in output.getvalue()
    assert "headrace down --data-dir /data" in output.getvalue()


class Phases:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def begin(self, what: str, total: int | None) -> None:
        self.seen.append(("begin", what, total))

    def advance(self, num: int = 1) -> None:
        self.seen.append(("advance", num))

    def remaining(self, num: int) -> None:
        self.seen.append(("remaining", num))

    def end(self) -> None:
        self.seen.append(("end",))


def test_each_stage_of_a_replay_is_a_phase() -> None:
    phases = Phases()
    report = stages_of(phases)
    report("wiping", 0, 0)
    report("reading", 0, 9)
    report("reading", 9, 9)
    assert phases.seen == [
        ("begin", "replay: wiping", None),
        ("remaining", 0),
        ("end",),
        ("begin", "replay: reading", 9),
        ("remaining", 9),
        ("remaining", 0),
    ]


def test_only_a_demos_folder_is_emptied(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="no demo put there"):
        clear_folder(foreign)
    assert (foreign / "thesis.txt").exists()
    own = tmp_path / "own"
    clear_folder(own)
    (own / "left.txt").write_text("of an earlier demo")
    clear_folder(own)
    assert not (own / "left.txt").exists()
