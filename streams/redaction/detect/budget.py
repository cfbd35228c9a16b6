"""How long the detector may look at one event. A model takes about a minute for a megabyte."""

import time
from collections.abc import Callable

from streams.redaction.detect.contract import DetectorTimeout

#: Enough for an event as large as its topic takes. A body beside the topic may be 64 times that;
#: it would keep every other event of its partitions waiting for an hour.
MAX_EVENT_SECONDS = 120.0


class Budget:
    """Time for one event after the other; a process looks at one at a time."""

    def __init__(
        self,
        max_seconds: float = MAX_EVENT_SECONDS,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_seconds = max_seconds
        self._now_seconds = now_seconds
        self._until: float | None = None

    def begin(self) -> None:
        """The next event has all of it. Before the first one there is no bound."""
        self._until = self._now_seconds() + self._max_seconds

    def check(self) -> None:
        """Raises DetectorTimeout once the time is used up."""
        if self._until is not None and self._now_seconds() > self._until:
            raise DetectorTimeout("The detector takes too long for this event.")
