"""What a dead process left comes before what comes now; what got no report is sent again."""

import os
import threading
import time
from pathlib import Path

import pytest

from inference.spool import Publisher, Spool
from inference.spool import publisher as publisher_module
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from inference.spool.frames import Kind, with_key
from schemas import topics
from schemas.bus import Delivery, Record
from schemas.bus.api import OnDelivery
from schemas.bus.memory import MemoryBus
from schemas.errors import TransientError
from schemas.settings import RedactionSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from tests.unit.runtime_harness import memory_bus, records_of

#: More than the publisher has under way at a time.
NUM_OLD = 2_500
NUM_NEW = 10
MAX_SECONDS = 30.0


def fill(spool: Spool, key: bytes, numbers: range) -> None:
    for number in numbers:
        spool.begin(Kind.RECORD, number.to_bytes(16, "big"), with_key(key, b"value"))


def publish_all(spool: Spool, root: Path, bus: MemoryBus, number: int) -> None:
    blobs = BlobStore((root / "blobs").absolute().as_uri())
    publisher = Publisher(
        spool, root / "spool", lambda: bus.producer("test"), Assembler(blobs, 900_000), Metrics()
    )
    publisher.start()
    pause = threading.Event()
    for _ in range(int(MAX_SECONDS / 0.05)):
        if len(records_of(bus, topics.RAW_EVENTS)) == number:
            break
        pause.wait(0.05)
    publisher.stop(5.0)


def die(spool: Spool) -> None:
    """As a killed process leaves its spool."""
    spool.close()
    os.close(spool.folder._lock)


def test_what_dead_gateways_took_comes_in_the_order_in_which_they_lived(tmp_path: Path) -> None:
    keys = [b"%02d" % number for number in range(12)]
    for number, key in enumerate(keys):
        dead = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
        fill(dead, key, range(number, number + 1))
        die(dead)
    live = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    fill(live, b"new", range(len(keys), len(keys) + 1))
    bus = memory_bus()
    publish_all(live, tmp_path, bus, len(keys) + 1)
    published = [record.key for record in records_of(bus, topics.RAW_EVENTS)]
    assert published == [*keys, b"new"]


def test_the_calls_of_a_dead_gateway_come_before_those_of_the_next_one(tmp_path: Path) -> None:
    dead = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    fill(dead, b"old", range(NUM_OLD))
    die(dead)
    live = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    fill(live, b"new", range(NUM_OLD, NUM_OLD + NUM_NEW))
    bus = memory_bus()
    publish_all(live, tmp_path, bus, NUM_OLD + NUM_NEW)
    keys = [record.key for record in records_of(bus, topics.RAW_EVENTS)]
    assert keys == [b"old"] * NUM_OLD + [b"new"] * NUM_NEW


class TimingOut:
    """A producer that keeps what it gets while Kafka is away, and then reports the oldest as
    timed out and takes the rest, as librdkafka does when an outage outlasts its time."""

    def __init__(self, num_first: int, num_timed_out: int) -> None:
        self._num_first = num_first
        self._num_timed_out = num_timed_out
        self._kept: list[tuple[Record, OnDelivery]] = []
        self.taken: list[bytes] = []

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        if self._num_first == 0:
            self._take(record, on_delivery)
            return
        self._kept.append((record, on_delivery))
        if len(self._kept) < self._num_first:
            return
        self._num_first = 0
        for index, (kept, report) in enumerate(self._kept):
            if index < self._num_timed_out:
                report(Delivery(kept.topic, error=TransientError("timed out")))
            else:
                self._take(kept, report)

    def _take(self, record: Record, on_delivery: OnDelivery) -> None:
        self.taken.append(record.value or b"")
        on_delivery(Delivery(record.topic, 0, len(self.taken)))

    def flush(self, timeout_seconds: float) -> int:  # noqa: ARG002 - the port's signature
        return 0

    def trouble(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing to close."""


def test_what_timed_out_follows_at_once_and_in_its_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    values = [b"%02d" % number for number in range(20)]
    for number, value in enumerate(values):
        spool.begin(Kind.RECORD, number.to_bytes(16, "big"), with_key(b"key", value))
    producer = TimingOut(num_first=20, num_timed_out=10)
    blobs = BlobStore((tmp_path / "blobs").absolute().as_uri())
    publisher = Publisher(
        spool, tmp_path / "spool", lambda: producer, Assembler(blobs, 900_000), Metrics()
    )
    began = time.monotonic()
    publisher.start()
    pause = threading.Event()
    while len(producer.taken) < len(values) and time.monotonic() < began + MAX_SECONDS:
        pause.wait(0.02)
    # the longest pause is as long as redaction waits for an earlier call
    assert time.monotonic() - began < 3.0
    publisher.stop(5.0)
    assert producer.taken == [*values[10:], *values[:10]]


class Forgetting:
    """A producer that reports everything but the first record."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        self.values.append(record.value or b"")
        if len(self.values) > 1:
            on_delivery(Delivery(record.topic, 0, len(self.values)))

    def flush(self, timeout_seconds: float) -> int:  # noqa: ARG002 - the port's signature
        return 1

    def trouble(self) -> str:
        return "somebody forgets"

    def close(self) -> None:
        """Nothing to close."""


def test_a_record_whose_report_others_come_past_is_sent_again_and_one_in_an_outage_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_REPORT_SECONDS", 0.2)
    monkeypatch.setattr(publisher_module, "_SILENT_SECONDS", 0.2)
    spool = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    producer, pause = Forgetting(), threading.Event()
    blobs = BlobStore((tmp_path / "blobs").absolute().as_uri())
    publisher = Publisher(
        spool, tmp_path / "spool", lambda: producer, Assembler(blobs, 900_000), Metrics()
    )
    publisher.start()
    fill(spool, b"first", range(1))
    began = time.monotonic()
    while publisher.is_delivering is None and time.monotonic() < began + MAX_SECONDS:
        pause.wait(0.05)
    assert publisher.is_delivering is False
    assert publisher.waits_for == "somebody forgets"
    pause.wait(1.0)  # several times as long as a report may take, and nobody gets any
    assert len(producer.values) == 1
    for number in range(1, 1_000):
        fill(spool, b"more", range(number, number + 1))
        if publisher.num_waiting == 0 and number > 1:
            break
        pause.wait(0.05)
    publisher.stop(5.0)
    assert publisher.num_waiting == 0
    assert len(producer.values) == number + 2  # the first one twice, the others once


def test_what_a_dead_process_left_is_found_while_redaction_waits_for_it() -> None:
    assert RedactionSettings().hold_seconds >= publisher_module.ADOPT_SECONDS * 2
