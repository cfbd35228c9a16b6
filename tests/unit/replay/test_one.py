"""One trajectory again: its end comes with it, once, and no other trajectory's does."""

from collections.abc import Mapping

import pytest

from infra import inspection
from infra.replay.one import OneReplayed, ends_of, publish_again
from schemas import topics
from schemas.atdp.types import Coordinates, TrajectoryEnd
from schemas.bus import Delivery, Position, Record
from schemas.bus.memory import MemoryBus, MemoryConsumer
from schemas.codec import encode
from schemas.errors import TransientError
from schemas.ids import trajectory_key
from tests.unit.runtime_harness import START, memory_bus, records_of


def silent(_stage: str, _done: int, _total: int) -> None:
    """Reports nothing."""


def end(event_id: str, trajectory_id: str = "t", tenant_id: str = "acme",
        raw: Coordinates | None = None) -> TrajectoryEnd:  # fmt: skip
    return TrajectoryEnd(event_id=event_id, tenant_id=tenant_id, trajectory_id=trajectory_id,
                         reason="done", occurred_at=START, raw=raw)  # fmt: skip


def send(bus: MemoryBus, topic: str, event: TrajectoryEnd) -> Coordinates:
    """Where the event lies then."""
    reports: list[Delivery] = []
    key = trajectory_key(event.tenant_id, event.trajectory_id)
    bus.producer("test").send(Record(topic, key, encode(event)), reports.append)
    return Coordinates(topic=topic, partition=reports[0].partition, offset=reports[0].offset)


def redact(bus: MemoryBus, event: TrajectoryEnd) -> Coordinates:
    """Send the event and what redaction makes of it; the raw coordinates."""
    raw = send(bus, topics.RAW_EVENTS, event)
    send(bus, topics.ENDS, end(event.event_id, event.trajectory_id, event.tenant_id, raw))
    return raw


def test_every_end_of_the_trajectory_is_found_and_no_other() -> None:
    bus = memory_bus(3)
    wanted = [redact(bus, end("a")), redact(bus, end("b"))]
    redact(bus, end("c", trajectory_id="other"))
    redact(bus, end("d", tenant_id="globex"))
    send(bus, topics.ENDS, end("e"))  # made of nothing that can be published again
    bus.producer("test").send(Record(topics.ENDS, b"acme/t", b"broken"), lambda _: None)
    assert ends_of(bus, bus.admin(), "acme", "t", silent) == wanted
    assert ends_of(bus, bus.admin(), "acme", "never-ended", silent) == []


def test_an_end_is_published_once_however_often_the_trajectory_was_processed_again() -> None:
    bus = memory_bus(2)
    redact(bus, end("a"))
    for _ in range(3):
        newest = redact(bus, end("a"))
        assert ends_of(bus, bus.admin(), "acme", "t", silent) == [newest]


def test_records_are_published_again_as_they_are_and_gone_ones_are_counted() -> None:
    bus = memory_bus(2)
    raw = redact(bus, end("a"))
    wanted = {(raw.partition, raw.offset), (raw.partition, 99)}
    assert publish_again(bus, bus.admin(), wanted, silent) == OneReplayed(1, 1)
    first, second = records_of(bus, topics.RAW_EVENTS)
    assert (first.key, first.value, first.partition) == (second.key, second.value, second.partition)


def test_a_broker_that_falls_silent_is_an_error_and_not_a_trajectory_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(MemoryConsumer):
        def assign(self, positions: Mapping[Position, int]) -> None:
            """Reads nothing."""

    class SilentBus(MemoryBus):
        def consumer(self, *, reads_ahead: bool = True) -> Silent:  # noqa: ARG002 - the port's signature
            return Silent(self)

    monkeypatch.setattr(inspection, "IDLE_SECONDS", 0.01)
    bus = memory_bus()
    redact(bus, end("a"))
    away = SilentBus()
    away.logs = bus.logs
    with pytest.raises(TransientError, match="nothing was published"):
        ends_of(away, away.admin(), "acme", "t", silent)
