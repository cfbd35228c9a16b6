"""The processor `streams.sink`: records of clean topics → rows, then acknowledged.

    trajectory.*, training.samples and .decisions
            ──▶ lane ──▶ steps, rewards, trajectories, samples, sample_decisions
    training.microbatches, weights.*, dead.*, audit, quarantine
            ──▶ lane ──▶ microbatches, policy_versions, proposals, promotions, acks, …

A process that dies between insert and acknowledgement writes the same rows again; their ids and
versions are the same, so the tables do not change.

While the store takes the rows of one batch, those of the next one are made. They are inserted, and
acknowledged, in order: nothing of the next one is sent before the one before is acknowledged.
"""

import asyncio
import functools
import time
from collections.abc import Sequence
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
from streams.runtime.pump import Attempt
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
#: Of the records that one insert is made of, `sink.max_batch_rows` at most; the one that crosses it
#: still belongs to it. A row with nothing in it takes 6 kB while it is made, whatever its record
#: took; rows of two inserts live at a time.
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
        # Always the same ones: each thread of a pool would keep the memory of a batch for itself.
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="rows")
        self._inserter = ThreadPoolExecutor(1, thread_name_prefix="insert")

    async def prepare(self, records: Sequence[Received]) -> Attempt:
        """Make the rows. The records are as many as one insert may be made of.

        The attempt gives all records back, once their rows are stored or their dead letters
        delivered.
        """
        # Decoding and the client block; in threads they leave the loop to Kafka's heartbeats.
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(self._maker, self._make, records) if records else []
        return functools.partial(self._store, made)

    def forget(self, topic: str, partition: int) -> None:
        """Nothing is kept between batches."""

    async def _store(self, made: Sequence["_Made"], records: Sequence[Received]) -> list[Received]:
        """Insert those rows of `made` whose records are still ours; then all of these are done."""
        ours = set(map(coordinates, records))
        kept = [(record, row) for record, row in made if coordinates(record) in ours]
        loop = asyncio.get_running_loop()
        letters = await loop.run_in_executor(self._inserter, self._write, kept) if kept else []
        await deliver(self._producer, letters)
        self._count("handled", len(records) - len(letters))
        return list(records)

    def _make(self, records: Sequence[Received]) -> list["_Made"]:
        made: list[_Made] = []
        for record in records:
            try:
                made.append((record, self._row(record)))
            except PermanentError as error:
                made.append((record, error))
        return made

    def _write(self, made: Sequence["_Made"]) -> list[Record]:
        rows = [row for _, row in made if isinstance(row, Row)]
        refused = set(map(id, self._writer.write(rows)))
        why = PermanentError(Reason.STORE_REFUSED)
        return [
            self._dead_letter(record, why if isinstance(row, Row) else row)
            for record, row in made
            if not isinstance(row, Row) or id(row) in refused
        ]

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


_Made = tuple[Received, Row | PermanentError]
"""A record and its row, or why it has none."""


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
            max_bytes=MAX_INSERT_BYTES,
            linger_seconds=settings.sink.max_batch_wait_seconds,
        )
