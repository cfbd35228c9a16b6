"""Logs as JSON lines and metrics whose names live in one place.

Payload text never goes into either. A log line carries ids, coordinates, counts and reasons.
"""

import contextlib
import io
import json
import logging
import sys
import traceback
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from schemas.errors import TransientError

#: Every metric: name → (type, help, labels). A test freezes the names, another compares with what
#: the code sets, and docs/metrics.md is made of it.
METRICS: dict[str, tuple[Literal["counter", "gauge", "histogram"], str, tuple[str, ...]]] = {
    "headrace_gateway_requests": ("counter", "Requests relayed", ("path", "outcome")),
    "headrace_gateway_overhead_seconds": ("histogram", "Time added before the first byte", ()),
    "headrace_gateway_feedback": ("counter", "Feedback events accepted", ("target",)),
    "headrace_gateway_shed": ("counter", "Exchanges not captured, or not whole: no room", ()),
    "headrace_gateway_unanswered": (
        "counter",
        "Tries that a worker of the ring left unanswered",
        (),
    ),
    "headrace_gateway_uncaptured": ("counter", "Exchanges not captured: capture is off", ()),
    "headrace_upstream_tries": ("counter", "Tries of calls at upstreams", ("upstream", "result")),
    "headrace_routable_workers": ("gauge", "Workers of the ring that may get calls", ()),
    "headrace_healthy": ("gauge", "1 while /health answers 200, else 0", ()),
    "headrace_spool_bytes": ("gauge", "Bytes in the spool that wait for Kafka", ()),
    "headrace_spool_refused": ("counter", "Writes that the disk refused the spool", ("what",)),
    "headrace_blobs_swept": ("counter", "Large bodies deleted, older than gateway.blob_days", ()),
    "headrace_blobs_not_swept": ("counter", "Old large bodies that the disk kept", ()),
    "headrace_spool_published": ("counter", "Events published from the spool", ("result",)),
    "headrace_spool_age_seconds": (
        "gauge",
        "Time that the oldest event has waited for Kafka since it was read",
        (),
    ),
    "headrace_lag_records": (
        "gauge",
        "Offsets between commit and end of a partition",
        ("group", "topic", "partition"),
    ),
    "headrace_commit_age_seconds": (
        "gauge",
        "Time since a partition with waiting records was committed; the worst",
        ("group",),
    ),
    "headrace_recovery_seconds": (
        "histogram",
        "Time from start or rebalance until records flow",
        ("group",),
    ),
    "headrace_records": ("counter", "Records processed", ("group", "result")),
    "headrace_dead_letters": ("counter", "Records sent to a dead letter", ("group", "reason")),
    "headrace_quarantined": ("counter", "Records sent to quarantine", ("reason",)),
    "headrace_retries": ("counter", "Attempts repeated after a transient failure", ("group",)),
    "headrace_batch_seconds": (
        "histogram",
        "Time that a batch took to be durable and committed",
        ("group",),
    ),
    "headrace_held_events": ("gauge", "Calls that wait for the call before them", ()),
    "headrace_held_bytes": ("gauge", "Bytes of the calls that wait", ()),
    "headrace_hold_expired": ("counter", "Calls emitted without the call before them", ()),
    "headrace_state_rows": ("gauge", "Rows of a processor's state in memory", ("group", "table")),
    "headrace_state_rows_forgotten": (
        "counter",
        "Rows of a processor's state that nobody wrote for their retention",
        ("group", "table"),
    ),
    "headrace_redaction_cache": ("counter", "Texts looked up in the cache", ("result",)),
    "headrace_open_trajectories": ("gauge", "Trajectories held in state", ()),
    "headrace_events_after_retention": (
        "counter",
        "Events of trajectories whose state assembly has let go",
        (),
    ),
    "headrace_log_gap_records": (
        "counter",
        "Records that retention deleted before they were read",
        ("group", "topic"),
    ),
    "headrace_trainer_steps": ("counter", "Steps of the trainer, stopped ones included", ()),
    "headrace_trainer_stopped": ("counter", "Updates that a sentinel stopped", ("reason",)),
    "headrace_trainer_left_out": ("counter", "Samples that a step left out", ("reason",)),
    "headrace_trainer_version": ("gauge", "Version that the trainer published last", ()),
    "headrace_trainer_figure": ("gauge", "Figures of the last step", ("figure",)),
    "headrace_worker_version": ("gauge", "Version that the worker serves and has proved", ()),
    "headrace_worker_engines": ("counter", "Engines that came up", ()),
    "headrace_worker_refusals": ("counter", "Versions refused, or given up", ("reason",)),
    "headrace_worker_stage_seconds": ("histogram", "Time of fetching and staging a version", ()),
    "headrace_worker_pause_seconds": ("histogram", "Time in which no request was computed", ()),
    "headrace_worker_apply_seconds": ("histogram", "Time from an assignment to its proof", ()),
    "headrace_sample_decisions": (
        "counter",
        "Samples decided: trained, held or dropped",
        ("decision", "why"),
    ),
    "headrace_sample_staleness": (
        "histogram",
        "Versions behind the newest of a sample's oldest trained token, when it is decided",
        (),
    ),
    "headrace_waiting_samples": ("gauge", "Samples that wait for a micro-batch", ()),
    "headrace_microbatches": ("counter", "Micro-batches sent", ()),
    "headrace_microbatch_tokens": ("counter", "Tokens sent to be trained", ()),
    "headrace_tokens_ahead": ("gauge", "Tokens sent that the trainer has not used", ()),
    "headrace_sink_rows": ("counter", "Rows written", ("table",)),
    "headrace_sink_insert_rows": ("histogram", "Rows of one insert", ("table",)),
    "headrace_sink_insert_seconds": ("histogram", "Time of one insert", ("table",)),
}

