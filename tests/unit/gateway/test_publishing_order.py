"""What a dead process left is published before what comes now."""

import os
import threading
from pathlib import Path

from inference.spool import Publisher, Spool
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from inference.spool.frames import Kind, with_key
from schemas import topics
from schemas.bus.memory import MemoryBus
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


def publish_all(spool: Spool, root: Path, bus: MemoryBus) -> None:
    blobs = BlobStore((root / "blobs").absolute().as_uri())
    publisher = Publisher(
        spool, root / "spool", lambda: bus.producer("test"), Assembler(blobs, 900_000), Metrics()
    )
    publisher.start()
    pause = threading.Event()
    for _ in range(int(MAX_SECONDS / 0.05)):
        if len(records_of(bus, topics.RAW_EVENTS)) == NUM_OLD + NUM_NEW:
            break
        pause.wait(0.05)
    publisher.stop(5.0)


def test_the_calls_of_a_dead_gateway_come_before_those_of_the_next_one(tmp_path: Path) -> None:
    dead = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    fill(dead, b"old", range(NUM_OLD))
    dead.close()
    os.close(dead.folder._lock)  # as a killed process leaves it
    live = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
    fill(live, b"new", range(NUM_OLD, NUM_OLD + NUM_NEW))
    bus = memory_bus()
    publish_all(live, tmp_path, bus)
    keys = [record.key for record in records_of(bus, topics.RAW_EVENTS)]
    assert keys == [b"old"] * NUM_OLD + [b"new"] * NUM_NEW
