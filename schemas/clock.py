"""Time as a dependency, so that a test can hold it still."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(time: datetime) -> int:
    """Microseconds since 1970 of an aware time, exact."""
    return (time - _EPOCH) // _MICROSECOND


def to_time(us: int) -> datetime:
    """The aware time, in UTC."""
    return _EPOCH + timedelta(microseconds=us)


class Clock(Protocol):
    """Tells the time: what to write down, and how long to wait."""

    def now(self) -> datetime:
        """The wall time, always aware and in UTC. It may be set back."""

    def monotonic(self) -> float:
        """Seconds since some moment; they pass whatever happens to the wall time."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ForwardClock:
    """Another clock, but time goes on evenly where that one is set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.now()
        self._at = clock.monotonic()

    def now(self) -> datetime:
        at = self.monotonic()
        going_on = self._now + timedelta(seconds=at - self._at)
        self._now, self._at = max(self._clock.now(), going_on), at
        return self._now

    def monotonic(self) -> float:
        return self._clock.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._passed = timedelta()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._passed.total_seconds()

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._now += by
        self._passed += by

    def set_back(self, by: timedelta) -> None:
        """Correct the wall time; no time passes."""
        self._now -= by
