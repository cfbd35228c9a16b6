"""Writes a call into the spool as it happens.

Nothing here waits, so nothing can be cancelled half-way: a cancelled request is still recorded.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from inference.spool import Spool, SpoolFullError, SpoolWriteError
from inference.spool.assemble import patch
from inference.spool.frames import Kind, with_key
from schemas import codec
from schemas.atdp import Exchange
from schemas.atdp.types import Header, Outcome
from schemas.telemetry import Metrics

_log = structlog.get_logger("capture")


class Capture:
    """The record of one call. After `end` nothing more is taken.

    When the disk refuses a frame: with `shed` the call goes on without capture, counted; with
    `block` SpoolWriteError is raised, since bytes may not be released before they are written.
    """

    def __init__(self, recorder: "Recorder", exchange_id: bytes) -> None:
        self._recorder = recorder
        self._exchange_id = exchange_id
        self._first_byte_at: str | None = None
        self._is_open = True
        self.num_bytes = 0

    def head(self, status: int, headers: Iterable[Header], policy_version: int | None) -> None:
        """The upstream's status line and headers."""
        self._first_byte_at = _now()
        self._append(Kind.HEAD, patch({
            "status": status,
            "response_headers": [{"name": h.name, "value": h.value} for h in headers],
            "policy_version": policy_version,
            "first_byte_at": self._first_byte_at,
        }))  # fmt: skip

    def chunk(self, data: bytes) -> None:
        """Bytes of the answer, before they are released to the client."""
        self.num_bytes += len(data)
        self._append(Kind.CHUNK, data)

    def end(
        self, outcome: Outcome, error_class: str | None, attempts: int, status: int | None = None
    ) -> None:
        """How it ended. `status` is what the gateway itself answered, if it had to.

        Never raises: without this frame the call counts as cut off when the process ends.
        """
        fields: dict[str, Any] = {"outcome": outcome.value, "ended_at": _now()}
        fields |= {"error_class": error_class, "attempts": attempts}
        if status is not None:
            fields["status"] = status
        try:
            self._append(Kind.END, patch(fields))
        except SpoolWriteError:
            _log.error("exchange_end_not_recorded", exchange_id=self._exchange_id.hex())
        self._is_open = False

    def _append(self, kind: Kind, payload: bytes) -> None:
        if not self._is_open:
            return
        try:
            self._recorder.spool.append(kind, self._exchange_id, payload)
        except SpoolWriteError:
            self._is_open = False
            self._recorder.count_shed("disk")
            if self._recorder.when_full == "block":
                raise


class _Uncaptured(Capture):
    """A call that is relayed without capture, because the setting `shed` says so."""

    def _append(self, kind: Kind, payload: bytes) -> None:
        """Nothing is kept; the recorder has counted it."""


class Recorder:
    """Opens captures and takes whole events."""

    def __init__(self, spool: Spool, when_full: Literal["block", "shed"], metrics: Metrics) -> None:
        self.spool = spool
        self.when_full = when_full
        self._metrics = metrics

    def begin(self, exchange: Exchange, kafka_key: bytes) -> Capture:
        """Record that a call begins, before anything of it goes to the upstream.

        With `block`, SpoolFullError or SpoolWriteError where there is no room.
        """
        exchange_id = id_bytes(exchange.event_id)
        try:
            value = codec.encode(exchange)
            self.spool.begin(Kind.BEGIN, exchange_id, with_key(kafka_key, value))
        except (SpoolFullError, SpoolWriteError) as error:
            self.count_shed(type(error).__name__, blocked=self.when_full == "block")
            if self.when_full == "block":
                raise
            return _Uncaptured(self, exchange_id)
        return Capture(self, exchange_id)

    def record(self, event_id: str, kafka_key: bytes, value: bytes) -> None:
        """Take a whole event. SpoolFullError or SpoolWriteError where there is no room."""
        self.spool.begin(Kind.RECORD, id_bytes(event_id), with_key(kafka_key, value))

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


def _now() -> str:
    return datetime.now(UTC).isoformat()
