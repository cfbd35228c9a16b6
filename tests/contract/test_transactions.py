"""One suite over the transactions of every bus: in memory and on a real broker.

librdkafka's mock broker takes transactions but shows readers what is not committed.
"""

import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from functools import partial

import pytest

from schemas.bus import (
    Bus,
    Delivery,
    FencedError,
    Record,
    deliver,
    deliver_now,
    read_to_end,
    transact,
)
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError, PermanentError, TransientError
from schemas.topics import Topic

MAX_RECORD_BYTES = 100_000
_SECONDS = 40.0
_integration = pytest.mark.integration


@dataclass(frozen=True)
class World:
    """A bus, a topic of one partition on it, and a transactional id nobody else has."""

    bus: Bus
    topic: str
    writer: str

    def record(self, value: str) -> Record:
        return Record(self.topic, b"key", value.encode(), (("header", b"1"),), partition=0)

    def seen(self) -> list[str]:
        return [(r.value or b"").decode() for r in read_to_end(self.bus, self.topic, _SECONDS)]


@pytest.fixture(
    params=[
        "memory",
        pytest.param("real", marks=_integration),
        pytest.param("prefixed", marks=_integration),
    ]
)
def world(request: pytest.FixtureRequest) -> World:
    name = f"transactions-{uuid.uuid4()}"
    bus: Bus = MemoryBus(MAX_RECORD_BYTES)
    if request.param != "memory":
        prefix = "team-t." if request.param == "prefixed" else ""
        access = KafkaAccess(request.getfixturevalue("kafka"), prefix=prefix)
        bus = KafkaBus(access, MAX_RECORD_BYTES)
    topic = Topic(name, "test", "key", 1, "delete", 1.0, "test", ())
    assert bus.admin().create_topics([topic], 1, 1) == [name]
    return World(bus, name, name)


def test_committed_records_appear_in_order_and_where_their_reports_say(world: World) -> None:
    writer = world.bus.transactions(world.writer)
    first = transact(writer, [world.record("1"), world.record("2")])
    second = transact(writer, [world.record("3")])
    writer.close()
    found = read_to_end(world.bus, world.topic, _SECONDS)
    assert [r.value for r in found] == [b"1", b"2", b"3"]
    assert [(r.partition, r.offset) for r in found] == [
        (d.partition, d.offset) for d in (*first, *second)
    ]
    assert {(r.key, r.headers) for r in found} == {(b"key", (("header", b"1"),))}


def test_nothing_is_seen_before_the_commit_nor_after_an_abort(world: World) -> None:
    writer = world.bus.transactions(world.writer)
    writer.begin()
    reports: list[Delivery] = []
    writer.send(world.record("never"), reports.append)
    assert world.seen() == []
    writer.abort()
    assert world.seen() == []
    transact(writer, [world.record("after")])
    assert world.seen() == ["after"]
    writer.close()


def test_a_later_writer_ends_the_one_before_and_takes_back_what_it_left_open(world: World) -> None:
    first = world.bus.transactions(world.writer)
    transact(first, [world.record("kept")])
    first.begin()
    first.send(world.record("half"), lambda _: None)
    second = world.bus.transactions(world.writer)
    assert world.seen() == ["kept"]
    with pytest.raises(FencedError, match="Stop this one"):
        first.commit()
    transact(second, [world.record("new")])
    with pytest.raises(FencedError):
        transact(first, [world.record("late")])
    assert world.seen() == ["kept", "new"]
    third = world.bus.transactions(world.writer)
    assert world.seen() == ["kept", "new"]
    for writer in (first, second, third):
        writer.close()


def test_writers_of_other_ids_do_not_disturb_one_another(world: World) -> None:
    one, other = (world.bus.transactions(f"{world.writer}-{i}") for i in (1, 2))
    transact(one, [world.record("one")])
    transact(other, [world.record("other")])
    transact(one, [world.record("one again")])
    assert world.seen() == ["one", "other", "one again"]
    one.close()
    other.close()


def test_a_record_that_is_too_large_takes_the_others_with_it(world: World) -> None:
    writer = world.bus.transactions(world.writer)
    large = Record(world.topic, b"key", bytes(2 * MAX_RECORD_BYTES), partition=0)
    with pytest.raises(PermanentError, match="oversized"):
        transact(writer, [world.record("before"), large])
    transact(writer, [world.record("next")])
    assert world.seen() == ["next"]
    writer.close()


