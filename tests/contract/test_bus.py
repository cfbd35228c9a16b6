"""One suite over every bus: in memory, librdkafka's mock broker, a real broker."""

import asyncio
import ctypes
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer

from schemas.bus import Bus, Delivery, Received, Record, deliver, partition_for
from schemas.bus.access import KafkaAccess
from schemas.bus.api import MAX_SILENT_SECONDS, OnDelivery
from schemas.bus.kafka import KafkaBus, KafkaProducer
from schemas.bus.memory import MemoryBus, MemoryProducer
from schemas.errors import ConfigError, PermanentError, Reason, TransientError
from schemas.topics import Topic

NUM_PARTITIONS = 4
MAX_RECORD_BYTES = 100_000
_SECONDS = 20.0
_integration = pytest.mark.integration


@dataclass(frozen=True)
class World:
    """A bus under test. The mock broker makes topics itself and takes no administration."""

    bus: Bus
    bootstrap_servers: str | None
    administers: bool

    def new_topic(self) -> str:
        name = f"contract-{uuid.uuid4()}"
        if self.administers:
            topic = Topic(name, "test", "key", None, "delete", 1.0, "test", ())
            assert self.bus.admin().create_topics([topic], NUM_PARTITIONS, 1) == [name]
        else:
            # Asking the mock broker about a topic makes it.
            producer = RdProducer({"bootstrap.servers": self.bootstrap_servers})
            producer.list_topics(name, timeout=_SECONDS)
        return name


@pytest.fixture(scope="module")
def mock_servers() -> Iterator[str]:
    """librdkafka's mock cluster: it lives inside this producer."""
    home = RdProducer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = home.list_topics(timeout=_SECONDS).brokers
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    home.flush(1)


