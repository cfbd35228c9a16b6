"""The thread that brings the spool to Kafka.

It waits for delivery reports before anything is deleted, and for as long as Kafka is away: a
producer that gave records up one by one would let younger ones past them. Whatever the broker
refuses for a while is sent again with a growing pause; a record that is too large goes out as a
claim check. While the disk refuses what the publisher writes itself, that waits and the rest goes
on.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from inference.spool.assemble import Assembler
from inference.spool.folder import SpoolFolder, others
from inference.spool.source import Event, Source
from inference.spool.tracing import CallTraces
from inference.spool.writer import Spool, SpoolWriteError
from schemas import codec, ids, topics
from schemas.atdp.internal import DeadLetter
from schemas.atdp.types import Coordinates
from schemas.bus import Delivery, Producer, Record
from schemas.errors import HeadraceError, PermanentError, Reason, TransientError
from schemas.telemetry import Metrics
from schemas.tracing import Tracing

_log = structlog.get_logger("spool")

GROUP = "inference.gateway"
_MAX_IN_FLIGHT = 1_000
_MAX_IN_FLIGHT_BYTES = 64 * 1024**2
_IDLE_SECONDS = 0.05
_ROUND_SECONDS = 0.02
#: How often dead processes are looked for. Redaction holds a call for `redaction.hold_seconds` in
#: wait of the one before it, which may lie with a process that died.
ADOPT_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 5.0
_DISK_PAUSE_SECONDS = 1.0
#: Kafka is said to take nothing once no report came for so long.
_SILENT_SECONDS = 10.0
#: A report that others have been coming past for so long never comes.
_REPORT_SECONDS = 150.0


@dataclass(slots=True)
class _Job:
    source: Source
    event: Event
    oversized: bool = False
    refused: Reason | None = None
    was_aside: bool = False
    read_at: float = field(default_factory=time.monotonic)


class Publisher:
    """Publishes one live spool and those of dead processes found beside it."""

    def __init__(
        self,
        spool: Spool,
        root: Path,
        make_producer: Callable[[], Producer],
        assembler: Assembler,
        metrics: Metrics,
        tracing: Tracing | None = None,
    ) -> None:
        self._traces = CallTraces(tracing)
        self._spool = spool
        self._root = root
        self._make_producer = make_producer
        self._assembler = assembler
        self._metrics = metrics
        self._sources = [Source(spool.folder, spool)]
        self._ready: deque[_Job] = deque()
        #: Waits for the blob store; what needs none goes past, or a full disk stayed full.
        self._aside: deque[_Job] = deque()
        self._aside_until = 0.0
        self._tidy_at = 0.0
        self._tidy_pause_seconds = 0.0
        self._in_flight: dict[bytes, _Job] = {}
        self._in_flight_bytes = 0
        self._reports: queue.SimpleQueue[tuple[_Job, Delivery]] = queue.SimpleQueue()
        self._pause_until = 0.0
        self._pause_seconds = 0.0
        self._adopt_at = 0.0
        self._deadline = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool-publisher", daemon=True)
        #: Position up to which everything is delivered, or None. Read by other threads.
        self.caught_up_at: tuple[int, int] | None = None
        #: None until the first delivery report; then whether the last one was a success.
        self.is_delivering: bool | None = None
        #: What the last attempt failed for, empty since the last success. Read by other threads.
        self.waits_for = ""
        #: When (monotonic) the oldest waiting event was read, None while none waits; and when Kafka
        #: last took one, or none waited. Read by other threads.
        self.oldest_at: float | None = None
        self.progressed_at = time.monotonic()
        #: The oldest in flight, and when the first report of another one came past it.
        self._passed: _Job | None = None
        self._passed_since = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False once the thread has ended, wanted or not."""
        return self._thread.is_alive()

    @property
    def num_waiting(self) -> int:
        """Whole events read from the spool that Kafka has not confirmed."""
        return len(self._ready) + len(self._aside) + len(self._in_flight)

    @property
    def num_spooled(self) -> int:
        """Whole events that Kafka has not confirmed, those not read yet included."""
        return self.num_waiting + self._spool.num_events - self._sources[0].num_events

    def stop(self, timeout_seconds: float) -> None:
        """Publish what is whole for at most that long, then end. The rest stays on the disk."""
        self._deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        self._spool.wake.set()
        self._thread.join(timeout_seconds + 5)

    def _run(self) -> None:
        producer = self._make_producer()
        while not self._stopping.is_set() or self._may_go_on():
            self._adopt()
            progressed = self._read()
            progressed |= self._send(producer)
            progressed |= self._settle()
            self._tidy()
            self._forget_finished()
            self._note_waiting()
            self._note_silence(producer)
            self.caught_up_at = None if self.num_waiting else self._sources[0].caught_up_at
            if not progressed:
                self._spool.wake.wait(_IDLE_SECONDS)
            # Events that come close together are taken in one round: each round competes with
            # the relay for the interpreter.
            self._stopping.wait(_ROUND_SECONDS)
            self._spool.wake.clear()
        for source in self._sources:
            source.close()

    def _note_waiting(self) -> None:
        fronts = [jobs[0] for jobs in (self._ready, self._aside) if jobs]
        fronts += list(self._in_flight.values())[:1]
        self.oldest_at = min((job.read_at for job in fronts), default=None)
        if self.oldest_at is None:
            self.progressed_at = time.monotonic()

    def _note_silence(self, producer: Producer) -> None:
        """Whether Kafka takes nothing, and why; records that wait in the producer do not fail."""
        if not self._in_flight or time.monotonic() - self.progressed_at < _SILENT_SECONDS:
            return
        why = producer.trouble()
        if self.is_delivering is not False:
            _log.warning("spool_waits", error=why, backlog_bytes=self._spool.backlog_bytes)
        self.is_delivering = False
        self.waits_for = why or self.waits_for

    def _may_go_on(self) -> bool:
        idle = self.caught_up_at == self._spool.position and len(self._sources) == 1
        return not idle and time.monotonic() < self._deadline

    def _adopt(self) -> None:
        now = time.monotonic()
        if now < self._adopt_at or self._stopping.is_set():
            return
        self._adopt_at = now + ADOPT_SECONDS
        known = {source.folder.path for source in self._sources}
        for path in others(self._root, self._spool.folder.path):
            folder = None if path in known else SpoolFolder.adopt(path, self._spool.folder.disk)
            if folder is not None:
                _log.info("spool_adopted", num_bytes=sum(folder.segments().values()))
                self._sources.append(Source(folder))

    def _read(self) -> bool:
        """Read on, what dead processes left first: its calls came before those that come now, and
        redaction waits only so long for the call before a call."""
        room = _MAX_IN_FLIGHT - self.num_waiting
        progressed = False
        live, *adopted = self._sources
        for source in (*adopted, live):
            if room <= 0:
                break
            torn_before = source.num_torn
            events = source.read(room)
            if source.num_torn > torn_before:
                self._count("torn", source.num_torn - torn_before)
            self._ready.extend(_Job(source, event) for event in events)
            room -= len(events)
            progressed |= bool(events)
        return progressed

    def _send(self, producer: Producer) -> bool:
        progressed = False
        while time.monotonic() >= self._pause_until:
            if self._in_flight and self._in_flight_bytes > _MAX_IN_FLIGHT_BYTES:
                break
            job = self._next()
            if job is None:
                break
            record = self._made(job)
            if record is None:
                continue
            try:
                producer.send(record, self._reporter(job))
            except HeadraceError as error:
                self._refused(job, error)
                continue
            self._in_flight[job.event.exchange_id] = job
            self._in_flight_bytes += job.event.num_bytes
            progressed = True
        return progressed

    def _next(self) -> _Job | None:
        if self._aside and time.monotonic() >= self._aside_until:
            return self._aside.popleft()
        return self._ready.popleft() if self._ready else None

    def _made(self, job: _Job) -> Record | None:
        """The record; None where there is none yet and the job has its place elsewhere."""
        try:
            record = self._record(job)
        except TransientError as error:
            if not job.was_aside:
                _log.warning("spool_claim_check_waits", error=str(error))
            job.was_aside = True
            self._aside.append(job)
            self._aside_until = time.monotonic() + _DISK_PAUSE_SECONDS
            self._disk_refused("blob")
            return None
        except HeadraceError as error:
            self._refused(job, error)
            return None
        if job.was_aside:  # the blob store takes again: the next one follows at once
            job.was_aside = False
            self._aside_until = 0.0
        return record

    def _record(self, job: _Job) -> Record:
        if job.refused is not None:
            return _dead_letter(job)
        record = self._assembler.record(
            job.event, job.source.payload, refused_as_oversized=job.oversized
        )
        return self._traces.marked(job.event.exchange_id, record)

    def _reporter(self, job: _Job) -> Callable[[Delivery], None]:
        def report(delivery: Delivery) -> None:
            self._reports.put((job, delivery))
            self._spool.wake.set()

        return report

    def _settle(self) -> bool:
        """Take the delivery reports that have come."""
        delivered: dict[int, list[Event]] = {}
        progressed = False
        while not self._reports.empty():
            job, delivery = self._reports.get()
            progressed = True
            if self._in_flight.pop(job.event.exchange_id, None) is None:
                continue  # given up as lost and sent again; ids are equal, a duplicate is harmless
            self._in_flight_bytes -= job.event.num_bytes
            if delivery.error is not None:
                self._refused(job, delivery.error)
                continue
            self._pause_seconds, self.is_delivering, self.waits_for = 0.0, True, ""
            self._pause_until = 0.0  # what was refused before follows at once
            self.progressed_at = time.monotonic()
            self._note_passed()
            delivered.setdefault(id(job.source), []).append(job.event)
            self._traces.delivered(job.event.exchange_id)
            self._count("dead_lettered" if job.refused else "delivered")
        for source in self._sources:
            source.done(delivered.get(id(source), ()))
        self._resend_lost()
        return progressed

    def _note_passed(self) -> None:
        oldest = next(iter(self._in_flight.values()), None)
        if oldest is not self._passed:
            self._passed, self._passed_since = oldest, self.progressed_at

    def _tidy(self) -> None:
        """Note what is delivered and delete files; where the disk refuses, again after a pause."""
        if time.monotonic() < self._tidy_at:
            return
        refused = None
        for source in self._sources:
            try:
                source.tidy()
            except SpoolWriteError as error:
                refused = error
        if refused is None:
            if self._tidy_pause_seconds:
                _log.info("spool_notes_resumed")
            self._tidy_pause_seconds = 0.0
            return
        if not self._tidy_pause_seconds:
            waiting = sum(source.num_unnoted for source in self._sources)
            _log.warning("spool_notes_wait", error=str(refused), num_events=waiting)
        self._disk_refused("note")
        pause = max(_DISK_PAUSE_SECONDS, self._tidy_pause_seconds * 2)
        self._tidy_pause_seconds = min(pause, _MAX_PAUSE_SECONDS)
        self._tidy_at = time.monotonic() + self._tidy_pause_seconds

    def _disk_refused(self, what: str) -> None:
        self._metrics.counter("headrace_spool_refused", what=what).inc()

    def _resend_lost(self) -> None:
        """Send again what got no report while those of others kept coming."""
        lost, since = self._passed, self._passed_since
        if lost is None or self.progressed_at - since <= _REPORT_SECONDS:
            return
        self._passed = None
        if self._in_flight.pop(lost.event.exchange_id, None) is not None:
            self._in_flight_bytes -= lost.event.num_bytes
            self._refused(lost, TransientError("no delivery report"))

    def _refused(self, job: _Job, error: HeadraceError) -> None:
        """Decide what comes next for a record that was not taken."""
        self._put_back(job)
        if not isinstance(error, PermanentError):
            self._pause(error)
        elif error.reason is Reason.OVERSIZED and not job.oversized:
            job.oversized = True
        else:
            job.refused = error.reason
            _log.error("spool_event_refused", reason=error.reason.value)

    def _put_back(self, job: _Job) -> None:
        """To its place in the order of reading: redaction waits a bounded time only."""
        later = (i for i, other in enumerate(self._ready) if other.read_at > job.read_at)
        self._ready.insert(next(later, len(self._ready)), job)

    def _pause(self, error: HeadraceError) -> None:
        if self.is_delivering is not False:
            _log.warning("spool_waits", error=str(error), backlog_bytes=self._spool.backlog_bytes)
        asked = error.retry_after_seconds if isinstance(error, TransientError) else 1.0
        self.is_delivering, self.waits_for = False, str(error)
        self._pause_seconds = min(max(asked, self._pause_seconds * 2), _MAX_PAUSE_SECONDS)
        self._pause_until = time.monotonic() + self._pause_seconds
        self._count("retried")

    def _forget_finished(self) -> None:
        for source in [s for s in self._sources if s.is_finished()]:
            self._sources.remove(source)
            source.close()

    def _count(self, result: str, by: int = 1) -> None:
        self._metrics.counter("headrace_spool_published", result=result).inc(by)


def _dead_letter(job: _Job) -> Record:
    """A dead letter without payload: where the event lay, and why it could not be published."""
    first = job.event.frames[0]
    letter_id = ids.derive_id("dead-letter", GROUP, job.event.exchange_id.hex())
    letter = DeadLetter(
        dead_letter_id=letter_id,
        group=GROUP,
        source=Coordinates(topic="spool", partition=first.segment, offset=first.offset),
        reason=(job.refused or Reason.BUG).value,
        num_bytes=job.event.num_bytes,
        occurred_at=datetime.now(UTC),
    )
    topic = topics.dead_letter_topic(topics.RAW_EVENTS)
    return Record(topic, letter_id.encode(), codec.encode(letter))