@pytest.mark.parametrize(
    "world", ["memory", pytest.param("real", marks=_integration)], indirect=True
)
def test_a_topic_that_does_not_exist_is_a_configuration_error(world: World) -> None:
    writer = world.bus.transactions(world.writer)
    absent = Record(f"absent-{uuid.uuid4()}", b"key", b"1")
    with pytest.raises(ConfigError, match="does not exist"):
        transact(writer, [world.record("before"), absent])
    assert world.seen() == []
    writer.close()


async def test_plain_records_lie_beside_those_of_transactions(world: World) -> None:
    writer, producer = world.bus.transactions(world.writer), world.bus.producer("plain")
    transact(writer, [world.record("1")])
    await deliver(producer, [world.record("2")])
    transact(writer, [world.record("3")])
    assert world.seen() == ["1", "2", "3"]
    producer.close()
    writer.close()


@pytest.mark.parametrize("compress", [True, False])
def test_records_are_delivered_without_an_event_loop(world: World, compress: bool) -> None:
    producer = world.bus.producer("plain", compress=compress)
    deliveries = deliver_now(producer, [world.record(f"{i}") for i in range(5)], _SECONDS)
    assert [d.offset for d in deliveries] == list(range(5))
    large = Record(world.topic, b"key", bytes(2 * MAX_RECORD_BYTES), partition=0)
    with pytest.raises(PermanentError, match="oversized"):
        deliver_now(producer, [large], _SECONDS)
    assert world.seen() == ["0", "1", "2", "3", "4"]
    producer.close()


def test_values_that_are_compressed_already_are_not_compressed_again() -> None:
    bus = KafkaBus("127.0.0.1:1")
    kinds = {}
    for compress in (True, False):
        producer = bus.producer("plain", compress=compress)
        kinds[compress] = producer._config["compression.type"]
        producer.close()
    assert kinds == {True: "lz4", False: "none"}


def test_the_end_of_an_empty_topic_is_reached_at_once(world: World) -> None:
    assert world.seen() == []


def test_a_consumer_is_at_the_end_until_more_comes(world: World) -> None:
    writer, consumer = world.bus.transactions(world.writer), world.bus.consumer()
    consumer.assign({(world.topic, 0): 0})
    for value in ("1", "2"):
        transact(writer, [world.record(value)])
        found: list[bytes | None] = []
        for _ in range(100):
            found += [r.value for r in consumer.poll(10, 0.2)]
            if found and consumer.at_end():
                break
        assert found == [value.encode()]
        assert consumer.at_end()
    consumer.close()
    writer.close()


@_integration
def test_a_writer_that_was_killed_leaves_nothing_to_see(kafka: str) -> None:
    """The process dies with its transaction open; the next one does not wait for a timeout."""
    name = f"transactions-{uuid.uuid4()}"
    world = World(KafkaBus(kafka), name, name)
    topic = Topic(name, "test", "key", 1, "delete", 1.0, "test", ())
    world.bus.admin().create_topics([topic], 1, 1)
    script = f"""
import os, signal, sys
from schemas.bus import Record
from schemas.bus.kafka import KafkaBus
writer = KafkaBus({kafka!r}).transactions({name!r})
writer.begin()
writer.send(Record({name!r}, b"key", b"half"), print)
writer._producer.flush(10)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert "offset=0, error=None" in done.stdout  # the broker has it, and nobody may read it
    assert world.seen() == []
    writer = world.bus.transactions(name)
    transact(writer, [world.record("whole")])
    assert world.seen() == ["whole"]
    writer.close()


def test_a_broker_that_is_away_is_transient_and_bounded(unused_tcp_port: int) -> None:
    bus = KafkaBus(f"127.0.0.1:{unused_tcp_port}", transaction_seconds=0.5)
    with pytest.raises(TransientError):
        bus.transactions("away")


def test_only_an_open_transaction_takes_records() -> None:
    writer = MemoryBus().transactions("one")
    for misuse in (
        writer.commit,
        writer.abort,
        partial(writer.send, Record("t", None, b""), print),
    ):
        with pytest.raises(RuntimeError):
            misuse()
    writer.begin()
    with pytest.raises(RuntimeError):
        writer.begin()