@pytest.fixture(params=["memory", "mock", pytest.param("real", marks=_integration)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return World(MemoryBus(MAX_RECORD_BYTES), None, administers=True)
    fixture = "mock_servers" if request.param == "mock" else "kafka"
    servers = request.getfixturevalue(fixture)
    return World(KafkaBus(servers, MAX_RECORD_BYTES), servers, request.param == "real")


@pytest.fixture(
    params=[
        "memory",
        pytest.param("real", marks=_integration),
        pytest.param("prefixed", marks=_integration),
    ]
)
def administered(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return World(MemoryBus(MAX_RECORD_BYTES), None, administers=True)
    servers = request.getfixturevalue("kafka")
    prefix = "team-a." if request.param == "prefixed" else ""
    access = KafkaAccess(servers, prefix=prefix)
    return World(KafkaBus(access, MAX_RECORD_BYTES), servers, administers=True)


async def produce(bus: Bus, records: list[Record]) -> list[Delivery]:
    producer = bus.producer("contract")
    try:
        return await asyncio.wait_for(deliver(producer, records), _SECONDS)
    finally:
        producer.close()


def consume(
    bus: Bus, start: dict[tuple[str, int], int], num_records: int, *, reads_ahead: bool = True
) -> list[Received]:
    """Poll until so many records came; fails when they do not come in time."""
    consumer = bus.consumer(reads_ahead=reads_ahead)
    consumer.assign(start)
    found: list[Received] = []
    deadline = time.monotonic() + _SECONDS
    try:
        while len(found) < num_records:
            assert time.monotonic() < deadline, f"only {len(found)} of {num_records} records came"
            found += consumer.poll(100, 0.5)
    finally:
        consumer.close()
    return found


def from_start(topic: str) -> dict[tuple[str, int], int]:
    return {(topic, partition): 0 for partition in range(NUM_PARTITIONS)}


async def test_records_of_a_key_keep_their_order_and_every_part_of_them(world: World) -> None:
    topic = world.new_topic()
    headers = (("content-type", b"application/avro"), ("twice", b"1"), ("twice", b"2"))
    sent = [
        Record(topic, f"key-{i % 5}".encode(), f"{i}".encode(), headers if i == 0 else ())
        for i in range(100)
    ]
    await produce(world.bus, sent)
    found = consume(world.bus, from_start(topic), len(sent))
    for key in {record.key for record in sent}:
        assert [r.value for r in found if r.key == key] == [r.value for r in sent if r.key == key]
        assert len({r.partition for r in found if r.key == key}) == 1
    assert [r.headers for r in found if r.value == b"0"] == [headers]
    now_ms = time.time() * 1000
    assert all(abs(r.timestamp_ms - now_ms) < 600_000 for r in found)


async def test_reading_one_by_one_gives_the_same_records(world: World) -> None:
    topic = world.new_topic()
    large = [b"%d" % i + b"x" * size for i, size in enumerate((10, 50_000, 3, 90_000, 2_000))]
    await produce(world.bus, [Record(topic, b"key", value) for value in large])
    found = consume(world.bus, from_start(topic), len(large), reads_ahead=False)
    assert [record.value for record in found] == large


async def test_reports_name_the_coordinates_at_which_the_record_lies(world: World) -> None:
    topic = world.new_topic()
    sent = [Record(topic, f"{i}".encode(), f"value {i}".encode()) for i in range(20)]
    reports = await produce(world.bus, sent)
    at = {(r.partition, r.offset): r.value for r in consume(world.bus, from_start(topic), 20)}
    assert [at[report.partition, report.offset] for report in reports] == [r.value for r in sent]


async def test_a_tombstone_and_an_empty_value_stay_apart(world: World) -> None:
    topic = world.new_topic()
    await produce(world.bus, [Record(topic, b"k", None), Record(topic, b"k", b"")])
    assert [r.value for r in consume(world.bus, from_start(topic), 2)] == [None, b""]


async def test_keys_go_where_partition_for_says(world: World) -> None:
    topic = world.new_topic()
    keys = [f"tenant/{i}".encode() for i in range(200)] + [b"", b"\x00\xff", "ключ".encode()]
    reports = await produce(world.bus, [Record(topic, key, b"") for key in keys])
    expected = [partition_for(key, NUM_PARTITIONS) for key in keys]
    # An empty key counts as no key in librdkafka: any partition will do.
    pairs = zip(keys, expected, [r.partition for r in reports], strict=True)
    assert all(wanted == found for key, wanted, found in pairs if key)


async def test_a_partition_given_wins_over_the_key(world: World) -> None:
    topic = world.new_topic()
    sent = [Record(topic, b"same", b"", partition=p) for p in range(NUM_PARTITIONS)]
    assert [r.partition for r in await produce(world.bus, sent)] == list(range(NUM_PARTITIONS))


async def test_a_consumer_starts_where_it_is_told(world: World) -> None:
    topic = world.new_topic()
    await produce(world.bus, [Record(topic, None, f"{i}".encode(), partition=1) for i in range(10)])
    found = consume(world.bus, {(topic, 1): 7}, 3)
    assert [(r.offset, r.value) for r in found] == [(7, b"7"), (8, b"8"), (9, b"9")]


async def test_a_record_that_is_too_large_is_a_permanent_error(world: World) -> None:
    topic = world.new_topic()
    large = Record(topic, b"k", bytes(MAX_RECORD_BYTES * 2))
    with pytest.raises(PermanentError, match="oversized"):
        await produce(world.bus, [large])
    await produce(world.bus, [Record(topic, b"k", b"next")])
    assert [r.value for r in consume(world.bus, from_start(topic), 1)] == [b"next"]


@pytest.mark.parametrize(
    "administered", ["memory", pytest.param("real", marks=_integration)], indirect=True
)
async def test_an_unknown_topic_is_a_configuration_error(administered: World) -> None:
    topic = administered.new_topic()
    absent = f"absent-{uuid.uuid4()}"
    records = [Record(topic, b"k", b"1"), Record(absent, b"k", b"2"), Record(topic, b"k", b"3")]
    with pytest.raises(ConfigError, match="headrace up"):
        await produce(administered.bus, records)


async def test_the_first_error_is_raised_once_every_report_is_in() -> None:
    errors = [None, TransientError("first"), None, PermanentError(Reason.OVERSIZED)]
    reported = []

    class Reporting(MemoryProducer):
        def send(self, record: Record, on_delivery: OnDelivery) -> None:
            reported.append(record)
            on_delivery(Delivery(record.topic, error=errors[int(record.value or b"")]))

    records = [Record("t", None, f"{i}".encode()) for i in range(4)]
    with pytest.raises(TransientError, match="first"):
        await deliver(Reporting(MemoryBus()), records)
    assert reported == records


@pytest.mark.parametrize("keeps", ["reports", "room"])
async def test_a_producer_that_never_answers_is_not_waited_for_for_ever(keeps: str) -> None:
    """By its port a producer reports in time; one whose thread died does not."""

    class Silent(MemoryProducer):
        num_sent = 0

        def send(self, record: Record, on_delivery: OnDelivery) -> None:  # noqa: ARG002 - the port
            if keeps == "room" and self.num_sent == 1:
                raise TransientError("full", retry_after_seconds=0.1)
            self.num_sent += 1

    records = [Record("t", None, b"1"), Record("t", None, b"2")]
    waiting = deliver(Silent(MemoryBus()), records, max_silent_seconds=0.2)
    with pytest.raises(TransientError, match="in time"):
        await asyncio.wait_for(waiting, _SECONDS)


def test_a_producer_on_kafka_reports_before_anybody_gives_it_up(unused_tcp_port: int) -> None:
    producer = KafkaBus(f"127.0.0.1:{unused_tcp_port}").producer("away")
    assert producer._config["delivery.timeout.ms"] / 1000 < MAX_SILENT_SECONDS
    producer.close()


def test_a_fatal_error_builds_a_new_producer_and_reports_what_was_in_flight() -> None:
    """librdkafka offers to raise a fatal error on purpose; Python does not, hence ctypes."""
    mock = {"test.mock.num.brokers": 1, "log_level": 0}
    producer = KafkaProducer(KafkaAccess("mock"), mock, "fatal")
    reports: list[Delivery] = []
    record = Record("contract-fatal", b"k", b"v")
    producer.send(record, reports.append)
    assert producer.flush(_SECONDS) == 0
    ended = producer._producer
    producer.send(record, reports.append)
    raise_fatal_error(ended)
    deadline = time.monotonic() + _SECONDS
    while producer._producer is ended:
        assert time.monotonic() < deadline, "no new producer was built"
        threading.Event().wait(0.01)
    assert reports[0].error is None
    assert len(reports) == 2  # whether the second arrived or not, its owner is told
    producer.send(record, reports.append)
    assert producer.flush(_SECONDS) == 0
    assert reports[2].error is None
    producer.close()


def raise_fatal_error(producer: RdProducer) -> None:
    paths = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    library = ctypes.CDLL(next(path for path in paths if "librdkafka" in path))
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    handle = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value
    out_of_order_sequence = 45
    assert library.rd_kafka_test_fatal_error(handle, out_of_order_sequence, b"on purpose") == 0


async def test_nothing_to_deliver_is_delivered() -> None:
    assert await deliver(MemoryBus().producer("contract"), []) == []


def test_creating_twice_is_harmless_and_deleting_ends_it(administered: World) -> None:
    admin = administered.bus.admin()
    name = administered.new_topic()
    topic = Topic(name, "test", "key", None, "delete", 1.0, "test", ())
    assert admin.create_topics([topic], NUM_PARTITIONS, 1) == []
    assert admin.topics()[name] == NUM_PARTITIONS
    fixed = Topic(f"{name}-one", "test", "key", 1, "compact", 0, "test", ())
    assert admin.create_topics([topic, fixed], NUM_PARTITIONS, 1) == [fixed.name]
    assert admin.topics()[fixed.name] == 1
    admin.delete_topics([name, f"absent-{name}", fixed.name])
    assert name not in admin.topics()
    admin.close()


async def test_watermarks_and_offsets_by_time(administered: World) -> None:
    admin, topic = administered.bus.admin(), administered.new_topic()
    before = datetime.now(UTC) - timedelta(minutes=5)
    await produce(administered.bus, [Record(topic, None, b"x", partition=2) for _ in range(3)])
    assert admin.watermarks(topic) == {0: (0, 0), 1: (0, 0), 2: (0, 3), 3: (0, 0)}
    assert admin.offsets_at(topic, before) == {0: 0, 1: 0, 2: 0, 3: 0}
    later = datetime.now(UTC) + timedelta(minutes=5)
    assert admin.offsets_at(topic, later) == {0: 0, 1: 0, 2: 3, 3: 0}
    other = administered.new_topic()
    extents = admin.extents([topic, f"absent-{topic}", other])
    assert extents == {
        **{(topic, p): ends for p, ends in admin.watermarks(topic).items()},
        **{(other, p): (0, 0) for p in range(NUM_PARTITIONS)},
    }
    assert admin.extents([]) == {}
    with pytest.raises(ConfigError, match="does not exist"):
        admin.watermarks(f"absent-{topic}")


@_integration
async def test_deployments_with_prefixes_share_a_cluster_and_nothing_else(kafka: str) -> None:
    ours = World(KafkaBus(KafkaAccess(kafka, prefix="team-b.")), kafka, administers=True)
    topic = ours.new_topic()
    theirs = KafkaBus(KafkaAccess(kafka, prefix="team-c."))
    await produce(ours.bus, [Record(topic, b"k", b"v", partition=1)])
    assert [r.topic for r in consume(ours.bus, {(topic, 1): 0}, 1)] == [topic]
    ours.bus.admin().commit("group", {(topic, 1): 1})
    assert ours.bus.admin().committed("group", [topic]) == {(topic, 1): 1}
    assert topic not in theirs.admin().topics()
    assert theirs.admin().committed("group", [topic]) == {}
    with pytest.raises(ConfigError, match="does not exist"):
        theirs.admin().watermarks(topic)
    whole = KafkaBus(kafka).admin()
    assert f"team-b.{topic}" in whole.topics()
    assert whole.committed("team-b.group", [f"team-b.{topic}"]) == {(f"team-b.{topic}", 1): 1}


def test_a_group_without_members_can_be_committed_for(administered: World) -> None:
    admin, topic = administered.bus.admin(), administered.new_topic()
    group = f"group-{topic}"
    assert admin.committed(group, [topic]) == {}
    assert admin.num_members(group) == 0
    admin.commit(group, {(topic, 0): 5, (topic, 3): 7})
    admin.commit(group, {(topic, 3): 1})
    assert admin.committed(group, [topic]) == {(topic, 0): 5, (topic, 3): 1}
    assert admin.committed(group, ["another-topic"]) == {}
    assert admin.num_members(group) == 0


@_integration
def test_a_group_with_members_refuses_a_commit(kafka: str) -> None:
    world = World(KafkaBus(kafka), kafka, administers=True)
    admin, topic = world.bus.admin(), world.new_topic()
    group = f"group-{topic}"
    member = RdConsumer({"bootstrap.servers": kafka, "group.id": group})
    member.subscribe([topic])
    deadline = time.monotonic() + 60
    while not member.assignment():
        assert time.monotonic() < deadline
        member.poll(0.1)
    assert admin.num_members(group) == 1
    with pytest.raises(TransientError):
        admin.commit(group, {(topic, 0): 1})
    member.close()
    assert admin.num_members(group) == 0


def test_librdkafka_aiokafka_and_we_choose_the_same_partition() -> None:
    from aiokafka.partitioner import DefaultPartitioner

    keys = [f"tenant/{i}-\u00e9".encode() for i in range(500)]
    for count in (1, 3, 4, 12):
        partitions = list(range(count))
        choose = DefaultPartitioner()
        assert [choose(key, partitions, partitions) for key in keys] == [
            partition_for(key, count) for key in keys
        ]


def test_a_broker_that_is_away_is_transient_bounded_and_silent(unused_tcp_port: int) -> None:
    """In a process of its own: librdkafka writes to the file descriptor, past Python's stderr."""
    script = f"""
import asyncio, time
from datetime import UTC, datetime
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.errors import TransientError

bus = KafkaBus("127.0.0.1:{unused_tcp_port}", delivery_timeout_seconds=1.5, request_seconds=1.0)
admin, producer, consumer = bus.admin(), bus.producer("away"), bus.consumer()

def refused(call):
    started = time.monotonic()
    try:
        call()
    except TransientError:
        return time.monotonic() - started < 10
    return False

print(refused(lambda: asyncio.run(deliver(producer, [Record("t", b"k", b"v")]))))
print(refused(admin.topics))
print(refused(lambda: admin.committed("g", ["t"])))
print(refused(lambda: admin.num_members("g")))
print(refused(lambda: admin.commit("g", {{("t", 0): 1}})))
consumer.assign({{("t", 0): 0}})
print(consumer.poll(10, 0.5) == [])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.split() == ["True"] * 6, done.stdout + done.stderr
    assert done.stderr == ""
