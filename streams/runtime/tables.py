"""A processor's state: a Faust table that forgets what nobody wrote for its retention.

The changelog forgets by itself: the broker deletes what it got longer ago than the topic's
retention, by its own clock. In memory the same is done by time that passed in this process, so no
clock that is set ahead loses anything. A row that was read from the changelog counts as written
when it was read. So memory holds what was written within two retentions at most, and a row is kept
for one at least.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from schemas.clock import Clock
from schemas.telemetry import Metrics

#: A row goes this fraction of the retention late at most.
GENERATIONS = 16
#: Rows forgotten between two turns of the loop.
_SLICE = 2_000
_REPORT_SECONDS = 5.0


class Generations:
    """Which keys were not written for a retention, to a sixteenth of it.

    One small number a key: 42 to 60 bytes a row in a dictionary of CPython 3.11.
    """

    def __init__(self, retention_seconds: float, clock: Clock) -> None:
        self._seconds = retention_seconds / GENERATIONS
        self._clock = clock
        self._started = clock.monotonic()
        self._written: dict[bytes, int] = {}
        self._looked = -1

    def _now(self) -> int:
        return int((self._clock.monotonic() - self._started) / self._seconds)

    def touch(self, key: bytes) -> None:
        """The row is written now."""
        self._written[key] = self._now()

    def drop(self, key: bytes) -> None:
        """The row is gone."""
        self._written.pop(key, None)

    def expired(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of all keys that may go. One that was never touched is as if touched now."""
        present = set(keys)
        for key in self._written.keys() - present:  # went with a partition
            del self._written[key]
        now = self._now()
        return [key for key in present if self._written.setdefault(key, now) < now - GENERATIONS]

    def is_expired(self, key: bytes) -> bool:
        """Whether a key that was touched may go."""
        return self._written.get(key, self._now()) < self._now() - GENERATIONS

    def has_moved_on(self) -> bool:
        """True once in each generation, and at first: then it is worth to look at all keys."""
        before, self._looked = self._looked, self._now()
        return before != self._looked


class FaustTable:
    """A Faust table read through its store and written through our producer."""

    def __init__(
        self, table: Any, changelog: str, retention_hours: float | None, clock: Clock
    ) -> None:
        """Without `retention_hours` rows stay until their processor deletes them."""
        self._table = table
        self.changelog = changelog
        self._generations = (
            None if retention_hours is None else Generations(retention_hours * 3_600, clock)
        )

    def __len__(self) -> int:
        return len(self._table.data)

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._table.data.get(key.encode())
        return value

    def items(self) -> Iterator[tuple[str, bytes]]:
        for key, value in self._table.data.items():
            yield key.decode(), value

    def apply(self, key: str, value: bytes | None) -> None:
        name = key.encode()
        if value is None:
            self._forget(name)
            return
        # a copy of its own size: what orjson makes keeps room for 4 kB
        self._table.data[name] = bytes(memoryview(value))
        if self._generations is not None:
            self._generations.touch(name)

    def _forget(self, key: bytes) -> None:
        self._table.data.pop(key, None)
        if self._generations is not None:
            self._generations.drop(key)

    async def sweep(self) -> int:
        """Forget the rows whose retention is over; how many. Other work goes on between them."""
        if self._generations is None or not self._generations.has_moved_on():
            return 0
        expired = self._generations.expired(list(self._table.data))
        num_forgotten = 0
        for start in range(0, len(expired), _SLICE):
            for key in expired[start : start + _SLICE]:
                if self._generations.is_expired(key):  # it may have been written since
                    self._forget(key)
                    num_forgotten += 1
            await asyncio.sleep(0)
        return num_forgotten


def sweeper(
    table: FaustTable, group: str, name: str, metrics: Metrics
) -> Callable[[], Coroutine[None, None, None]]:
    """A task that counts the rows of a table and forgets those whose retention is over."""

    async def run() -> None:
        forgotten = metrics.counter("headrace_state_rows_forgotten", group=group, table=name)
        while True:
            forgotten.inc(await table.sweep())
            metrics.gauge("headrace_state_rows", group=group, table=name).set(len(table))
            await asyncio.sleep(_REPORT_SECONDS)

    return run
