"""Writes a call into the spool as it happens.

Nothing here waits, so nothing can be cancelled half-way: a cancelled request is still recorded.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import structlog

from inference.capture.proof import Proof
from inference.dialects.tokens import Asked
from inference.spool import Spool, SpoolFullError, SpoolWriteError
from inference.spool.assemble import patch
from inference.spool.frames import Kind, with_key
from schemas import codec
from schemas.atdp import Exchange
from schemas.atdp.types import Header, Outcome
from schemas.clock import Clock, ForwardClock, SystemClock
from schemas.telemetry import Metrics

_log = structlog.get_logger("capture")


#: Of an ending that the disk caused; where a call was complete for the client, of its record.
DISK_REFUSED = "spool_write_failed"


class Capture:
    """The record of one call. After `end` nothing more is taken.

    When the disk refuses a frame of the answer, nothing after it is kept: a record has no hole.
    With `shed` the call goes on; with `block` SpoolWriteError is raised, since bytes may not be
    released before they are written. Either way `end` closes the record as what is known.
    Its times come one after the other, also where the machine's clock is set back meanwhile.
    """

    def __init__(
        self, recorder: "Recorder", exchange_id: bytes, started_at: datetime, *,
        is_kept: bool = True,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._exchange_id = exchange_id
        self._started_at = started_at
        self._clock = ForwardClock(recorder.clock)
        #: False for a call that goes on without capture, as `shed` or `capture = false` says.
        self.is_kept = is_kept
        self._is_open = is_kept
        self._is_cut = False
        self._head: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        #: The client saw what it had not asked for.
        self.extras_shown = False

    def asked_at(self, upstream: str, asked: Asked | None) -> None:
        """Who is asked, and which fields of the request are not the client's."""
        self._asked = {"upstream": upstream, "added_fields": () if asked is None else asked.added}

    def head(self, status: int, headers: Iterable[Header], proof: Proof) -> None:
        """The upstream's status line and headers, and what its worker proves by them."""
        self._head = {
            "status": status,
            "first_byte_at": self._now(),
            **proof.fields(),
            **self._asked,
        }
        named = [{"name": h.name, "value": h.value} for h in headers]
        self._append(Kind.HEAD, patch(self._head | {"response_headers": named}))

    def chunk(self, data: bytes) -> None:
        """Bytes of the answer, before they are released to the client."""
        self._append(Kind.CHUNK, data)

    def end(
        self, outcome: Outcome, error_class: str | None, attempts: int, status: int | None = None
    ) -> None:
        """How it ended. `status` is what the gateway itself answered, if it had to.

        Never raises: what the disk refuses is written later.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self._is_cut and outcome is Outcome.COMPLETE:  # for the client; this record is not
            outcome, error_class = Outcome.GATEWAY_CRASHED, DISK_REFUSED
        fields: dict[str, Any] = {"outcome": outcome.value, "ended_at": self._now()}
        fields |= {"error_class": error_class, "attempts": attempts}
        if self.extras_shown:
            fields["extras_shown"] = True
        if not self._head:
            fields |= self._asked
        if self._is_cut:  # perhaps it was the head that was refused
            fields |= self._head
        if status is not None:
            fields["status"] = status
        self._recorder.end(self._exchange_id, patch(fields))

    def _now(self) -> str:
        return max(self._started_at, self._clock.now()).isoformat()

    def _append(self, kind: Kind, payload: bytes) -> None:
        if not self._is_open or self._is_cut:
            return
        try:
            self._recorder.spool.append(kind, self._exchange_id, payload)
        except SpoolWriteError:
            self._is_cut = True
            blocks = self._recorder.when_full == "block"
            self._recorder.count_refused(kind)
            self._recorder.count_shed("disk", blocked=blocks)
            if blocks:
                raise


class Recorder:
    """Opens captures and takes whole events.

    The END of a call that the disk refuses is kept here, a few hundred bytes, and written as soon
    as the disk takes it. No call begins before that, so there is at most one for each call that
    was under way.
    """

    def __init__(
        self,
        spool: Spool,
        when_full: Literal["block", "shed"],
        metrics: Metrics,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.spool = spool
        self.when_full = when_full
        self._metrics = metrics
        metrics.counter("headrace_gateway_shed")  # from zero on: the first one is an increase
        #: False while nothing of a call is kept, as the setting `capture` says.
        self.is_on = True
        self._owed: dict[bytes, bytes] = {}
        self._waits = False

    @property
    def num_owed(self) -> int:
        """Calls that have ended and whose END is not in the spool yet."""
        return len(self._owed)

    def begin(self, exchange: Exchange, kafka_key: bytes) -> Capture:
        """Record that a call begins, before anything of it goes to the upstream.

        With `block`, SpoolFullError or SpoolWriteError where there is no room.
        """
        exchange_id = id_bytes(exchange.event_id)
        if not self.is_on:
            self._metrics.counter("headrace_gateway_uncaptured").inc()
            return Capture(self, exchange_id, exchange.started_at, is_kept=False)
        try:
            value = codec.encode(exchange)
            self._write_owed()
            self.spool.begin(Kind.BEGIN, exchange_id, with_key(kafka_key, value))
        except (SpoolFullError, SpoolWriteError) as error:
            if isinstance(error, SpoolWriteError):
                self.count_refused(Kind.BEGIN)
            self.count_shed(type(error).__name__, blocked=self.when_full == "block")
            if self.when_full == "block":
                raise
            return Capture(self, exchange_id, exchange.started_at, is_kept=False)
        return Capture(self, exchange_id, exchange.started_at)

    def record(self, event_id: str, kafka_key: bytes, value: bytes) -> None:
        """Take a whole event. SpoolFullError or SpoolWriteError where there is no room."""
        try:
            self._write_owed()
            self.spool.begin(Kind.RECORD, id_bytes(event_id), with_key(kafka_key, value))
        except SpoolWriteError:
            self.count_refused(Kind.RECORD)
            raise

    def end(self, exchange_id: bytes, payload: bytes) -> None:
        """Close the record of a call, at once or when the disk takes it. Never raises."""
        self._owed[exchange_id] = payload
        self.settle()

    def settle(self) -> None:
        """Write what is owed, as far as the disk takes it. Never raises."""
        try:
            self._write_owed()
        except SpoolWriteError as error:
            self.count_refused(Kind.END)
            if not self._waits:
                _log.warning("exchange_ends_wait", error=str(error))
            self._waits = True
            return
        if self._waits:
            _log.info("exchange_ends_written")
        self._waits = False

    def _write_owed(self) -> None:
        for exchange_id in list(self._owed):
            self.spool.append(Kind.END, exchange_id, self._owed[exchange_id])
            del self._owed[exchange_id]

    def count_refused(self, kind: Kind) -> None:
        """Count a frame that the disk refused."""
        self._metrics.counter("headrace_spool_refused", what=kind.name.lower()).inc()

    def count_shed(self, cause: str, *, blocked: bool = False) -> None:
        """Say and count that something is not captured."""
        if blocked:
            _log.warning("spool_blocks", cause=cause, backlog_bytes=self.spool.backlog_bytes)
            return
        self._metrics.counter("headrace_gateway_shed").inc()
        _log.warning("exchange_not_captured", cause=cause, backlog_bytes=self.spool.backlog_bytes)


def id_bytes(event_id: str) -> bytes:
    """The 16 bytes of a UUID's text."""
    return bytes.fromhex(event_id.replace("-", ""))
