"""Following topics from their beginning: what a table in memory is kept up to date with.

waits for                  what unblocks it
------------------------   ----------------------------------------------
records                    `poll` returns after its timeout, with or without
the broker's word          one request of bounded time, at most every 2 s, while nothing comes
"""

import time
from collections.abc import Callable, Sequence

from schemas.bus.api import Bus, Received
from schemas.errors import ConfigError, TransientError

#: Silence after which the broker is asked whether there is anything to read at all.
CONFIRM_SECONDS = 2.0
#: An answer that takes longer is that of a broker that was away.
_SLOW_SECONDS = 1.0
_MAX_RECORDS = 500


class Following:
    """Reads topics in order from their first record. Blocks; for one thread.

    `as_of` tells silence from an outage: everything written until then has been returned.
    """

    def __init__(
        self, bus: Bus, topics: Sequence[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """TransientError when the broker is away, ConfigError when a topic does not exist."""
        self._topics = topics
        self._monotonic = monotonic
        self._admin = bus.admin()
        starts = {at: first for at, (first, _) in self._admin.extents(topics).items()}
        missing = sorted(set(topics) - {topic for topic, _ in starts})
        if missing:
            raise ConfigError(
                f"Topic {missing[0]} does not exist. `headrace up` creates all topics."
            )
        self._consumer = bus.consumer()
        self._consumer.assign(starts)
        self._heard_at = monotonic()
        #: Whether the present end of every topic has been reached once.
        self.is_caught_up = False
        self._lost_seconds = 0.0
        self._is_away = False
        #: On `clock`; None before the end was reached for the first time.
        self.as_of: float | None = None
        #: Why the broker's word is missing, empty where it is not.
        self.waits_for = ""

    def clock(self) -> float:
        """Seconds, the time not counted in which the broker was away: nobody could say anything."""
        return self._monotonic() - self._lost_seconds

    def poll(self, timeout_seconds: float) -> list[Received]:
        """What came, in order within a topic. TransientError for topics that cannot be read."""
        received = self._poll(timeout_seconds)
        if received:
            self._came_back()
        now = self.clock()
        if received:
            self._heard_at = now
        if not self._consumer.at_end():
            return received
        if received or not self.is_caught_up:
            self.is_caught_up, self.as_of, self.waits_for = True, now, ""
        elif now - self._heard_at > CONFIRM_SECONDS:
            received = self._confirm(timeout_seconds)
        return received

    def _confirm(self, timeout_seconds: float) -> list[Received]:
        """Ask the broker; where it answers and still nothing comes, nothing was written."""
        asked_at = self.clock()
        try:
            self._admin.extents(self._topics)
        except TransientError as error:
            self._is_away, self.waits_for = True, str(error)
            self._heard_at = self.clock()
            return []
        if self.clock() - asked_at > _SLOW_SECONDS:
            self._is_away = True
        self._came_back()
        self._heard_at = self.clock()
        received = self._poll(timeout_seconds)
        if self._consumer.at_end():
            self.as_of, self.waits_for = min(asked_at, self.clock()), ""
        return received

    def _came_back(self) -> None:
        """Go on with the clock where everything was known last."""
        if self._is_away and self.as_of is not None:
            self._lost_seconds += self.clock() - self.as_of
        self._is_away = False

    def _poll(self, timeout_seconds: float) -> list[Received]:
        """The first record as soon as it comes: a poll for many waits until there are so many."""
        first = self._consumer.poll(1, timeout_seconds)
        return first + self._consumer.poll(_MAX_RECORDS, 0.0) if first else first

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()
        self._admin.close()
