"""What a worker says: that it is there, every two seconds, and what became of each version."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from schemas import codec, topics
from schemas.atdp.weights import WeightsAck, WorkerHeartbeat
from schemas.bus.api import Delivery, Producer, Record, deliver_now
from schemas.errors import HeadraceError, TransientError

_DELIVERY_SECONDS = 10.0
#: The latest one counts, so forgetting the oldest of many loses nothing that anybody acts on.
_MAX_WAITING = 100
_log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class Announcer:
    """Sends heartbeats from a thread of its own, acknowledgements from the caller's."""

    def __init__(
        self,
        producer: Producer,
        worker_id: str,
        every_seconds: float,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._producer, self._worker_id = producer, worker_id
        self._every_seconds, self._now = every_seconds, now
        self._beat: WorkerHeartbeat | None = None
        self._acks: deque[WeightsAck] = deque(maxlen=_MAX_WAITING)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._thread.start()

    def serve(self, beat: WorkerHeartbeat) -> None:
        """From now on say this, and say it at once."""
        with self._lock:
            self._beat = beat
            self._send(self._record(beat))

    def serve_nothing(self) -> None:
        """Take the worker off the list: nothing is to be sent to it."""
        with self._lock:
            if self._beat is not None:
                self._send(Record(topics.WORKERS, self._worker_id.encode(), None))
            self._beat = None

    def acknowledge(self, ack: WeightsAck) -> None:
        """Say what became of a version. It waits where Kafka is away."""
        self._acks.append(ack)
        self.deliver_acks()

    def deliver_acks(self) -> None:
        """Send what waits; what cannot be sent waits on.

        RuntimeError when the thread of the heartbeats has ended by an error of ours: nobody would
        send calls here any more, so the process has to end and say so.
        """
        if self._thread.ident is not None and not self._thread.is_alive():
            raise RuntimeError("the thread of the heartbeats has ended")
        while self._acks:
            ack = self._acks[0]
            record = Record(topics.WEIGHTS_ACKS, self._worker_id.encode(), codec.encode(ack))
            try:
                deliver_now(self._producer, [record], _DELIVERY_SECONDS)
            except TransientError as error:
                _log.warning("acknowledgement_waits", reason=str(error))
                return
            self._acks.popleft()

    def close(self) -> None:
        """Say goodbye and stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self.serve_nothing()
        self._producer.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            with self._lock:
                if self._beat is not None:
                    self._send(self._record(self._beat))

    def _record(self, beat: WorkerHeartbeat) -> Record:
        beat = replace(beat, heartbeat_at=self._now())
        return Record(topics.WORKERS, self._worker_id.encode(), codec.encode(beat))

    def _send(self, record: Record) -> None:
        """The next heartbeat makes up for one that is lost."""
        try:
            self._producer.send(record, _note)
        except HeadraceError as error:
            _log.warning("heartbeat_lost", reason=str(error))


def _note(delivery: Delivery) -> None:
    if delivery.error is not None:
        _log.warning("heartbeat_lost", reason=str(delivery.error))
