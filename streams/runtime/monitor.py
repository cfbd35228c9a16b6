"""Faust's monitor without what it counts for each record, which nobody reads.

Ours are in `schemas/telemetry.py`. Faust's own took a seventh of the CPU time of a sink.
"""

import time
from typing import Any

from faust.sensors import monitor


class Monitor(monitor.Monitor):
    """Keeps the time of each partition's last record, by which Faust notices a standstill."""

    def on_message_in(self, tp: Any, offset: int, message: Any) -> None:
        """Nothing is counted."""

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> None:  # noqa: ARG002 - Faust's
        """The stream was given a record."""
        self.stream_inbound_time[tp] = time.monotonic()

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Nothing is counted."""

    def on_message_out(self, tp: Any, offset: int, message: Any) -> None:
        """Nothing is counted."""
