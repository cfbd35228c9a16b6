"""The processor `streams.sink`: records of clean topics → rows, then acknowledged.

    trajectory.*, training.samples and .decisions
            ──▶ lane ──▶ steps, rewards, trajectories, samples, sample_decisions
    training.microbatches, weights.*, dead.*, audit, quarantine
            ──▶ lane ──▶ microbatches, policy_versions, proposals, promotions, acks, …

A process that dies between insert and acknowledgement writes the same rows again; their ids and
versions are the same, so the tables do not change.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from schemas import topics
from schemas.atdp.types import Coordinates
from schemas.bus import Producer, Received, Record, deliver
from schemas.clock import Clock, SystemClock
from schemas.codec import decode
from schemas.errors import PermanentError, Reason
from schemas.telemetry import Metrics
from streams.runtime.crashes import CrashLedger
from streams.runtime.lane import coordinates, dead_letter
from streams.runtime.shell import Shell
from streams.sink.migrate import open_migrated
from streams.sink.rows import Row, to_row
from streams.sink.store import leave_data_frames_out
from streams.sink.straight import straight_row
from streams.sink.writer import Writer

log = structlog.get_logger()

TRAJECTORY_TOPICS = (
    topics.STEPS,
    topics.REWARDS,
    topics.SUMMARIES,
    topics.SAMPLES,
    topics.DECISIONS,
)
SINGLE_TOPICS = (
    topics.MICROBATCHES,
    topics.WEIGHTS_VERSIONS,
    topics.WEIGHTS_PROMOTIONS,
    topics.WEIGHTS_ACKS,
    topics.AUDIT,
    topics.QUARANTINE,
    *(topics.dead_letter_topic(name) for name in topics.DEAD_LETTERED),
)
#: Records, and bytes of them, that one insert is made of at most; more rows go into a second one.
#: A row with nothing in it takes 6 kB while it is made, whatever its record took.
MAX_INSERT_ROWS = 2_000
MAX_INSERT_BYTES = 16 * 1024**2
#: Objects before cycles are looked for: about what the rows of one insert are made of.
COLLECT_AFTER = 50_000
#: How long a sink that starts waits for a store that is not there.
STORE_WAIT_SECONDS = 120.0


class SinkLane:
    """Writes batches of records and dead-letters the ones that can never be rows."""

    def __init__(
        self,
        *,
        writer: Writer,
        producer: Producer,
        crashes: CrashLedger,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._writer = writer
        self._producer = producer
        self._crashes = crashes
        self._clock = clock
        self._metrics = metrics
        # Always the same one: each thread of a pool would keep the memory of a batch for itself.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sink")

    async def process(self, records: Sequence[Received]) -> list[Received]:
        """All records, once their rows are stored or their dead letters delivered."""
        letters: list[Record] = []
        for part in _parts(records):
            # Decoding and the client block; in a thread they leave the loop to Kafka's heartbeats.
            loop = asyncio.get_running_loop()
            letters += await loop.run_in_executor(self._thread, self._write, part)
        await deliver(self._producer, letters)
        self._count("handled", len(records) - len(letters))
        return list(records)

    def forget(self, topic: str, partition: int) -> None:
        """Nothing is kept between batches."""

    def _write(self, records: Sequence[Received]) -> list[Record]:
        letters: list[Record] = []
        record_of: dict[int, Received] = {}
        rows: list[Row] = []
        for record in records:
            try:
                rows.append(self._row(record))
                record_of[id(rows[-1])] = record
            except PermanentError as error:
                letters.append(self._dead_letter(record, error))
        refused = self._writer.write(rows)
        why = PermanentError(Reason.STORE_REFUSED)
        return letters + [self._dead_letter(record_of[id(row)], why) for row in refused]

    def _row(self, record: Received) -> Row:
        where = coordinates(record)
        topic, partition, offset = where
        at = Coordinates(topic=topic, partition=partition, offset=offset)
        with self._crashes.counting(where):
            now = self._clock.now()
            return straight_row(record.value, at, now) or to_row(decode(record.value), at, now)

    def _dead_letter(self, record: Received, error: PermanentError) -> Record:
        self._count("dead_lettered", 1)
        return dead_letter(topics.SINK, record, error, self._clock, self._metrics)

    def _count(self, result: str, number: int) -> None:
        self._metrics.counter("headrace_records", group=topics.SINK, result=result).inc(number)


def _parts(records: Sequence[Received]) -> Iterator[list[Received]]:
    """The records in order, cut where a part would grow over what one insert is made of."""
    part: list[Received] = []
    num_bytes = 0
    for record in records:
        size = len(record.value or b"")
        if len(part) == MAX_INSERT_ROWS or (part and num_bytes + size > MAX_INSERT_BYTES):
            yield part
            part, num_bytes = [], 0
        part.append(record)
        num_bytes += size
    if part:
        yield part


def build(shell: Shell) -> None:
    """Migrate the store, then read the topics. One connection a lane: they write side by side."""
    settings = shell.context.settings
    leave_data_frames_out()
    shell.collect_after = COLLECT_AFTER
    for inputs in (TRAJECTORY_TOPICS, SINGLE_TOPICS):
        store, applied = open_migrated(settings, wait_seconds=STORE_WAIT_SECONDS, pause=time.sleep)
        for migration in applied:
            log.info("migration_applied", number=migration.number, name=migration.name)
        lane = SinkLane(
            writer=Writer(store, shell.context.metrics, shell.context.mark.epoch),
            producer=shell.context.producer,
            crashes=shell.context.crashes,
            clock=SystemClock(),
            metrics=shell.context.metrics,
        )
        shell.add_lane(
            inputs,
            lane,
            max_batch=settings.sink.max_batch_rows,
            linger_seconds=settings.sink.max_batch_wait_seconds,
        )
