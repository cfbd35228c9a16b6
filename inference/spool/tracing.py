"""Traces of calls, told by the thread that publishes them, so that no relay waits for one."""

import time
from dataclasses import replace

from schemas import codec
from schemas.atdp import Exchange
from schemas.bus import Record
from schemas.errors import PermanentError
from schemas.tracing import TRACEPARENT, Tracing, nanoseconds

#: Any other is a word of the client's and stays out of spans, as OpenTelemetry's conventions say.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class CallTraces:
    """What is known of the calls on their way to Kafka. For one thread."""

    def __init__(self, tracing: Tracing | None) -> None:
        self._tracing = tracing
        #: Calls under way: their traceparent, None where the call is not traced; when read.
        self._under_way: dict[bytes, tuple[bytes | None, int]] = {}

    def marked(self, exchange_id: bytes, record: Record) -> Record:
        """The record with its traceparent. The span of the call is told with the first attempt."""
        if self._tracing is None:
            return record
        if exchange_id not in self._under_way:
            now = time.time_ns()
            self._under_way[exchange_id] = self._begun(self._tracing, record), now
        traceparent, _ = self._under_way[exchange_id]
        if traceparent is None:
            return record
        return replace(record, headers=(*record.headers, (TRACEPARENT, traceparent)))

    def delivered(self, exchange_id: bytes) -> None:
        """Kafka has the record."""
        traceparent, read_ns = self._under_way.pop(exchange_id, (None, 0))
        if self._tracing is not None and traceparent is not None:
            times = read_ns, time.time_ns()
            self._tracing.tell("publish", "producer", traceparent, times, {})

    def _begun(self, tracing: Tracing, record: Record) -> bytes | None:
        if not tracing.begins() or record.value is None:
            return None
        try:
            event = codec.decode(record.value)
        except PermanentError:  # whether it may go on is not for a trace to say
            return None
        if not isinstance(event, Exchange):
            return tracing.tell("event", "server", None, (time.time_ns(),) * 2, {})
        attributes: dict[str, str | int] = {
            "headrace.step_id": event.step_id,
            "headrace.outcome": event.outcome.value,
            "http.request.method": event.method if event.method in _METHODS else "_OTHER",
        }
        if event.status is not None:
            attributes["http.response.status_code"] = event.status
        began = nanoseconds(event.started_at)
        ended = nanoseconds(event.ended_at) if event.ended_at else began
        call = tracing.tell("call", "server", None, (began, ended), attributes)
        if event.first_byte_at is not None:
            times = began, nanoseconds(event.first_byte_at)
            tracing.tell("first byte", "client", call, times, {})
        return call
