"""Publishers killed at each step, on a real broker: readers see whole versions or none."""

import random
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from schemas import topics
from schemas.bus import read_to_end
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.store import BlobStore
from schemas.weights import chunks
from schemas.weights.checkpoints import shard
from schemas.weights.tensors import Tensor
from schemas.weights.versions import read_history, restore
from tests.integration.weights.dying import POLICY, model, publish
from tests.unit.weights.models import random_model, same, stepped

pytestmark = pytest.mark.integration

SHAPES: dict[str, tuple[int, ...]] = {"a": (40, 9), "b": (31,), "c": (64,)}
#: Large enough for a payload of two parts.
LARGE: dict[str, tuple[int, ...]] = {"a": (500_000,)}
#: Steps of each version, and the one after which its manifest is sent and not committed.
NUM_STEPS = {1: 12, 2: 22}
UNCOMMITTED = {1: 9, 2: 11}
NUM_KILLS = 2


@dataclass(frozen=True)
class Deployment:
    """Topics under a prefix of their own, a blob store, and the models that shall be published."""

    servers: str
    prefix: str
    blob_uri: str
    folder: Path

    @property
    def bus(self) -> KafkaBus:
        return KafkaBus(KafkaAccess(self.servers, prefix=self.prefix))

    @property
    def blobs(self) -> BlobStore:
        return BlobStore(self.blob_uri)

    def shall_be(self, version: int, tensors: dict[str, Tensor]) -> None:
        (self.folder / f"{version}.safetensors").write_bytes(shard(tensors))

    def child(self, version: int, step: int) -> subprocess.CompletedProcess[str]:
        arguments = [self.servers, self.prefix, self.blob_uri, str(self.folder)]
        return subprocess.run(
            [sys.executable, "-m", "tests.integration.weights.dying", *arguments, str(version),
             str(step)],
            capture_output=True, text=True, timeout=120, check=False,
            cwd=Path(__file__).resolve().parents[3],
        )  # fmt: skip

    def require_whole(self, newest: int) -> None:
        """Every version that can be read is whole, and is what it shall be."""
        history = read_history(self.bus, POLICY)
        assert history.refused == []
        assert list(history.versions) == list(range(1, newest + 1))
        for version in history.versions:
            found = restore(self.bus, self.blobs, history, version)
            assert same(found.tensors, model(self.folder, version))


def fresh(servers: str, folder: Path) -> Deployment:
    """Topics and a folder that nobody has written to."""
    name = f"w{uuid.uuid4().hex[:8]}."
    made = Deployment(servers, name, (folder / name / "blobs").as_uri(), folder / name / "models")
    made.folder.mkdir(parents=True)
    wanted = (topics.WEIGHTS_CHUNKS, topics.WEIGHTS_VERSIONS)
    made.bus.admin().create_topics([topics.topic(name) for name in wanted], 1, 1)
    return made


@pytest.fixture
def deployment(kafka: str, tmp_path: Path) -> Deployment:
    return fresh(kafka, tmp_path)


def kill(deployment: Deployment, version: int, step: int) -> int:
    """Publish what comes before the version, and die at that step of it. The versions there are
    then, all of them whole; and the next publisher gets through.

    The first is a snapshot, the second a delta and, since these models' deltas are large, a
    snapshot beside it.
    """
    numbers = np.random.default_rng(2026)
    tensors = random_model(numbers, SHAPES)
    for earlier in range(1, version):
        deployment.shall_be(earlier, tensors)
        publish(deployment.bus, deployment.blobs, deployment.folder, earlier)
        tensors = stepped(numbers, tensors, 0.3)
    deployment.shall_be(version, tensors)
    died = deployment.child(version, step)
    assert died.returncode == -signal.SIGKILL, died.stderr
    left = newest(deployment)
    assert left in {version - 1, version}
    deployment.require_whole(left)
    publish(deployment.bus, deployment.blobs, deployment.folder, version)
    deployment.require_whole(version)
    return left


def newest(deployment: Deployment) -> int:
    found = read_history(deployment.bus, POLICY).newest
    return 0 if found is None else found.version


@pytest.mark.parametrize("version", NUM_STEPS)
def test_a_publisher_killed_at_any_step_leaves_whole_versions(
    kafka: str, tmp_path: Path, version: int
) -> None:
    """Some steps, by a seed; always the one at which the manifest waits for its commit, and the
    last one."""
    last = NUM_STEPS[version] - 1
    sampled = random.Random(2026).sample(range(last), NUM_KILLS)
    left = {
        step: kill(fresh(kafka, tmp_path), version, step)
        for step in sorted({*sampled, UNCOMMITTED[version], last})
    }
    assert left[UNCOMMITTED[version]] == version - 1
    assert left[last] == version


@pytest.mark.soak
@pytest.mark.parametrize("version", NUM_STEPS)
def test_a_publisher_killed_at_every_step_leaves_whole_versions(
    kafka: str, tmp_path: Path, version: int
) -> None:
    left = [kill(fresh(kafka, tmp_path), version, step) for step in range(NUM_STEPS[version])]
    assert left == sorted(left), "once it is committed it stays"
    assert set(left) == {version - 1, version}


def test_the_steps_are_what_a_publisher_does(deployment: Deployment) -> None:
    numbers = np.random.default_rng(2026)
    tensors = random_model(numbers, SHAPES)
    for version, num_steps in NUM_STEPS.items():
        deployment.shall_be(version, tensors)
        done = deployment.child(version, -1)
        assert (done.stdout, done.returncode) == (f"{num_steps}\n", 0), done.stderr
        tensors = stepped(numbers, tensors, 0.3)
    assert list(read_history(deployment.bus, POLICY).snapshots) == [1, 2]


def test_parts_without_a_manifest_are_passed_over(deployment: Deployment) -> None:
    """Killed between the parts: the next publisher sends all of them again."""
    numbers = np.random.default_rng(3)
    tensors = random_model(numbers, LARGE)
    deployment.shall_be(1, tensors)
    publish(deployment.bus, deployment.blobs, deployment.folder, 1)
    deployment.shall_be(2, stepped(numbers, tensors, 1.0))
    whole = deployment.child(2, -1)
    assert whole.returncode == 0, whole.stderr
    deployment.require_whole(2)
    parts = read_history(deployment.bus, POLICY).versions[2].parts
    assert len(parts) >= 1
    deployment.shall_be(3, stepped(numbers, tensors, 1.0))
    before = len(read_to_end(deployment.bus, topics.WEIGHTS_CHUNKS))
    died = deployment.child(3, 5)
    assert died.returncode == -signal.SIGKILL, died.stderr
    orphans = len(read_to_end(deployment.bus, topics.WEIGHTS_CHUNKS)) - before
    assert orphans >= 1
    deployment.require_whole(2)
    publish(deployment.bus, deployment.blobs, deployment.folder, 3)
    deployment.require_whole(3)
    third = read_history(deployment.bus, POLICY).versions[3]
    assert third.parts[0].offset >= before + orphans
    assert third.num_bytes <= chunks.MAX_TOPIC_BYTES
