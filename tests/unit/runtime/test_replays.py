"""Which processing this is: the highest epoch of the group, and what was handled before it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from schemas import topics
from schemas.atdp.internal import PartitionOffset, Replay
from schemas.bus import Delivery, Position, Received, Record
from schemas.bus.memory import MemoryBus, MemoryConsumer
from schemas.codec import encode
from schemas.errors import TransientError
from streams.runtime import ReplayMark, read_replay_mark
from tests.unit.runtime_harness import memory_bus

AT = datetime(2026, 1, 1, tzinfo=UTC)


def order(bus: MemoryBus, group: str, epoch: int, offset: int) -> None:
    before = (PartitionOffset(topic=topics.RAW_EVENTS, partition=1, offset=offset),)
    replay = Replay(group=group, epoch=epoch, committed_before=before, started_at=AT)
    record = Record(topics.REPLAYS, group.encode(), encode(replay))
    reports: list[Delivery] = []
    bus.producer("test").send(record, reports.append)


def test_without_a_replay_it_is_the_first_processing() -> None:
    assert read_replay_mark(memory_bus(), topics.SINK) == ReplayMark()


def test_the_highest_epoch_of_the_group_counts() -> None:
    bus = memory_bus()
    order(bus, topics.SINK, 1, 10)
    order(bus, topics.SINK, 2, 20)
    order(bus, topics.REDACTION, 9, 90)
    mark = read_replay_mark(bus, topics.SINK)
    assert (mark.epoch, mark.started_at) == (2, AT)
    assert mark.committed_before == {(topics.RAW_EVENTS, 1): 20}


@pytest.mark.parametrize(
    ("partition", "offset", "expected"), [(1, 19, True), (1, 20, False), (0, 0, False)]
)
def test_records_below_the_offsets_committed_before_are_replayed(
    partition: int, offset: int, expected: bool
) -> None:
    mark = ReplayMark(2, {(topics.RAW_EVENTS, 1): 20})
    record = Received(topics.RAW_EVENTS, partition, offset, b"k", b"v")
    assert mark.is_replayed(record) is expected


def test_a_broker_that_falls_silent_ends_the_reading() -> None:
    class Silent(MemoryConsumer):
        def assign(self, positions: Mapping[Position, int]) -> None:
            super().assign(dict.fromkeys(positions, 1_000))

    class SilentBus(MemoryBus):
        def consumer(self, *, reads_ahead: bool = True) -> MemoryConsumer:  # noqa: ARG002 - the port's signature
            return Silent(self)

    bus = SilentBus()
    bus.logs = memory_bus().logs
    order(bus, topics.SINK, 1, 10)
    with pytest.raises(TransientError, match="stopped answering"):
        read_replay_mark(bus, topics.SINK)
