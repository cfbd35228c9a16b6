"""Publishers that stop for good at each of their steps, on the bus in memory.

The process goes on here, so that all steps take a second; what a kill by SIGKILL leaves on a
real broker is in tests/integration/weights.
"""

from pathlib import Path

import numpy as np
import pytest

from schemas import topics
from schemas.bus.memory import MemoryBus
from schemas.store import BlobStore
from schemas.weights.checkpoints import shard
from schemas.weights.versions import read_history, restore
from tests.integration.weights.dying import POLICY, Clock, Watched, model, publish
from tests.unit.weights.models import random_model, same, stepped

SHAPES: dict[str, tuple[int, ...]] = {"a": (40, 9), "b": (31,), "c": (64,)}


class Dead(BaseException):
    """Nobody catches it: the publisher does nothing any more."""


class Deployment:
    """Topics, blobs, and the two versions that shall be published."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus = MemoryBus()
        self.bus.admin().create_topics(topics.all_topics(), 1, 1)
        self.blobs = BlobStore((folder / "blobs").as_uri())
        numbers = np.random.default_rng(2026)
        tensors = random_model(numbers, SHAPES)
        for version in (1, 2):
            (folder / f"{version}.safetensors").write_bytes(shard(tensors))
            tensors = stepped(numbers, tensors, 0.3)

    def publish(self, version: int, step: int = -1) -> int:
        """The number of steps of a publisher; Dead when it comes to that one."""
        clock = Clock(step, die=self._die)
        publish(Watched(self.bus, clock), Watched(self.blobs, clock), self.folder, version)
        return clock.num_steps

    def _die(self) -> None:
        raise Dead

    def require_whole(self) -> int:
        """Every version that can be read is whole; the number of them."""
        history = read_history(self.bus, POLICY)
        assert history.refused == []
        for version in history.versions:
            found = restore(self.bus, self.blobs, history, version)
            assert same(found.tensors, model(self.folder, version))
        return len(history.versions)


@pytest.mark.parametrize("version", [1, 2])
def test_a_publisher_that_dies_at_any_step_leaves_whole_versions(
    tmp_path: Path, version: int
) -> None:
    num_steps, whole = 0, set()
    step = 0
    while not num_steps:
        folder = tmp_path / f"{step}"
        folder.mkdir()
        deployment = Deployment(folder)
        if version == 2:
            deployment.publish(1)
        try:
            num_steps = deployment.publish(version, step)
        except Dead:
            whole.add(deployment.require_whole())
            deployment.publish(version)
        assert deployment.require_whole() == version
        step += 1
    assert num_steps >= 10
    assert whole == {version - 1, version}, "some die before the commit, some after it"
