"""Traces: off unless asked for, carried on records, told with the times they were."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from schemas.bus import Record
from schemas.errors import ConfigError
from schemas.settings import TracingSettings
from schemas.tracing import TRACEPARENT, Tracing, carried, make_tracing, nanoseconds, traced

URL = "http://127.0.0.1:4318"
SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Told:
    """Tracing whose spans can be looked at."""

    def __init__(self, share: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        settings = TracingSettings(otlp_url=URL, share=share)
        self.tracing = Tracing("a.service", settings, self._exporter)

    def spans(self) -> Sequence[ReadableSpan]:
        self.tracing.flush()
        return self._exporter.get_finished_spans()


def test_without_an_address_there_is_no_tracing() -> None:
    assert make_tracing("a.service", TracingSettings()) is None


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "kafka://127.0.0.1", "http://", "collector"])
def test_what_is_no_address_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="otlp_url"):
        make_tracing("a.service", TracingSettings(otlp_url=url))


def test_a_span_has_the_times_it_is_told_with_and_begins_a_trace() -> None:
    told = Told()
    traceparent = told.tracing.tell("call", "server", None, (1_000, 3_000), {"a": 1})
    (span,) = told.spans()
    assert (span.name, span.start_time, span.end_time) == ("call", 1_000, 3_000)
    assert span.parent is None
    assert dict(span.attributes or {}) == {"a": 1}
    assert span.resource.attributes["service.name"] == "a.service"
    context = span.get_span_context()
    assert context is not None
    assert traceparent == f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode()


def test_a_span_of_another_process_is_its_parent() -> None:
    told = Told()
    told.tracing.tell("process", "consumer", SAMPLED, (1, 2), {})
    (span,) = told.spans()
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"


def test_a_clock_set_back_makes_no_negative_time() -> None:
    told = Told()
    told.tracing.tell("call", "server", None, (3_000, 1_000), {})
    (span,) = told.spans()
    assert span.start_time == span.end_time == 3_000


@pytest.mark.parametrize(("share", "begun"), [(0.0, 0), (1.0, 50)])
def test_the_share_of_calls_that_begin_a_trace(share: float, begun: int) -> None:
    tracing = Told(share).tracing
    assert sum(tracing.begins() for _ in range(50)) == begun


def test_what_comes_of_a_traced_record_is_traced() -> None:
    output = Record("t", b"k", b"v", (("content-type", b"x"),))
    (marked,) = carried(((TRACEPARENT, SAMPLED),), [output])
    assert marked.headers == (("content-type", b"x"), (TRACEPARENT, SAMPLED))
    assert carried((), [output]) == [output]


@given(st.binary(max_size=80))
def test_a_header_that_is_none_is_passed_over(value: bytes) -> None:
    assert traced(((TRACEPARENT, value),)) in {None, value}


@pytest.mark.parametrize(
    "value",
    [SAMPLED[:-2] + b"00", SAMPLED.upper(), SAMPLED + b"\n", b"", b"01" + SAMPLED[2:]],
)
def test_what_nobody_wants_traced_is_not(value: bytes) -> None:
    assert traced(((TRACEPARENT, value),)) is None
    assert traced(((TRACEPARENT, SAMPLED),)) == SAMPLED


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds it
def test_nanoseconds_lose_nothing(at: datetime) -> None:
    assert datetime.fromtimestamp(0, UTC) + (at - datetime.fromtimestamp(0, UTC)) == at
    assert nanoseconds(at) % 1_000 == 0
    assert nanoseconds(at) // 1_000 % 1_000_000 == at.microsecond


def test_tracing_off_starts_no_thread() -> None:
    before = threading.active_count()
    make_tracing("a.service", TracingSettings())
    assert threading.active_count() == before
