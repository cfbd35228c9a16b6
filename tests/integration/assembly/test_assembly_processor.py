"""The running processor on a real broker: late, doubled and corrected rewards, shuffles, kills."""

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
from schemas.atdp.internal import Sample, TrajectorySummary
from schemas.atdp.types import RewardStatus, Step
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.clock import to_us
from schemas.codec import decode, encode
from schemas.ids import trajectory_key, uuid7
from schemas.topics import all_topics
from streams.assembly.join import Conclusion, Rules, absorb, conclude
from streams.assembly.policies import policy_named
from streams.assembly.state import Trajectory
from tests.assembly_events import Event, at, end, reward, step
from tests.services import running

pytestmark = pytest.mark.integration

RULES = Rules(policy=policy_named("latest_final/1"), idle_us=60_000_000)
NUM_PARTITIONS = 4
TIMEOUT_SECONDS = 240.0
_TOPICS = {"Step": topics.STEPS, "Reward": topics.REWARDS, "TrajectoryEnd": topics.ENDS}


class Bench:
    """Publishes events and reads what the processor said last of each trajectory."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self._bus = KafkaBus(bootstrap_servers)
        admin = self._bus.admin()
        admin.create_topics(list(all_topics()), NUM_PARTITIONS, 1)
        self._directory = directory
        self.environment = {
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "HEADRACE_KAFKA__NUM_PARTITIONS": str(admin.topics()[topics.STEPS]),
            "HEADRACE_ASSEMBLY__IDLE_SECONDS": "60",
            "HEADRACE_ASSEMBLY__TICK_SECONDS": "0.3",
            "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "0.5",
        }
        self._producer = self._bus.producer("test")
        self._consumer = self._bus.consumer()
        partitions = admin.topics()
        self._consumer.assign(
            {
                (topic, partition): 0
                for topic in (topics.SUMMARIES, topics.SAMPLES)
                for partition in range(partitions[topic])
            }
        )
        admin.close()
        self.summaries: dict[tuple[str, str], TrajectorySummary] = {}
        self.samples: dict[tuple[str, str], list[Sample]] = {}

    @contextmanager
    def processor(self) -> Iterator[Any]:
        """`python -m streams.assembly` for the length of the block; its state is on the broker."""
        with running([sys.executable, "-m", "streams.assembly"], self.log) as process:
            yield process

    @property
    def log(self) -> Path:
        return self._directory / "assembly.log"

    def publish(self, events: Sequence[Event]) -> None:
        """Deliver in this order; order holds per partition and topic only, as in life."""
        asyncio.run(deliver(self._producer, [_record(event) for event in events]))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Read outputs until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            for record in self._consumer.poll(500, 0.2):
                event = decode(record.value)
                where = (event.tenant_id, event.trajectory_id)
                if isinstance(event, Sample):
                    self.samples.setdefault(where, []).append(event)
                else:
                    self.summaries[where] = event

    def says(self, expected: dict[tuple[str, str], Conclusion]) -> bool:
        """True when the newest summary and sample of each trajectory are the expected ones."""
        return all(
            self.summaries.get(where) == conclusion.summary
            and [*map(_anywhere, self.samples.get(where, [])[-1:])]
            == [*map(_anywhere, conclusion.samples)]
            for where, conclusion in expected.items()
        )


def _anywhere(sample: Sample) -> Sample:
    """Where records lie depends on the order in which they came."""
    return replace(sample, step_refs=())


def _record(event: Any) -> Record:
    key = trajectory_key(event.tenant_id, event.trajectory_id)
    return Record(_TOPICS[type(event).__name__], key, encode(event))


@pytest.fixture
def bench(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(kafka, tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def _of(event: Any, tenant: str, trajectory: str) -> Any:
    """The event as one of that trajectory, its ids with it."""
    changes: dict[str, Any] = {"tenant_id": tenant, "trajectory_id": trajectory}
    return replace(event, **changes)


def _expected(events: Sequence[Any]) -> dict[tuple[str, str], Conclusion]:
    known: dict[tuple[str, str], Trajectory] = {}
    for event in events:
        where = (event.tenant_id, event.trajectory_id)
        known[where] = absorb(known.get(where, Trajectory(*where)), event, replayed=False)
    long_after_us = to_us(at(10**6))
    return {where: conclude(t, long_after_us, RULES) for where, t in known.items()}


def _day(seed: int, tenant: str, num_trajectories: int) -> list[Any]:
    """Trajectories with every kind of reward, drawn from the seed and equal for all tenants."""
    drawn = random.Random(seed)
    day: list[Any] = []
    for number in range(num_trajectories):
        name = f"t-{number}"
        num_steps = drawn.randint(1, 6)
        events: list[Any] = [step(index) for index in range(num_steps)]
        first = reward(1, drawn.choice([0.0, 0.5, 1.0]), final=drawn.random() < 0.5)
        events.append(first)
        if drawn.random() < 0.4:
            events.append(replace(first, value=0.25, revision=2, digest="corrected"))
        if drawn.random() < 0.2:
            events.append(replace(first, revision=3, retracted=True, digest="taken back"))
        if drawn.random() < 0.5:
            events.append(reward(2, True, step_id=f"s-{drawn.randrange(num_steps)}"))
        if drawn.random() < 0.3:
            events.append(end(drawn.randint(60, 120)))
        events += drawn.sample(events, len(events) // 3)
        day += [_of(event, tenant, name) for event in events]
    return day


def test_three_shuffles_and_a_kill_end_alike(bench: Bench) -> None:
    tenants = [f"shuffle-{number}-{uuid7()}" for number in range(3)]
    days = [_day(7, tenant, 25) for tenant in tenants]
    for number, day in enumerate(days):
        random.Random(number).shuffle(day)
    expected = {k: v for day in days for k, v in _expected(day).items()}
    half = len(days[1]) // 2
    with bench.processor() as process:
        bench.publish(days[0])
        bench.publish(days[1][:half])
        bench.wait(lambda: any(where[0] == tenants[1] for where in bench.summaries))
        process.kill()
        process.wait()
    bench.publish(days[1][half:])
    with bench.processor():
        bench.publish(days[2])
        bench.wait(lambda: bench.says(expected))
    said = [
        {
            trajectory: (
                replace(bench.summaries[tenant, trajectory], tenant_id=""),
                replace(_anywhere(bench.samples[tenant, trajectory][-1]), tenant_id=""),
            )
            for tenant, trajectory in expected
            if tenant == name
        }
        for name in tenants
    ]
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 25


def test_a_second_worker_shares_the_partitions_and_takes_over(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = f"workers-{uuid7()}"
    day = _day(11, tenant, 30)
    random.Random(1).shuffle(day)
    third = len(day) // 3
    with bench.processor():
        bench.publish(day[:third])
        bench.wait(lambda: bench.says(_expected(day[:third])))
        monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "second"))
        with bench.processor() as second:
            bench.wait((tmp_path / "second/run/streams.assembly.ready").exists)
            bench.publish(day[third : 2 * third])
            bench.wait(lambda: bench.says(_expected(day[: 2 * third])))
            second.kill()
            second.wait()
            bench.publish(day[2 * third :])
            bench.wait(lambda: bench.says(_expected(day)))


def test_rewards_before_and_after_closing_doubled_corrected_and_taken_back(bench: Bench) -> None:
    where = (f"late-{uuid7()}", "t")
    events: list[Any] = []

    def publish(*more: Event) -> None:
        events.extend(_of(event, *where) for event in more)
        bench.publish(events[-len(more) :])
        bench.wait(lambda: bench.says(_expected(events)))

    with bench.processor():
        early = reward(1, 0.5, step_id="s-1")
        publish(early)
        assert bench.summaries[where].num_steps == 0
        assert bench.summaries[where].reward_status is RewardStatus.NONE
        publish(step(0), step(1), step(2))
        assert bench.summaries[where].close_reason == "idle"
        assert bench.summaries[where].reward == 0.5
        assert bench.samples[where][-1].step_ids == ("s-0", "s-1")
        publish(reward(2, 1.0, final=True), early)
        assert bench.summaries[where].reward_status is RewardStatus.FINAL
        assert bench.samples[where][-1].step_ids == ("s-0", "s-1", "s-2")
        num_samples = len(bench.samples[where])
        publish(reward(2, 0.0, final=True, revision=2))
        assert bench.summaries[where].reward_status is RewardStatus.REVISED
        assert len(bench.samples[where]) == num_samples + 1
        publish(reward(2, 0.0, final=True, revision=3, retracted=True))
        assert bench.summaries[where].reward == 0.5
        publish(replace(early, revision=2, retracted=True))
        assert bench.samples[where][-1].reasons == ("reward_retracted",)
        publish(*(event for event in events if isinstance(event, Step)))
        assert bench.samples[where][-1].reasons == ("reward_retracted",)
