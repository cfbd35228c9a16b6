"""The real shell on a real broker: kills, rebalances, poison, a broker that restarts."""

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.internal import DeadLetter
from schemas.bus import Received, Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.codec import decode
from tests import services
from tests.integration.runtime import counting_processor as program
from tests.ports import free_ports

pytestmark = pytest.mark.integration

NUM_PARTITIONS = 4
KEYS = [f"key-{i}" for i in range(12)]
TIMEOUT_SECONDS = 240.0
RAW_PARTITION = 0


class Bench:
    """Topics of its own, one group, and what came out so far."""

    def __init__(
        self, bootstrap_servers: str, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.group = f"test.{uuid.uuid4().hex}"
        self.topic = f"{self.group}.in"
        self.log = directory / "processor.log"
        self._monkeypatch = monkeypatch
        self._bus = bus = KafkaBus(bootstrap_servers)
        admin = bus.admin()
        self._output, self._dead = program.output_topic(self.topic), f"dead.{self.topic}"
        changelog = topics.changelog_topic(self.group, program.TABLE)
        made = [_topic(self.topic, NUM_PARTITIONS), _topic(changelog, NUM_PARTITIONS)]
        made += [_topic(self._output, 1), _topic(self._dead, 1), topics.topic(topics.REPLAYS)]
        admin.create_topics(made, NUM_PARTITIONS, 1)
        admin.close()
        for name, value in {
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "HEADRACE_KAFKA__NUM_PARTITIONS": str(NUM_PARTITIONS),
            program.GROUP: self.group,
            program.TOPIC: self.topic,
        }.items():
            monkeypatch.setenv(name, value)
        self._producer = bus.producer("test")
        self._consumer = bus.consumer()
        self._consumer.assign({(self._output, 0): 0, (self._dead, 0): 0})
        self._sent: dict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, set[str]] = defaultdict(set)
        self._next = 0
        self.letters: list[Received] = []

    @contextmanager
    def worker(self, kill_before_send: int = 0) -> Iterator[subprocess.Popen[bytes]]:
        self._monkeypatch.setenv(program.KILL_BEFORE_SEND, str(kill_before_send))
        command = [sys.executable, "-m", program.__name__]
        with services.running(command, self.log) as process:
            yield process

    def publish(self, num_records: int) -> None:
        records = []
        for _ in range(num_records):
            self._next += 1
            key = KEYS[self._next % len(KEYS)]
            self.expect(key, str(self._next))
            records.append(Record(self.topic, key.encode(), str(self._next).encode()))
        asyncio.run(deliver(self._producer, records))

    def num_members(self) -> int:
        admin = self._bus.admin()
        try:
            return admin.num_members(self.group)
        finally:
            admin.close()

    def publish_raw(self, *values: bytes) -> list[int]:
        """Records with the key `raw`, which share a partition; returns their offsets."""
        records = [Record(self.topic, b"raw", v, partition=RAW_PARTITION) for v in values]
        return [d.offset for d in asyncio.run(deliver(self._producer, records))]

    def committed(self) -> dict[int, int]:
        """Partition → committed offset."""
        admin = self._bus.admin()
        try:
            return {p: at for (_, p), at in admin.committed(self.group, [self.topic]).items()}
        finally:
            admin.close()

    def wait(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{self.missing()}\n{self._tail()}"
            for record in self._consumer.poll(500, 0.2):
                self._read(record)

    def _read(self, record: Received) -> None:
        if record.topic == self._dead:
            self.letters.append(record)
            return
        key, said = (record.key or b"").decode(), set((record.value or b"").decode().split(","))
        # The newest output of a key holds everything that its state held.
        self._seen[key] = said

    def complete(self) -> bool:
        """The last word on every key names every number sent: no record, no state was lost."""
        return all(self._seen[key] == sent for key, sent in self._sent.items())

    def missing(self) -> dict[str, set[str]]:
        left = {key: sent - self._seen[key] for key, sent in self._sent.items()}
        return {key: numbers for key, numbers in left.items() if numbers}

    def expect(self, key: str, *numbers: str) -> None:
        self._sent[key].update(numbers)

    def _tail(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else "no log"


def _topic(name: str, partitions: int) -> topics.Topic:
    return topics.Topic(name, "test", "key", partitions, "delete", 24.0, "test", ())


@pytest.fixture
def bench(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(kafka, tmp_path, monkeypatch)


MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 13)]


@pytest.mark.parametrize("seed", [1, 2, *MORE_SEEDS])
def test_killed_at_any_send_nothing_is_lost(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # a named worker takes its partitions back; one without a name waits for them
        monkeypatch.setenv("HEADRACE_WORKER_NAME", "only")
    random_numbers = random.Random(seed)
    for _ in range(3):
        # More new records than sends until the kill, whatever was committed before.
        bench.publish(40)
        with bench.worker(kill_before_send=random_numbers.randint(1, 30)) as process:
            assert process.wait(TIMEOUT_SECONDS) == -9, bench.log.read_text()[-3000:]
    with bench.worker():
        bench.wait(bench.complete)
    assert bench.letters == []


def test_workers_come_and_go_and_nothing_is_lost(bench: Bench) -> None:
    with bench.worker() as first:
        bench.publish(40)
        bench.wait(bench.complete)
        with bench.worker() as second:
            for _ in range(6):  # the group rebalances while records flow
                bench.publish(30)
                bench.wait(bench.complete)
            assert first.poll() is None
            assert second.poll() is None
        bench.publish(40)
        bench.wait(bench.complete)
    assert bench.letters == []


def test_a_named_worker_that_stops_leaves_its_group(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_WORKER_NAME", "first")
    with bench.worker():
        bench.publish(40)
        bench.wait(bench.complete)
    assert bench.num_members() == 0
    monkeypatch.setenv("HEADRACE_WORKER_NAME", "second")
    with bench.worker():
        bench.publish(40)
        bench.wait(bench.complete)


def test_poison_is_set_aside_and_the_next_records_are_processed(bench: Bench) -> None:
    with bench.worker() as process:
        bench.publish_raw(b"\x00garbage", b"\xff", b"")
        bench.publish(20)
        bench.wait(lambda: bench.complete() and len(bench.letters) == 3)
        assert process.poll() is None
    letters: list[DeadLetter] = [decode(letter.value) for letter in bench.letters]
    assert {letter.reason for letter in letters} == {"undecodable"}
    assert sorted(letter.source.offset for letter in letters) == [0, 1, 2]
    assert {letter.source.topic for letter in letters} == {bench.topic}
    assert all(b"garbage" not in (letter.value or b"") for letter in bench.letters)


def test_a_kill_during_a_hold_loses_neither_what_is_held_nor_what_lies_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_WORKER_NAME", "only")
    bench.expect("raw", "1", "2", "3")
    with bench.worker() as process:
        (_, held, *_) = bench.publish_raw(b"1", b"2<9", b"3")
        bench.publish(40)
        bench.wait(lambda: bench.missing() == {"raw": {"2"}} and len(bench.committed()) > 1)
        assert bench.committed()[RAW_PARTITION] <= held
        process.kill()
        process.wait()
    assert bench.committed()[RAW_PARTITION] <= held
    bench.expect("raw", "9")
    with bench.worker():
        bench.publish_raw(b"9")
        bench.wait(bench.complete)
    assert bench.letters == []


def test_a_bug_stops_the_process_three_times_and_is_set_aside_then(bench: Bench) -> None:
    bench.publish_raw(b"bug")
    bench.publish(20)
    for _ in range(3):
        with bench.worker() as process:
            assert process.wait(TIMEOUT_SECONDS) == 1, bench.log.read_text()[-3000:]
    with bench.worker():
        bench.wait(lambda: bench.complete() and bench.letters)
    assert [decode(letter.value).reason for letter in bench.letters] == ["bug"]
    assert bench.log.read_text().count("stopped_by_bug") == 3


def test_a_broker_that_restarts_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, controller_port = free_ports(2)
    with ExitStack() as until_the_end:
        with services.running_kafka(tmp_path, (port, controller_port)) as bootstrap_servers:
            bench = Bench(bootstrap_servers, tmp_path, monkeypatch)
            process = until_the_end.enter_context(bench.worker())
            bench.publish(40)
            bench.wait(bench.complete)
        with services.running_kafka(tmp_path, (port, controller_port)):
            bench.publish(40)
            bench.wait(bench.complete)
            assert process.poll() is None, bench.log.read_text()[-3000:]
            until_the_end.close()
