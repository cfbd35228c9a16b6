"""An outage of the real broker: the spool says that nothing is taken, and the order stays."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from inference.spool import Publisher, Spool
from inference.spool import publisher as publisher_module
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from inference.spool.frames import Kind, with_key
from schemas import topics
from schemas.bus.api import read_to_end
from schemas.bus.kafka import KafkaBus
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from tests import services
from tests.ports import free_ports

pytestmark = pytest.mark.integration

MAX_SECONDS = 90.0
BETWEEN_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    pause, deadline = threading.Event(), time.monotonic() + MAX_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        meanwhile()
        pause.wait(BETWEEN_SECONDS)


def test_records_keep_their_order_over_an_outage_and_the_spool_says_why_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_SILENT_SECONDS", 3.0)
    ports = free_ports(2)
    values: list[bytes] = []

    def record() -> None:
        values.append(b"%06d" % len(values))
        spool.begin(Kind.RECORD, len(values).to_bytes(16, "big"), with_key(b"key", values[-1]))

    with ExitStack() as outer:
        first = outer.enter_context(ExitStack())
        servers = first.enter_context(services.running_kafka(tmp_path, (ports[0], ports[1])))
        bus = KafkaBus(servers, delivery_timeout_seconds=None)
        bus.admin().create_topics([topics.topic(topics.RAW_EVENTS)], 1, 1)
        spool = Spool(tmp_path / "spool", max_bytes=64 * 1024**2, disk=Disk())
        blobs = BlobStore((tmp_path / "blobs").absolute().as_uri())
        publisher = Publisher(
            spool, tmp_path / "spool", lambda: bus.producer("test"), Assembler(blobs, 900_000),
            Metrics(),
        )  # fmt: skip
        publisher.start()
        outer.callback(publisher.stop, 0.0)
        wait_until(lambda: publisher.is_delivering is True, record)
        first.close()  # Kafka is away
        wait_until(lambda: publisher.is_delivering is False, record)
        assert "Kafka: _" in publisher.waits_for
        assert publisher.num_waiting > 30
        outer.enter_context(services.running_kafka(tmp_path, (ports[0], ports[1])))
        wait_until(lambda: publisher.num_waiting == 0, record)
        assert (publisher.is_delivering, publisher.waits_for) == (True, "")
        found = [one.value for one in read_to_end(bus, topics.RAW_EVENTS)]
    assert found == values[: len(found)]
    assert len(found) > 100
