"""The lane on a bus in memory: complete under deaths anywhere, each sample in one batch."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.internal import PartitionOffset, Sample
from schemas.atdp.training import Decision, MicroBatch, SampleDecision, SequenceKind
from schemas.atdp.types import Step
from schemas.atdp.weights import WeightsManifest
from schemas.bus import Received, Record, partition_for
from schemas.bus.api import Delivery, OnDelivery
from schemas.bus.memory import MemoryBus, MemoryProducer
from schemas.clock import ManualClock
from schemas.codec import decode, encode
from schemas.errors import TransientError
from schemas.ids import trajectory_key
from schemas.microbatches import read_microbatch
from schemas.settings import BatchingSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from streams.batching import lane as lane_module
from streams.batching.agent import make_desk
from streams.batching.lane import BatchingLane, Readers
from streams.batching.reading import PolicyReader, SentReader, reward_reader, step_reader
from streams.runtime import ReplayMark
from streams.runtime.crashes import MAX_CRASHES, CrashLedger
from tests.training_events import NOON, model_step, retracted, sample_of

NUM_PARTITIONS = 2
SETTINGS = BatchingSettings(batch_sequences=4, max_wait_seconds=1.0)


class Dying(MemoryProducer):
    """Refuses everything after so many records, as a process that is killed does."""

    def __init__(self, bus: MemoryBus, num_left: float) -> None:
        super().__init__(bus)
        self._num_left = num_left

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        if self._num_left <= 0:
            on_delivery(Delivery(record.topic, error=TransientError("killed")))
            return
        self._num_left -= 1
        super().send(record, on_delivery)


class Table:
    """Rows as the changelog has them: what a new process recovers."""

    changelog = topics.changelog_topic(topics.BATCHING, topics.LEARNED_TABLE)

    def __init__(self, bus: MemoryBus) -> None:
        self.rows: dict[str, bytes] = {}
        for log in bus.partitions(self.changelog):
            for record in log.records:
                self.apply((record.key or b"").decode(), record.value)

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def items(self) -> Any:
        return list(self.rows.items())

    def apply(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value


class World:
    """Topics, blobs, a clock, and one process after the other."""

    def __init__(self, directory: Path, settings: BatchingSettings = SETTINGS) -> None:
        self.bus = MemoryBus()
        self.bus.admin().create_topics(list(topics.all_topics()), NUM_PARTITIONS, 1)
        self.producer = self.bus.producer("test")
        self.blobs = BlobStore((directory / "blobs").as_uri())
        self.directory = directory
        self.settings = settings
        self.clock = ManualClock(NOON)
        self.acknowledged: set[tuple[str, int, int]] = set()
        self.start()

    def start(self, num_left: float = float("inf"), mark: ReplayMark | None = None) -> None:
        """A new process that may produce so many records."""
        self.lane = BatchingLane(
            desk=make_desk(self.settings, 0),
            table=Table(self.bus),
            producer=Dying(self.bus, num_left),
            blobs=self.blobs,
            readers=Readers(
                step_reader(self.bus),
                reward_reader(self.bus),
                PolicyReader(self.bus),
                SentReader(self.bus, self.blobs),
            ),
            crashes=CrashLedger(self.directory / "crashes.json"),
            clock=self.clock,
            metrics=Metrics(),
            num_partitions=NUM_PARTITIONS,
            retention_hours=48,
            mark=mark or ReplayMark(),
        )

    def put(self, topic: str, key: bytes, event: Any) -> Delivery:
        found: list[Delivery] = []
        self.producer.send(Record(topic, key, encode(event)), found.append)
        return found[0]

    def trajectory(self, *steps: Step, **fields: Any) -> Sample:
        """Publish steps and the sample of them."""
        key = trajectory_key(steps[0].tenant_id, steps[0].trajectory_id)
        lies = [self.put(topics.STEPS, key, step) for step in steps]
        places = [(delivery.partition, delivery.offset) for delivery in lies]
        return self.publish(sample_of(steps, places=places, **fields))

    def publish(self, sample: Sample) -> Sample:
        self.put(topics.SAMPLES, trajectory_key(sample.tenant_id, sample.trajectory_id), sample)
        return sample

    def manifest(self, version: int, used_up_to: int | None = None) -> None:
        used = () if used_up_to is None else (
            PartitionOffset(topic=topics.MICROBATCHES, partition=0, offset=used_up_to),
        )  # fmt: skip
        self.put(topics.WEIGHTS_VERSIONS, b"main", WeightsManifest(
            policy="main", version=version, epoch=1, root="", codec="", dtype="", sha256="",
            data_watermark=used, created_at=NOON,
        ))  # fmt: skip

    def unacknowledged(self) -> list[Received]:
        """What a new process reads: each partition from its first unacknowledged record."""
        found: list[Received] = []
        for log in self.bus.partitions(topics.SAMPLES):
            waiting = [
                i for i, r in enumerate(log.records)
                if (r.topic, r.partition, r.offset) not in self.acknowledged
            ]  # fmt: skip
            found += log.records[waiting[0] :] if waiting else []
        return found

    def run(self, records: list[Received] | None = None) -> None:
        """One batch of records, by default all that are not acknowledged."""
        given = self.unacknowledged() if records is None else records
        done = asyncio.run(self.lane.process(given))
        self.acknowledged |= {(r.topic, r.partition, r.offset) for r in done}

    def pass_time(self, seconds: float = 2.0) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.run([])

    def events(self, topic: str) -> list[Any]:
        return [r for log in self.bus.partitions(topic) for r in log.records]

    @property
    def batches(self) -> list[MicroBatch]:
        return [read_microbatch(r.value, self.blobs) for r in self.events(topics.MICROBATCHES)]

    @property
    def decisions(self) -> list[SampleDecision]:
        return [decode(r.value) for r in self.events(topics.DECISIONS)]

    def decided(self, sample: Sample) -> list[tuple[Decision, str | None]]:
        return [
            (d.decision, d.decision_reason)
            for d in self.decisions if d.sample_id == sample.sample_id
        ]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def steps_of(number: int, num_steps: int = 1, **fields: Any) -> list[Step]:
    """Steps of a conversation, each of which goes on where the one before it ended."""
    steps, context = [], [1, 2]
    for index in range(num_steps):
        made = model_step(
            f"t-{number}-s{index}", context, [10 + index, 20 + index],
            trajectory_id=f"t-{number}", **fields,
        )  # fmt: skip
        steps.append(made)
        context = [*context, 10 + index, 20 + index, 3]
    return steps


def test_samples_become_a_batch_once_enough_wait_or_time_has_passed(world: World) -> None:
    samples = [world.trajectory(*steps_of(n, 2)) for n in range(5)]
    world.run()
    assert [b.num_sequences for b in world.batches] == [4]
    world.pass_time()
    assert [b.num_sequences for b in world.batches] == [4, 1]
    assert not world.unacknowledged()
    assert {s.sample_id for b in world.batches for s in b.sequences} == {
        s.sample_id for s in samples
    }
    assert all(world.decided(s) == [(Decision.TRAINED, None)] for s in samples)
    sequence = world.batches[0].sequences[0]
    assert sequence.kind is SequenceKind.POLICY_GRADIENT
    assert sequence.token_ids == (1, 2, 10, 20, 3, 11, 21)
    assert [(t.first, t.end, t.turn) for t in sequence.trained] == [(2, 4, 1), (5, 7, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_deaths_anywhere_lose_nothing_and_send_nothing_twice(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    world = World(tmp_path)
    samples = [
        world.trajectory(*steps_of(n, drawn.randint(1, 3)), reward=float(n % 2)) for n in range(12)
    ]
    num_deaths = 0
    while world.unacknowledged():
        dies = num_deaths < 15
        world.start(drawn.randint(0, 9) if dies else float("inf"))
        records = world.unacknowledged()
        try:
            cut = drawn.randint(1, len(records))
            world.run(records[:cut])
            world.run(records[cut:])
            world.pass_time()
        except TransientError:
            num_deaths += 1
    assert num_deaths
    sent = Counter(s.sample_id for b in world.batches for s in b.sequences)
    assert sent == Counter({s.sample_id: 1 for s in samples})
    assert all(world.decided(s)[-1] == (Decision.TRAINED, None) for s in samples)
    said = {d.sample_id: (d.batch_id, d.num_trained_tokens) for d in world.decisions}
    assert said == {
        s.sample_id: (batch.batch_id, sum(span.end - span.first for span in s.trained))
        for batch in world.batches for s in batch.sequences
    }  # fmt: skip


def test_who_floods_waits_while_others_wait_too(world: World) -> None:
    theirs = [world.trajectory(*steps_of(n, tenant_id="flood")) for n in range(6)]
    mine = world.trajectory(*steps_of(9, tenant_id="small"))
    world.run()
    world.pass_time()
    assert [Counter(s.tenant_id for s in b.sequences) for b in world.batches[:1]] == [
        {"flood": 2, "small": 1}
    ]
    assert world.decided(mine) == [(Decision.TRAINED, None)]
    assert {*map(tuple, map(world.decided, theirs))} == {
        ((Decision.TRAINED, None),),
        ((Decision.HELD, "tenant_share"), (Decision.TRAINED, None)),
    }


def test_an_attempt_that_failed_goes_on_in_the_same_process(world: World) -> None:
    sample = world.trajectory(*steps_of(1))
    world.start(num_left=2)  # the mark and the batch; not the decision
    world.run()
    with pytest.raises(TransientError):
        world.pass_time()
    world.lane._producer = world.bus.producer("again")
    world.run()
    assert len(world.batches) == 1
    assert world.decided(sample) == [(Decision.TRAINED, None)]
    assert not world.unacknowledged()


def test_a_copy_of_a_sample_is_not_sent_again(world: World) -> None:
    sample = world.trajectory(*steps_of(1))
    world.publish(sample)
    world.run()
    world.pass_time()
    world.publish(sample)
    world.start()
    world.run()
    world.pass_time()
    assert len(world.batches) == 1
    assert not world.unacknowledged()


def test_a_corrected_reward_is_the_next_revision_and_names_what_it_replaces(world: World) -> None:
    steps = steps_of(1)
    first = world.trajectory(*steps, reward=1.0)
    world.run()
    world.pass_time()
    second = world.publish(sample_of(steps, 0.0, revision=2, places=_places(first)))
    world.run()
    world.pass_time()
    third = world.publish(retracted(second))
    world.run()
    world.pass_time()
    found = [s for b in world.batches for s in b.sequences]
    assert [(s.revision, s.reward, s.replaces, s.replaced_reward) for s in found] == [
        (1, 1.0, None, None), (2, 0.0, first.sample_id, 1.0), (3, None, second.sample_id, 0.0),
    ]  # fmt: skip
    assert found[2].kind is SequenceKind.RETRACTION
    assert not found[2].token_ids
    assert world.decided(third) == [(Decision.DROPPED, "reward_retracted")]


def test_a_correction_of_a_sample_that_still_waits_takes_its_place(world: World) -> None:
    steps = steps_of(1)
    first = world.trajectory(*steps, reward=1.0)
    second = world.publish(sample_of(steps, 0.0, revision=2, places=_places(first)))
    world.run()
    world.pass_time()
    assert world.decided(first) == [(Decision.DROPPED, "superseded")]
    [sequence] = world.batches[0].sequences
    assert (sequence.sample_id, sequence.revision) == (second.sample_id, 1)
    assert sequence.replaces is None


def _places(sample: Sample) -> list[tuple[int, int]]:
    return [(ref.partition, ref.offset) for ref in sample.step_refs]


def test_steps_that_retention_deleted_drop_the_sample(world: World) -> None:
    sample = world.trajectory(*steps_of(1, 2))
    key = trajectory_key(sample.tenant_id, sample.trajectory_id)
    log = world.bus.partitions(topics.STEPS)[partition_for(key, NUM_PARTITIONS)]
    log.records, log.first = log.records[1:], 1
    world.run()
    assert world.decided(sample) == [(Decision.DROPPED, "steps_expired")]
    assert not world.unacknowledged()


def test_steps_of_another_tenant_are_never_read_for_a_sample(world: World) -> None:
    theirs = world.trajectory(*steps_of(1))
    mine = [replace(step, tenant_id="other") for step in steps_of(1)]
    forged = world.publish(sample_of(mine, places=_places(theirs)))
    world.run()
    assert world.decided(forged) == [(Decision.DROPPED, "steps_expired")]


def test_no_more_than_the_budget_is_ahead_of_the_trainer(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS.model_copy(update={"max_tokens_ahead": 19, "max_waiting": 6}))
    samples = [world.trajectory(*steps_of(n)) for n in range(9)]
    world.run(world.unacknowledged()[:9])
    world.pass_time()
    assert [b.num_tokens for b in world.batches] == [16]
    held = [s for s in samples if (Decision.HELD, "budget") in world.decided(s)]
    assert len(held) == 5
    world.manifest(2, used_up_to=1)
    world.pass_time()
    assert [b.num_tokens for b in world.batches] == [16, 16]
    world.manifest(3, used_up_to=2)
    world.pass_time()
    assert not world.unacknowledged()


def test_samples_older_than_the_bound_are_dropped_when_they_would_go_out(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS.model_copy(update={"max_staleness": 1}))
    world.manifest(1)
    old = world.trajectory(*steps_of(1, version=1))
    new = world.trajectory(*steps_of(2, version=2))
    world.run()
    world.manifest(3)
    world.pass_time()
    assert world.decided(old) == [(Decision.DROPPED, "stale")]
    assert world.decided(new) == [(Decision.TRAINED, None)]
    assert world.batches[0].policy_version == 3


def test_a_large_batch_is_a_claim_check(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS.model_copy(update={"max_sample_tokens": 10**6}))
    step = model_step("long", range(200_000), [5, 6], trajectory_id="t-long")
    world.trajectory(step)
    world.run()
    world.pass_time()
    [record] = world.events(topics.MICROBATCHES)
    assert len(record.value) < 10_000
    assert decode(record.value).sequences == ()
    assert len(world.batches[0].sequences[0].token_ids) == 200_002
    world.start()  # also after a restart the claim is followed
    world.run([])


def test_what_is_no_sample_becomes_a_dead_letter(world: World) -> None:
    world.put(topics.SAMPLES, b"k", model_step("s", [1], [2]))
    world.run()
    [letter] = world.events(topics.dead_letter_topic(topics.SAMPLES))
    assert decode(letter.value).reason == "unexpected_event"
    assert not world.unacknowledged()


def test_a_replay_of_this_group_trains_nothing_again(world: World) -> None:
    sample = world.trajectory(*steps_of(1))
    [record] = world.unacknowledged()
    world.start(mark=ReplayMark(1, {(record.topic, record.partition): record.offset + 1}))
    world.run()
    world.pass_time()
    assert world.batches == []
    assert world.decided(sample) == [(Decision.DROPPED, "replayed")]


def test_memories_end_with_the_retention(world: World) -> None:
    sample = world.trajectory(*steps_of(1))
    world.run()
    world.pass_time()
    key = trajectory_key(sample.tenant_id, sample.trajectory_id).decode()
    assert key in Table(world.bus).rows
    world.clock.advance(timedelta(hours=49))
    world.trajectory(*steps_of(2))
    world.run()
    assert key not in Table(world.bus).rows


def test_a_record_whose_reading_is_a_bug_is_set_aside_after_three_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.trajectory(*steps_of(1))

    def broken(_value: bytes | None) -> None:
        raise RecursionError

    monkeypatch.setattr(lane_module, "decode", broken)
    for _ in range(MAX_CRASHES):
        with pytest.raises(RecursionError):
            world.run()
        world.start()
    world.run()
    (letter,) = world.events(topics.dead_letter_topic(topics.SAMPLES))
    assert decode(letter.value).reason == "bug"
    assert world.unacknowledged() == []