#: Upper bounds of a histogram's buckets; where none are named, the library's, made for seconds.
BUCKETS = {
    "headrace_gateway_overhead_seconds": (
        0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
    ),
    "headrace_worker_pause_seconds": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0),
    "headrace_worker_stage_seconds": (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0),
    "headrace_worker_apply_seconds": (0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0),
    "headrace_recovery_seconds": (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0),
    "headrace_sample_staleness": (0, 1, 2, 4, 8, 16, 32, 64, 128),
    "headrace_sink_insert_rows": (1, 10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000),
}  # fmt: skip

_TYPES = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


class Metrics:
    """The metrics of one process, on a registry of its own so that tests do not share state."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}

    def answer(self, host: str, port: int) -> None:
        """Answer /metrics there, from a thread that ends with the process. TransientError where
        that port cannot be had: whoever has it may leave it."""
        try:
            start_http_server(port, host, self.registry)
        except OSError as error:
            raise TransientError(
                f"Metrics cannot be answered on {host}, port {port} ({error.strerror}). Set "
                "HEADRACE_METRICS_PORT to a free one."
            ) from None

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name, with labels applied. KeyError for an unregistered name."""
        metric = self._get(name, "counter", labels)
        assert isinstance(metric, Counter)
        return metric

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge of that name, with labels applied."""
        metric = self._get(name, "gauge", labels)
        assert isinstance(metric, Gauge)
        return metric

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of that name, with labels applied."""
        metric = self._get(name, "histogram", labels)
        assert isinstance(metric, Histogram)
        return metric

    def _get(self, name: str, kind: str, labels: dict[str, str]) -> Counter | Gauge | Histogram:
        registered_kind, text, label_names = METRICS[name]
        if registered_kind != kind:
            raise TypeError(f"{name} is a {registered_kind}")
        if name not in self._made:
            self._made[name] = self._make(name, kind, text, label_names)
        metric = self._made[name]
        return metric.labels(**labels) if label_names else metric

    def _make(
        self, name: str, kind: str, text: str, label_names: tuple[str, ...]
    ) -> Counter | Gauge | Histogram:
        if name in BUCKETS:
            return Histogram(name, text, label_names, registry=self.registry, buckets=BUCKETS[name])
        made: Counter | Gauge | Histogram = _TYPES[kind](
            name, text, label_names, registry=self.registry
        )
        return made


def frames_without_text(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace an exception by its type and frames: its text may quote a record's payload."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        event["error_type"] = type(error).__name__
        event["frames"] = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
    return event


class _WithoutText(logging.Formatter):
    """Formats other libraries' records; of an exception only its type and frames, as above."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        return json.dumps(frames_without_text(None, "", {"exc_info": ei[1]}))


class _Unfailing(io.TextIOBase):
    """A stream for log lines that never raises: who writes a line must not fail by it.

    Where the disk is full or nobody reads, lines may be missing; the log says how many were
    refused once it takes lines again. Flushed once a line, as structlog does.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._num_refused = 0

    def write(self, text: str) -> int:
        """Write into the stream's buffer."""
        with contextlib.suppress(OSError):  # the buffer is full: `flush` meets that again
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write a line through."""
        try:
            self._stream.flush()
            if self._num_refused:
                refused = {"event": "log_lines_refused", "num_lines": self._num_refused}
                self._stream.write(json.dumps(refused) + "\n")
                self._num_refused = 0
                self._stream.flush()
        except OSError:
            self._num_refused += 1


def configure_logging(service: str, level: str = "info") -> None:
    """Send structlog and the standard library's loggers to stderr as JSON lines."""
    logging.basicConfig(stream=sys.stderr, level=level.upper(), force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_WithoutText("%(message)s"))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            frames_without_text,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Unfailing(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
