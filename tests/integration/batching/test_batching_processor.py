"""The running processor on a real broker: any order, kills, complete and equal micro-batches."""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.internal import Sample
from schemas.atdp.training import Decision, MicroBatch, SampleDecision, TrainingSequence
from schemas.atdp.types import Governance, Lineage, Reward, RewardKind, Step
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.codec import decode, encode
from schemas.ids import trajectory_key, uuid7
from schemas.microbatches import read_microbatch
from schemas.store import BlobStore
from schemas.topics import all_topics
from tests.services import running
from tests.training_events import NOON, model_step

pytestmark = pytest.mark.integration

NUM_PARTITIONS = 4
TIMEOUT_SECONDS = 120.0
_TOPICS: dict[type, str] = {Step: topics.STEPS, Reward: topics.REWARDS}


class Bench:
    """Publishes steps and rewards; reads what assembly and batching make of them."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self.bus = KafkaBus(bootstrap_servers)
        admin = self.bus.admin()
        admin.create_topics(list(all_topics()), NUM_PARTITIONS, 1)
        partitions = admin.topics()
        self._directory = directory
        self._blobs = BlobStore((directory / "blobs").as_uri())
        self.environment = {
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "HEADRACE_KAFKA__NUM_PARTITIONS": str(partitions[topics.STEPS]),
            "HEADRACE_WORKER_NAME": "test",
            "HEADRACE_ASSEMBLY__TICK_SECONDS": "0.3",
            "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "2",
            "HEADRACE_BATCHING__BATCH_SEQUENCES": "16",
            "HEADRACE_BATCHING__MAX_WAIT_SECONDS": "0.5",
            "HEADRACE_BATCHING__TENANT_SHARE": "1",
        }
        self._producer = self.bus.producer("test")
        self._consumer = self.bus.consumer()
        read = (topics.SAMPLES, topics.MICROBATCHES, topics.DECISIONS)
        ends = admin.extents(read)
        self._consumer.assign({position: end for position, (_, end) in ends.items()})
        admin.close()
        self.samples: dict[str, Sample] = {}
        self.batches: list[MicroBatch] = []
        self.decisions: list[SampleDecision] = []

    @contextmanager
    def processor(self, name: str) -> Iterator[Any]:
        """One processor for the length of the block; its state is on the broker."""
        with running([sys.executable, "-m", f"streams.{name}"], self.log(name)) as process:
            yield process

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def publish(self, events: Sequence[Any]) -> None:
        """Deliver in this order."""
        asyncio.run(deliver(self._producer, [_record(event) for event in events]))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Read outputs until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.log("batching").read_text()[-3000:]
            for record in self._consumer.poll(500, 0.2):
                event = decode(record.value)
                if isinstance(event, Sample):
                    self.samples[event.sample_id] = event
                elif isinstance(event, SampleDecision):
                    self.decisions.append(event)
                else:
                    self.batches.append(read_microbatch(record.value, self._blobs))

    def sequences(self, tenant: str) -> list[TrainingSequence]:
        return [s for b in self.batches for s in b.sequences if s.tenant_id == tenant]

    def trained(self, tenant: str) -> set[str]:
        """Trajectories of which a sample is in a batch, and that is said."""
        said = {
            d.sample_id for d in self.decisions
            if d.tenant_id == tenant and d.decision is Decision.TRAINED
        }  # fmt: skip
        return {s.trajectory_id for s in self.sequences(tenant) if s.sample_id in said}


def _record(event: Any) -> Record:
    key = trajectory_key(event.tenant_id, event.trajectory_id)
    return Record(_TOPICS[type(event)], key, encode(event))


def _conversations(tenant: str, num: int) -> list[Any]:
    """Conversations of one to four model calls, with a final reward each. Equal for all tenants."""
    drawn = random.Random(5)
    events: list[Any] = []
    for number in range(num):
        name = f"t-{number}"
        context = [1, 2, number]
        for index in range(drawn.randint(1, 4)):
            tokens = [drawn.randrange(100) for _ in range(drawn.randint(1, 6))]
            made = model_step(
                f"{name}-s{index}", context, tokens, version=3, tenant_id=tenant,
                trajectory_id=name, logprobs=[-drawn.random() for _ in tokens],
                lineage=Lineage(
                    step_index=index, parent_step_id=f"{name}-s{index - 1}" if index else None
                ),
                governance=Governance(training_eligible=True),
            )  # fmt: skip
            events.append(replace(made, ended_at=NOON))
            context = [*context, *tokens, 7, 8]
        events.append(_reward(tenant, name, float(drawn.random() < 0.5)))
    return events


def _reward(tenant: str, trajectory: str, value: float, revision: int = 1) -> Reward:
    return Reward(
        reward_id=f"r-{trajectory}", tenant_id=tenant, trajectory_id=trajectory, name="resolved",
        kind=RewardKind.SCALAR, value=value, revision=revision, final=True, occurred_at=NOON,
        received_at=NOON, digest=f"{trajectory}/{revision}",
    )  # fmt: skip


@pytest.fixture
def bench(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(kafka, tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def _shuffled(events: Sequence[Any], numbers: range) -> list[Any]:
    """The events of these trajectories, in any order."""
    names = {f"t-{number}" for number in numbers}
    found = [event for event in events if event.trajectory_id in names]
    random.Random(numbers.start).shuffle(found)
    return found


def test_any_order_and_kills_make_the_same_sequences_once(bench: Bench) -> None:
    calm, killed = (f"{name}-{uuid7()}" for name in ("calm", "killed"))
    names = {f"t-{number}" for number in range(80)}
    events = _conversations(killed, 80)
    with bench.processor("assembly"):
        for start in (0, 30):  # each dies with samples on their way
            with bench.processor("batching") as process:
                bench.publish(_shuffled(events, range(start, start + 30)))
                bench.wait(lambda first=start: len(bench.sequences(killed)) > first)
                process.kill()
                process.wait()
        with bench.processor("batching"):
            bench.publish(_shuffled(events, range(60, 80)))
            bench.publish(_conversations(calm, 80))
            bench.wait(lambda: bench.trained(calm) == bench.trained(killed) == names)
            bench.publish([_reward(killed, "t-1", 0.25, revision=2)])
            bench.wait(lambda: any(s.revision == 2 for s in bench.sequences(killed)))
    [again] = [s for s in bench.sequences(killed) if s.revision == 2]
    assert (again.reward, again.trajectory_id) == (0.25, "t-1")
    plain = [s for s in bench.sequences(killed) if s.revision == 1]
    assert again.replaces in {s.sample_id for s in plain}
    assert len(plain) == len({s.sample_id for s in plain}) == len(names)
    assert _content(plain) == _content(bench.sequences(calm))
    assert all(s.logprobs for s in plain)


def _content(found: Sequence[TrainingSequence]) -> dict[str, TrainingSequence]:
    """What is learned, by trajectory, without the tenants' names and what derives from them."""
    return {s.trajectory_id: replace(s, tenant_id="", sample_id="") for s in found}
