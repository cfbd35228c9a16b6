"""Metric names are frozen; the text of an exception never reaches the log."""

import errno
import io
import json
import logging
import socket

import pytest
import structlog
from prometheus_client import generate_latest

from schemas.errors import TransientError
from schemas.telemetry import METRICS, Metrics, configure_logging

#: Dashboards and alerts of users hold these names: add, never rename.
FROZEN = {
    "headrace_gateway_requests": ("path", "outcome"),
    "headrace_gateway_overhead_seconds": (),
    "headrace_gateway_feedback": ("target",),
    "headrace_gateway_shed": (),
    "headrace_gateway_uncaptured": (),
    "headrace_upstream_tries": ("upstream", "result"),
    "headrace_spool_bytes": (),
    "headrace_blobs_swept": (),
    "headrace_blobs_not_swept": (),
    "headrace_spool_refused": ("what",),
    "headrace_spool_published": ("result",),
    "headrace_spool_age_seconds": (),
    "headrace_healthy": (),
    "headrace_lag_records": ("group", "topic", "partition"),
    "headrace_commit_age_seconds": ("group",),
    "headrace_recovery_seconds": ("group",),
    "headrace_records": ("group", "result"),
    "headrace_dead_letters": ("group", "reason"),
    "headrace_quarantined": ("reason",),
    "headrace_retries": ("group",),
    "headrace_batch_seconds": ("group",),
    "headrace_held_events": (),
    "headrace_held_bytes": (),
    "headrace_state_rows": ("group", "table"),
    "headrace_state_rows_forgotten": ("group", "table"),
    "headrace_redaction_cache": ("result",),
    "headrace_events_after_retention": (),
    "headrace_hold_expired": (),
    "headrace_open_trajectories": (),
    "headrace_log_gap_records": ("group", "topic"),
    "headrace_gateway_unanswered": (),
    "headrace_routable_workers": (),
    "headrace_sample_decisions": ("decision", "why"),
    "headrace_sample_staleness": (),
    "headrace_waiting_samples": (),
    "headrace_microbatches": (),
    "headrace_microbatch_tokens": (),
    "headrace_tokens_ahead": (),
    "headrace_trainer_steps": (),
    "headrace_trainer_stopped": ("reason",),
    "headrace_trainer_left_out": ("reason",),
    "headrace_trainer_version": (),
    "headrace_trainer_figure": ("figure",),
    "headrace_sink_rows": ("table",),
    "headrace_sink_insert_rows": ("table",),
    "headrace_sink_insert_seconds": ("table",),
    "headrace_worker_version": (),
    "headrace_worker_engines": (),
    "headrace_worker_refusals": ("reason",),
    "headrace_worker_stage_seconds": (),
    "headrace_worker_pause_seconds": (),
    "headrace_worker_apply_seconds": (),
}


def test_metric_names_and_labels_are_frozen() -> None:
    assert {name: labels for name, (_, _, labels) in METRICS.items()} == FROZEN


def test_a_metric_can_be_made_used_and_read() -> None:
    metrics = Metrics()
    metrics.counter("headrace_records", group="g", result="handled").inc()
    metrics.counter("headrace_records", group="g", result="handled").inc()
    metrics.gauge("headrace_held_events").set(3)
    metrics.histogram("headrace_batch_seconds", group="g").observe(0.5)
    text = generate_latest(metrics.registry).decode()
    assert 'headrace_records_total{group="g",result="handled"} 2.0' in text
    assert "headrace_held_events 3.0" in text


def test_a_port_that_another_process_has_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TransientError, match=f"port {port}.*HEADRACE_METRICS_PORT"):
            Metrics().answer("127.0.0.1", port)


def test_an_unregistered_name_or_kind_is_a_bug() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.counter("headrace_surprise")
    with pytest.raises(TypeError, match="is a gauge"):
        metrics.counter("headrace_held_events")


def test_a_logged_exception_shows_its_type_and_frames_but_not_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    secret = "alice@example.com"
    try:
        configure_logging("test")
        try:
            int(secret)
        except ValueError as error:
            structlog.get_logger().error("broke", exc_info=True, offset=7)
            structlog.get_logger().error("broke", exc_info=error)
            logging.getLogger("another.module").exception("Error handling request")
        structlog.get_logger().debug("below the level")
    finally:
        root.handlers[:], root.level = handlers, level
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    text = capsys.readouterr().err
    assert secret not in text
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    library = lines.pop()
    assert library["error_type"] == "ValueError"
    assert library["frames"]
    assert [line["error_type"] for line in lines] == ["ValueError", "ValueError"]
    assert all(line["frames"] and line["service"] == "test" for line in lines)
    assert lines[0]["offset"] == 7
    assert lines[0]["at"].endswith("Z")


class _FullFile(io.StringIO):
    """A log file whose disk is full for a while."""

    is_full = False

    def flush(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    file = _FullFile()
    monkeypatch.setattr("sys.stderr", file)
    try:
        configure_logging("test")
        log = structlog.get_logger("test")
        file.is_full = True
        log.info("one")
        log.info("two")
        file.is_full = False
        log.info("three")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    events = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["one", "two", "three", "log_lines_refused"]
    assert events[-1]["num_lines"] == 2
