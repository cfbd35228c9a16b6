"""Which processing of a group this is, and what it handled before.

A replay is ordered by a `Replay` record. Outputs carry its epoch, so the tables can tell the
newest; outputs of records below the offsets committed before it are marked as made again.
"""

from dataclasses import dataclass, field
from datetime import datetime

from schemas import topics
from schemas.atdp.internal import Replay
from schemas.atdp.types import Coordinates
from schemas.bus import Bus, Received
from schemas.bus.api import Position
from schemas.codec import decode
from schemas.errors import TransientError

_POLL_SECONDS = 1.0
#: Polls in a row without a record before the broker counts as gone.
MAX_SILENT_POLLS = 30


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """The epoch of a group and the offsets it had committed before."""

    epoch: int = 0
    committed_before: dict[Position, int] = field(default_factory=dict)
    started_at: datetime | None = None

    def is_replayed(self, record: Received | Coordinates) -> bool:
        """True when an earlier processing had handled this record."""
        return record.offset < self.committed_before.get((record.topic, record.partition), 0)


def read_replay_mark(bus: Bus, group: str) -> ReplayMark:
    """Read the compacted topic to its end; bounded by what it holds now."""
    mark = ReplayMark()
    for replay in read_replays(bus):
        if replay.group == group and replay.epoch >= mark.epoch:
            offsets = {(o.topic, o.partition): o.offset for o in replay.committed_before}
            mark = ReplayMark(replay.epoch, offsets, replay.started_at)
    return mark


def read_replays(bus: Bus) -> list[Replay]:
    """Every replay still on the topic, oldest first. TransientError when the broker falls silent
    before the end that it named."""
    admin, consumer = bus.admin(), bus.consumer()
    try:
        ends = {
            (topics.REPLAYS, partition): (first, end)
            for partition, (first, end) in admin.watermarks(topics.REPLAYS).items()
            if end > first
        }
        consumer.assign({position: first for position, (first, _) in ends.items()})
        remaining = {position: end for position, (_, end) in ends.items()}
        replays = []
        num_silent = 0
        while remaining:
            records = consumer.poll(500, _POLL_SECONDS)
            num_silent = 0 if records else num_silent + 1
            if num_silent == MAX_SILENT_POLLS:
                raise TransientError("The broker stopped answering while replays were read.")
            for record in records:
                if record.value is not None:
                    replays.append(decode(record.value))
                position = (record.topic, record.partition)
                if record.offset + 1 >= remaining.get(position, 0):
                    remaining.pop(position, None)
        return replays
    finally:
        consumer.close()
        admin.close()
