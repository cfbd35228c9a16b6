"""When a held record has waited long enough.

A hold is a time at the broker: the record waits for another one that arrives there within its
seconds. A worker that is behind reads those arrivals later than they came, so the seconds on its
own clock say too little. A hold ends once its seconds are over here *and* what arrived within them
was read: a record of the partition that came later was read, or all that the partition held when
the seconds were over.

Offsets may hold no record, such as the ends of transactions. Where the broker answers and nothing
came of a partition for `QUIET_SECONDS`, nothing is left there.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from schemas.bus import Position, Received
from schemas.bus.api import Admin
from schemas.errors import TransientError
from streams.runtime.sizes import num_bytes_of

log = structlog.get_logger()

QUIET_SECONDS = 30.0
#: How long a broker that did not answer is left alone.
_PAUSE_SECONDS = 1.0


class LogEnds(Protocol):
    """Asks where partitions end."""

    async def ends(self, positions: Collection[Position]) -> Mapping[Position, int]:
        """The offset after the last record of each. TransientError while the broker is away."""


class BusLogEnds:
    """Asks the broker."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def ends(self, positions: Collection[Position]) -> Mapping[Position, int]:
        topics = sorted({topic for topic, _ in positions})
        extents = await asyncio.to_thread(self._admin.extents, topics)
        return {position: end for position, (_, end) in extents.items() if position in positions}


@dataclass(slots=True)
class Held:
    """A record that waits. `until` is on the clock of this process, `end` the offset up to which
    its partition has to be read, None before anybody asked."""

    record: Received
    seconds: float
    until: float
    end: int | None = None
    asked_at: float = 0.0

    @property
    def num_bytes(self) -> int:
        """Of key and value."""
        return num_bytes_of(self.record)

    @property
    def position(self) -> Position:
        """Topic and partition of the record."""
        return self.record.topic, self.record.partition


@dataclass(slots=True)
class _Reading:
    """How far a partition was read: the next offset, and the broker's time of the last record."""

    next_offset: int
    timestamp_ms: int
    moved_at: float


class Holds:
    """What of each partition was read, and what that means for the records held."""

    def __init__(self, log_ends: LogEnds) -> None:
        self._log_ends = log_ends
        self._readings: dict[Position, _Reading] = {}
        self._ask_at = 0.0

    def read(self, records: Iterable[Received], now: float) -> None:
        """These are being handled; those before them on their partitions were."""
        for record in records:
            position = record.topic, record.partition
            self._readings[position] = _Reading(record.offset + 1, record.timestamp_ms, now)

    def forget(self, position: Position) -> None:
        """Another worker reads it now."""
        self._readings.pop(position, None)

    def is_over(self, held: Held, now: float) -> bool:
        """Whether everything that the record could wait for was read."""
        reading = self._readings.get(held.position)
        if now < held.until or reading is None:
            return False
        is_later = reading.timestamp_ms > held.record.timestamp_ms + held.seconds * 1000
        return is_later or (held.end is not None and reading.next_offset >= held.end)

    async def look(self, held: Iterable[Held], now: float) -> None:
        """Ask where the partitions end whose records' seconds are over. While the broker is away
        nothing ends: what is awaited cannot come, and what would be written cannot be taken."""
        if now < self._ask_at:
            return
        due = [one for one in held if self._is_due(one, now)]
        if not due:
            return
        try:
            ends = await self._log_ends.ends({one.position for one in due})
        except TransientError as error:
            log.info("holds_wait", why=str(error), num_held=len(due))
            self._ask_at = now + _PAUSE_SECONDS
            for one in due:
                one.asked_at = now
            return
        self._learn(due, ends, now)

    def _is_due(self, held: Held, now: float) -> bool:
        reading = self._readings.get(held.position)
        if now < held.until or reading is None or self.is_over(held, now):
            return False
        return held.end is None or now - max(held.asked_at, reading.moved_at) >= QUIET_SECONDS

    def _learn(self, due: Sequence[Held], ends: Mapping[Position, int], now: float) -> None:
        for one in due:
            reading = self._readings.get(one.position)
            if reading is None:  # taken away while the broker was asked
                continue
            is_quiet = one.end is not None
            one.end = reading.next_offset if is_quiet else ends.get(one.position, 0)
            one.asked_at = now
