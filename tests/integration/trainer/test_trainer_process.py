"""`python -m trainer` on a real broker, in the engine's environment, killed and started again."""

import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from schemas import codec, topics
from schemas.atdp.training import MicroBatch, SequenceKind, TrainedSpan, TrainingSequence
from schemas.atdp.weights import Proposal
from schemas.bus.access import KafkaAccess
from schemas.bus.api import Record, deliver_now, read_to_end
from schemas.bus.kafka import KafkaBus
from schemas.errors import TransientError
from schemas.microbatches import microbatch_record
from schemas.store import BlobStore
from schemas.weights.shadow import Shadow
from schemas.weights.versions import read_history, restore
from tests.services import running
from tests.tiny_model import first_version, write_model

pytestmark = pytest.mark.integration

NUM_BATCHES, SIZE = 5, 4
TIMEOUT_SECONDS = 240.0


@dataclass(frozen=True)
class Deployment:
    """Topics under a prefix of their own, a model, and micro-batches for several policies."""

    servers: str
    prefix: str
    folder: Path
    python: Path
    num_processes: int = 1

    @property
    def bus(self) -> KafkaBus:
        return KafkaBus(KafkaAccess(self.servers, prefix=self.prefix))

    @property
    def blobs(self) -> BlobStore:
        return BlobStore((self.folder / "blobs").as_uri())

    def environment(self, policy: str) -> dict[str, str]:
        return {
            "HEADRACE_DATA_DIR": str(self.folder),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": self.servers,
            "HEADRACE_KAFKA__TOPIC_PREFIX": self.prefix,
            "HEADRACE_TRAINER__POLICY": policy,
            "HEADRACE_TRAINER__MODEL": str(self.folder / "model"),
            "HEADRACE_TRAINER__PYTHON": str(self.python),
            "HEADRACE_TRAINER__OBJECTIVE": "supervised",
            "HEADRACE_TRAINER__LEARNING_RATE": "1e-3",
            "HEADRACE_TRAINER__MIN_TRAJECTORIES": str(SIZE),
            "HEADRACE_TRAINER__NUM_PROCESSES": str(self.num_processes),
            "OMP_NUM_THREADS": "1",
        }

    def publish(self, policy: str) -> None:
        """The same micro-batches for each policy, one broken one among them."""
        records = [
            microbatch_record(batch(policy, number), self.blobs) for number in range(NUM_BATCHES)
        ]
        broken = Record(topics.MICROBATCHES, policy.encode(), b"\0broken")
        deliver_now(self.bus.producer("test"), [*records[:2], broken, *records[2:]], 30.0)

    def train(self, policy: str, until: Callable[[dict[int, str]], bool], *, kill: bool) -> None:
        """One life of a trainer: until its versions are such."""
        log = self.folder / f"{policy}.log"
        with (
            pytest.MonkeyPatch.context() as patch,
            running(self._command(policy, patch), log) as process,
        ):
            deadline, pause = time.monotonic() + TIMEOUT_SECONDS, threading.Event()
            while not until(self.roots(policy)):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                pause.wait(0.05)  # the trainer needs the processor
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            process.wait(30)

    def _command(self, policy: str, patch: pytest.MonkeyPatch) -> list[str]:
        """The command line; what it reads of the environment is set."""
        for name, value in self.environment(policy).items():
            patch.setenv(name, value)
        return [sys.executable, "-m", "trainer"]

    def roots(self, policy: str) -> dict[int, str]:
        """Version → root; of topics that are new a broker may not know yet."""
        try:
            return {v: m.root for v, m in read_history(self.bus, policy).versions.items()}
        except TransientError:
            return {}


def batch(policy: str, number: int) -> MicroBatch:
    random = np.random.default_rng(number)
    sequences = []
    for index in range(SIZE):
        tokens = tuple(int(t) for t in random.integers(4, 200, 12))
        name = f"{number}-{index}"
        sequences.append(
            TrainingSequence(
                sample_id=name, tenant_id="acme", trajectory_id=name, reward=float(index % 2),
                kind=SequenceKind.POLICY_GRADIENT, token_ids=tokens,
                trained=(TrainedSpan(first=6, end=12, version=1, step_id=name),),
            )
        )  # fmt: skip
    return MicroBatch(
        batch_id=f"{policy}-{number}", policy=policy, sequences=tuple(sequences),
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
    )  # fmt: skip


@pytest.fixture
def deployment(kafka: str, engine_python: Path, tmp_path: Path) -> Deployment:
    made = Deployment(kafka, f"trainer-{uuid.uuid4().hex[:8]}.", tmp_path, engine_python)
    admin = made.bus.admin()
    admin.create_topics(list(topics.all_topics()), 1, 1)
    admin.close()
    write_model(tmp_path / "model", first_version())
    return made


@pytest.mark.soak
def test_a_killed_torchrun_leaves_nobody_behind_and_goes_on(deployment: Deployment) -> None:
    """Two processes: started by `torchrun`, killed with it, started again, equal at the end."""
    together = replace(deployment, num_processes=2)
    whole = NUM_BATCHES + 1
    for policy in ("calm", "killed"):
        together.publish(policy)
    together.train("calm", lambda roots: len(roots) == whole, kill=False)
    together.train("killed", lambda roots: len(roots) >= 3, kill=True)
    together.train("killed", lambda roots: len(roots) == whole, kill=False)
    assert together.roots("killed") == together.roots("calm")


def test_a_killed_trainer_publishes_the_versions_of_an_undisturbed_one(
    deployment: Deployment,
) -> None:
    whole = NUM_BATCHES + 1
    for policy in ("calm", "killed"):
        deployment.publish(policy)
    deployment.train("calm", lambda roots: len(roots) == whole, kill=False)
    deployment.train("killed", lambda roots: len(roots) >= 3, kill=True)
    deployment.train("killed", lambda roots: len(roots) == whole, kill=False)
    assert deployment.roots("killed") == deployment.roots("calm")

    history = read_history(deployment.bus, "killed")
    first = Shadow(first_version())
    assert restore(deployment.bus, deployment.blobs, history, 1).root == first.root
    newest = history.versions[whole]
    assert (
        restore(deployment.bus, deployment.blobs, history, whole).root == newest.root != first.root
    )
    proposed = [
        codec.decode(r.value) for r in read_to_end(deployment.bus, topics.WEIGHTS_PROMOTIONS)
    ]
    assert {
        p.target.version for p in proposed if isinstance(p, Proposal) and p.policy == "killed"
    } == {*range(1, whole + 1)}
    letters = read_to_end(deployment.bus, topics.dead_letter_topic(topics.MICROBATCHES))
    assert {codec.decode(record.value).reason for record in letters} == {"unknown_schema"}
