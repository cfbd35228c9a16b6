"""An adapter that our trainer made, put into vLLM by our worker: it answers what it was taught."""

import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas import topics
from schemas.atdp.training import MicroBatch, SequenceKind, TrainedSpan, TrainingSequence
from schemas.atdp.weights import AckStatus, ManifestKind, WeightsManifest
from schemas.bus.access import KafkaAccess
from schemas.bus.api import deliver_now
from schemas.bus.kafka import KafkaBus
from schemas.microbatches import microbatch_record
from schemas.weights.versions import read_history
from tests.integration.worker import test_real_parts
from tests.integration.worker.test_real_parts import Scene
from tests.services import running
from tests.tiny_model import LETTERS, letter_of, write_model
from tests.worker_stage import POLICY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

scene = test_real_parts.scene
PROMPT = "hi>"
TIMEOUT_SECONDS = 180.0


def lesson(answer: str) -> MicroBatch:
    """The answer, to be learned by its likelihood. A byte is a token."""
    tokens = tuple(f"{PROMPT}{answer}".encode())
    sequences = tuple(
        TrainingSequence(
            sample_id=name, tenant_id="acme", trajectory_id=name, token_ids=tokens,
            kind=SequenceKind.SUPERVISED, reward=1.0,
            trained=(TrainedSpan(first=len(PROMPT), end=len(tokens), version=1, step_id=name),),
        )
        for name in ("one", "two")
    )  # fmt: skip
    return MicroBatch(
        batch_id="lesson", policy=POLICY, sequences=sequences, created_at=datetime.now(UTC)
    )


def environment(scene: Scene, folder: Path, python: Path) -> dict[str, str]:
    return {
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": scene.servers,
        "HEADRACE_KAFKA__TOPIC_PREFIX": scene.prefix,
        "HEADRACE_TRAINER__POLICY": POLICY,
        "HEADRACE_TRAINER__MODEL": str(write_model(folder / "model", scene.tensors)),
        "HEADRACE_TRAINER__PYTHON": str(python),
        "HEADRACE_TRAINER__LEARNING_RATE": "0.01",
        "HEADRACE_TRAINER__PASSES": "60",
        "HEADRACE_TRAINER__MIN_TRAJECTORIES": "2",
        "HEADRACE_TRAINER__LORA_RANK": "4",
        "OMP_NUM_THREADS": "1",
    }


def trained(bus: KafkaBus, log: Path) -> WeightsManifest:
    """The adapter that the trainer publishes once it has learned."""
    deadline, pause = time.monotonic() + TIMEOUT_SECONDS, threading.Event()
    with running([sys.executable, "-m", "trainer"], log) as process:
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            for manifest in read_history(bus, POLICY).versions.values():
                if manifest.kind is ManifestKind.ADAPTER:
                    return manifest
            pause.wait(0.1)  # the trainer needs the processor


def test_what_the_trainer_taught_an_adapter_is_what_the_engine_answers(
    scene: Scene, engine_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = KafkaBus(KafkaAccess(scene.servers, prefix=scene.prefix))
    admin = bus.admin()
    names = (topics.MICROBATCHES, topics.dead_letter_topic(topics.MICROBATCHES))
    admin.create_topics([topics.topic(name) for name in names], 1, 1)
    admin.close()
    taught = letter_of(scene.engine.answers + len(LETTERS) // 2)  # not what the weights answer
    record = microbatch_record(lesson(taught), scene.stage.blobs)
    deliver_now(bus.producer("test"), [record], 30.0)
    for name, value in environment(scene, tmp_path, engine_python).items():
        monkeypatch.setenv(name, value)
    adapter = trained(bus, tmp_path / "trainer.log")
    assert adapter.from_root == scene.manifest.root
    bare, _ = scene.engine.ask(PROMPT)
    assert bare != taught

    assert scene.stage.go_to(adapter).status is AckStatus.APPLIED
    text, headers = scene.engine.ask(PROMPT)
    assert text == taught
    assert (headers["policy-version"], headers["weights-root"]) == (
        str(adapter.version), adapter.root,
    )  # fmt: skip
    assert scene.stage.require_equal().root == scene.manifest.root  # the weights stand still
    scene.apply(scene.manifest)
    assert scene.engine.ask(PROMPT)[0] == bare
