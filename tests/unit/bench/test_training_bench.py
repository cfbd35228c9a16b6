"""What the topics of a run say of its loop: time to a better answer, ages of tokens."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.bench.figures import Section
from infra.bench.training import Loop, looked_at, section
from infra.demo.learning.course import Course
from infra.demo.learning.show import Shown
from schemas import codec, topics
from schemas.atdp.internal import PartitionOffset, RewardRef, Sample
from schemas.atdp.training import MicroBatch, TrainedSpan, TrainingSequence
from schemas.atdp.types import Reward
from schemas.atdp.weights import AckStatus, WeightsAck, WeightsManifest
from schemas.bus.api import Record, deliver_now
from schemas.bus.memory import MemoryBus
from schemas.store import BlobStore

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(bus: MemoryBus, topic: str, event: Any) -> None:
    deliver_now(bus.producer("test"), [Record(topic, b"k", codec.encode(event))], 5.0)


def learned(bus: MemoryBus, number: int, *, sampled_by: int, received: float) -> None:
    """A reward, its sample, and the micro-batch that it is in."""
    put(bus, topics.REWARDS, Reward(
        reward_id=f"r-{number}", tenant_id="acme", trajectory_id="t", name="good",
        occurred_at=NOON, received_at=at(received), digest="d",
    ))  # fmt: skip
    put(bus, topics.SAMPLES, Sample(
        sample_id=f"s-{number}", tenant_id="acme", trajectory_id="t", reward_policy="a/1",
        rewards=(RewardRef(reward_id=f"r-{number}", revision=1),), closed_at=NOON,
    ))  # fmt: skip
    span = TrainedSpan(first=1, end=4, version=sampled_by, step_id="step")
    sequence = TrainingSequence(
        sample_id=f"s-{number}", tenant_id="acme", trajectory_id="t", token_ids=(1, 2, 3, 4),
        trained=(span,),
    )  # fmt: skip
    put(bus, topics.MICROBATCHES, MicroBatch(
        batch_id=f"b-{number}", policy="main", created_at=NOON, sequences=(sequence,),
    ))  # fmt: skip


def served(bus: MemoryBus, version: int, used_up_to: int, applied: float | None) -> None:
    used = PartitionOffset(topic=topics.MICROBATCHES, partition=0, offset=used_up_to)
    put(bus, topics.WEIGHTS_VERSIONS, WeightsManifest(
        policy="main", version=version, epoch=1, root="r", codec="", dtype="", sha256="",
        data_watermark=(used,),
        created_at=NOON,
    ))  # fmt: skip
    if applied is not None:
        put(bus, topics.WEIGHTS_ACKS, WeightsAck(
            worker_id="w", policy="main", version=version, status=AckStatus.APPLIED,
            occurred_at=at(applied),
        ))  # fmt: skip


def test_time_and_age_are_those_of_the_version_that_learned_of_it(tmp_path: Path) -> None:
    bus = MemoryBus()
    bus.admin().create_topics(list(topics.all_topics()), 1, 1)
    learned(bus, 0, sampled_by=1, received=1.0)
    learned(bus, 1, sampled_by=1, received=2.0)
    learned(bus, 2, sampled_by=3, received=3.0)
    learned(bus, 3, sampled_by=3, received=4.0)  # nobody has learned of it yet
    served(bus, 2, 1, 5.0)
    served(bus, 4, 3, None)  # never applied
    seconds, ages = looked_at(bus, BlobStore(tmp_path.as_uri()), "main")
    assert seconds == (4.0,)
    assert ages == Counter({0: 6, 2: 3})


def test_the_section_holds_shares_and_the_goal(tmp_path: Path) -> None:
    numbers = {"updates": 3, "updates_stopped": 1}
    shown = Shown(Course(), numbers, tmp_path / "curve.png", updates=True)
    fast = {"plain_tokens_per_second": 10.0, "trainer_tokens_per_second": 8.0, "share": 0.8}
    loop = Loop((1.0, 2.0, 3.0), Counter({0: 6, 2: 2}), {"trainer": 2**30, "sink": 5})
    made: Section = section(fast, shown, loop)
    values = {figure.name: figure for figure in made.figures}
    assert values["the trainer's share of the plain step"].is_met is False
    assert values["tokens of 0 versions ago"].value == 75.0
    assert values["tokens of 2 to 3 versions ago"].value == 25.0
    assert values["memory of trainer, the most"].value == 1.0
    assert values["reward received to improved answer served, median"].value == 2.0
