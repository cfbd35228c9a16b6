"""Records that retention deleted before this group read them: told, counted, then passed over."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from schemas import topics
from schemas.bus import Producer, Record, deliver
from schemas.clock import Clock
from schemas.codec import encode
from schemas.errors import TransientError
from schemas.log_gaps import LogGap, to_event
from schemas.telemetry import Metrics

log = structlog.get_logger()

MAX_RETRY_SECONDS = 30.0

OnGap = Callable[[str, int, int, int], Awaitable[None]]
"""Called with topic, partition, first offset and end of what is gone."""


class GapRecorder:
    """Puts each gap on the audit topic before the group goes on."""

    def __init__(self, *, group: str, producer: Producer, clock: Clock, metrics: Metrics) -> None:
        self._group = group
        self._producer = producer
        self._clock = clock
        self._metrics = metrics

    async def record(self, topic: str, partition: int, first: int, end: int) -> None:
        """Returns once the gap is durable. While Kafka does not take it, it is tried again, with
        a bounded pause, and nothing is read meanwhile."""
        gap = LogGap(self._group, topic, partition, first, end)
        event = to_event(gap, self._clock.now())
        pause = 0.0
        while True:
            try:
                await deliver(
                    self._producer, [Record(topics.AUDIT, event.audit_id.encode(), encode(event))]
                )
                break
            except TransientError as error:
                pause = min(MAX_RETRY_SECONDS, max(2 * pause, error.retry_after_seconds))
                log.warning("log_gap_waits", group=self._group, why=str(error), seconds=pause)
                await asyncio.sleep(pause)
        self._metrics.counter("headrace_log_gap_records", group=self._group, topic=topic).inc(
            gap.num_records
        )
        log.error(
            "records_deleted_unread",
            group=self._group,
            topic=topic,
            partition=partition,
            first=first,
            end=end,
            hint="retention is shorter than this group was behind; `headrace reconcile` shows it",
        )
