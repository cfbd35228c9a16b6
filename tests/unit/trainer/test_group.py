"""Two processes learn what one learns, publish once, and go on after a death at the same bits."""

import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.bus.memory import MemoryBus
from schemas.weights.versions import read_history
from tests.unit.trainer import group_probe
from tests.unit.trainer.batches import load, make_model, stream
from trainer import relaunch
from trainer.group import Group

NUM_BATCHES, SIZE = 4, 8
LIMIT_SECONDS = 240


@pytest.fixture(scope="module")
def said(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes said, and what one process did with the same micro-batches."""
    folder = tmp_path_factory.mktemp("group")
    model = make_model(folder / "model")
    batches = stream(load(model), NUM_BATCHES, SIZE)
    (folder / "batches").write_bytes(pickle.dumps(batches))
    site = folder / "site"
    arguments = [str(model), str(folder / "batches"), str(folder)]
    command = relaunch.command(engine_python, site, "group_probe", arguments, num_processes=2)
    shutil.copy(str(group_probe.__file__), site / "group_probe.py")
    environment = relaunch.environment(os.environ, site) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=LIMIT_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    bus: MemoryBus = group_probe.bus_with(batches)
    alone = group_probe.Life(Group(), bus, model, folder / "alone")
    alone.take(NUM_BATCHES)
    ranks = [torch.load(folder / f"rank-{rank}.pt") for rank in (0, 1)]
    return {"ranks": ranks, "alone": alone, "history": read_history(bus, "toy")}


def test_loss_and_gradient_are_those_of_one_process(said: dict[str, Any]) -> None:
    for rank in said["ranks"]:
        assert rank["size"] == 2
        together, alone = rank["figures"][0], said["alone"].figures[0]
        assert together.keys() == alone.keys()
        for name in ("loss", "gradient_norm", "entropy", "ess", "k3", "reward", "num_tokens"):
            assert together[name] == pytest.approx(alone[name], rel=1e-5, abs=1e-6), name
        for name, gradient in said["alone"].gradient.items():
            torch.testing.assert_close(rank["gradient"][name], gradient, rtol=1e-4, atol=1e-7)


def test_the_weights_are_split_and_become_those_of_one_process(said: dict[str, Any]) -> None:
    first, second = said["ranks"]
    assert set(first["parts"].values()) == {"DTensor"}
    alone = said["alone"]
    moved = apart = 0.0
    for name, end in alone.learner.state()["parameters"].items():
        assert torch.equal(first["state"][name], second["state"][name])
        moved += float((end - alone.start[name]).abs().sum())
        apart += float((end - first["state"][name]).abs().sum())
    # Adam makes a step also of a gradient that is nothing but rounding: a few elements may part.
    assert apart < 0.02 * moved


def test_the_first_alone_publishes_and_checkpoints(said: dict[str, Any]) -> None:
    first, second = said["ranks"]
    assert sorted(first["versions"]["whole"]) == [*range(1, NUM_BATCHES + 2)]
    assert second["versions"] == {"whole": {}, "cut": {}}
    assert first["versions"]["whole"].keys() == said["history"].versions.keys()


def test_after_a_death_it_ends_at_the_same_bits(said: dict[str, Any]) -> None:
    for rank in said["ranks"]:
        for name, undisturbed in rank["state"].items():
            assert torch.equal(undisturbed, rank["again"][name])
    versions = said["ranks"][0]["versions"]
    assert versions["cut"] == versions["whole"]


@pytest.mark.parametrize("num_parts", range(7))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_part_counts_in_one_process_and_all_have_as_many(num_parts: int, size: int) -> None:
    parts = [*range(num_parts)]
    shares = [[*Group(rank, size).share(parts)] for rank in range(size)]
    assert len({len(share) for share in shares}) == 1
    counted = sorted(part for share in shares for part, factor in share if factor)
    assert counted == parts
    assert {factor for share in shares for _, factor in share} <= {0.0, float(size)}
