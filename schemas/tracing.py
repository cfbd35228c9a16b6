"""OpenTelemetry spans of the services' own work. Off unless `tracing.otlp_url` is set.

A span is told once its work is over, with its times, so nothing that is measured waits for it.
What was traced is carried on records in the header `traceparent` (W3C Trace Context, level 1).
A span holds ids, coordinates and counts; never a payload, never an id that a client chose.

Spans wait in a bounded queue; the SDK drops what does not fit, and what the collector refuses.
They are for looking at, not for counting: counts are metrics.
"""

import random
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from schemas.bus.api import Record
from schemas.clock import to_us
from schemas.errors import ConfigError
from schemas.settings import TracingSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

TRACEPARENT = "traceparent"
Kind = Literal["server", "client", "producer", "consumer"]
Headers = Sequence[tuple[str, bytes]]
_FORM = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})\Z")
_FLUSH_MILLISECONDS = 2_000


class Tracing:
    """Tells spans to a collector. For several threads."""

    def __init__(
        self, service: str, settings: TracingSettings, exporter: "SpanExporter | None" = None
    ) -> None:
        """ConfigError when the packages are missing. `exporter` is the collector's otherwise."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise ConfigError(
                "tracing.otlp_url is set, but OpenTelemetry is not installed. Install "
                "`headrace[tracing]`, or unset it."
            ) from None
        self._share = settings.share
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service}), shutdown_on_exit=True
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter or OTLPSpanExporter(_endpoint(settings.otlp_url)))
        )
        self._tracer = self._provider.get_tracer("headrace")

    def begins(self) -> bool:
        """Whether a call that carries no trace begins one: `tracing.share` of them do."""
        return random.random() < self._share  # noqa: S311 - which calls are looked at is no secret

    def tell(
        self, name: str, kind: Kind, parent: bytes | None, times_ns: tuple[int, int],
        attributes: Mapping[str, str | int],
    ) -> bytes:  # fmt: skip
        """Tell a span from `times_ns[0]` to `times_ns[1]`, in nanoseconds since the epoch.

        `parent` is a `traceparent`; without one the span begins a trace. Returns its own.
        """
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            name,
            context=_context(parent),
            kind=SpanKind[kind.upper()],
            attributes=dict(attributes),
            start_time=times_ns[0],
        )
        span.end(max(times_ns))
        told = span.get_span_context()
        return f"00-{told.trace_id:032x}-{told.span_id:016x}-01".encode()

    def flush(self) -> None:
        """Send what waits, for a bounded time."""
        self._provider.force_flush(_FLUSH_MILLISECONDS)


def make_tracing(service: str, settings: TracingSettings) -> Tracing | None:
    """None where tracing is off."""
    return None if settings.otlp_url is None else Tracing(service, settings)


def traced(headers: Headers) -> bytes | None:
    """The `traceparent` of a record that somebody wants traced; None for any other."""
    for name, value in headers:
        if name == TRACEPARENT:
            found = _FORM.match(value)
            return value if found is not None and int(found[3], 16) & 1 else None
    return None


def carried(headers: Headers, outputs: Sequence[Record]) -> Sequence[Record]:
    """What came of a record, with its `traceparent` where it has one."""
    traceparent = traced(headers)
    if traceparent is None:
        return outputs
    return [replace(o, headers=(*o.headers, (TRACEPARENT, traceparent))) for o in outputs]


def nanoseconds(at: datetime) -> int:
    """Since the epoch, of an aware time."""
    return to_us(at) * 1_000


def _context(traceparent: bytes | None) -> "Context":
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    found = _FORM.match(traceparent or b"")
    if found is None:
        return Context()
    ids = int(found[1], 16), int(found[2], 16)
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(*ids, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _endpoint(url: str | None) -> str:
    """The address that takes traces; a collector is usually named without its path."""
    parts = urllib.parse.urlsplit(url or "")
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ConfigError(
            "tracing.otlp_url is no address. Name the collector's OTLP/HTTP door, such as "
            "http://127.0.0.1:4318."
        )
    return parts.geturl() if parts.path.strip("/") else f"{parts.geturl().rstrip('/')}/v1/traces"
