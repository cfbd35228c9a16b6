"""Checkpoints are whole or not there."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from schemas.errors import ConfigError, TransientError
from trainer.checkpoint import Checkpoint, Checkpoints

ONE = Checkpoint(
    policy="toy", num_steps=1, next_offset=7, version=2, root="ab", base_version=1, sequence=0,
    statistics={"reward": 0.5}, learned={"weights": torch.arange(3.0), "ledger": [("a", 1, 1)]},
)  # fmt: skip


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(ONE)
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    assert (found.next_offset, found.statistics) == (7, {"reward": 0.5})
    assert torch.equal(found.learned["weights"], ONE.learned["weights"])
    assert found.learned["ledger"] == ONE.learned["ledger"]


def test_the_newest_counts_and_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2, 9, 10):
        checkpoints.save(replace(ONE, num_steps=number))
    found = checkpoints.latest()
    assert found is not None
    assert found.num_steps == 10
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-00000009.pt", "step-00000010.pt",
    ]  # fmt: skip


def test_half_a_checkpoint_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(ONE)
    (tmp_path / ".step-00000002.pt").write_bytes(b"half")
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    assert found.num_steps == 1
    assert not (tmp_path / ".step-00000002.pt").exists()


def test_there_is_none_before_the_first(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "new").latest() is None


def test_one_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "step-00000003.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ConfigError, match="cannot be read"):
        Checkpoints(tmp_path).latest()


def test_a_disk_that_refuses_is_a_failure_that_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TransientError, match="Make room"):
        checkpoints.save(ONE)
    monkeypatch.undo()
    assert Checkpoints(tmp_path).latest() is None
