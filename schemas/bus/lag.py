"""How far a group is behind: what it has committed against what its topics hold."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from schemas.bus.api import Admin, Bus, Position

_POLL_SECONDS = 0.5
_NUM_POLLED = 1


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition as one group has read it. Offsets are those of the next record."""

    committed: int
    end: int

    @property
    def behind(self) -> int:
        """Offsets between the two: at least as many as records wait."""
        return max(0, self.end - self.committed)


def standings(admin: Admin, group: str, topics: Sequence[str]) -> dict[Position, Standing]:
    """Every partition of the topics that exist.

    A group that has committed nothing begins with the first record kept, and so does one whose
    next record retention has deleted.
    """
    extents = admin.extents(topics)
    committed = admin.committed(group, topics)
    return {
        position: Standing(max(first, committed.get(position, first)), end)
        for position, (first, end) in extents.items()
    }


def waiting_since(
    bus: Bus, found: Mapping[Position, Standing], *, max_seconds: float
) -> dict[Position, datetime]:
    """When the oldest record that waits was produced, by partition.

    A partition is absent where nothing waits, where its offsets hold no record, such as the ends
    of transactions, or where none came within `max_seconds`.
    """
    remaining = {position: s.committed for position, s in found.items() if s.behind}
    since: dict[Position, datetime] = {}
    if not remaining:
        return since
    consumer = bus.consumer(reads_ahead=False)
    deadline = time.monotonic() + max_seconds
    try:
        while remaining and time.monotonic() < deadline:
            # Anew each time: a long partition would fill every answer before the others' turn.
            consumer.assign(remaining)
            for record in consumer.poll(_NUM_POLLED, _POLL_SECONDS):
                position = (record.topic, record.partition)
                if remaining.pop(position, None) is not None:
                    since[position] = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    finally:
        consumer.close()
    return since
