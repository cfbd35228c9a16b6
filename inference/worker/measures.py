"""What a worker counts, for whoever asks its `/metrics`."""

from schemas.atdp.weights import AckStatus, VersionRef, WeightsAck
from schemas.telemetry import Metrics

_MILLISECONDS = 1000.0


class Measures:
    """The metrics of one worker."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        metrics.gauge("headrace_worker_version").set(0)

    def engine_came_up(self) -> None:
        """An engine answers and holds what it shall hold."""
        self._metrics.counter("headrace_worker_engines").inc()

    def serves(self, version: VersionRef | None) -> None:
        """What is served and proved from now on; None for no version, and while nobody answers."""
        number = 0 if version is None else version.version
        self._metrics.gauge("headrace_worker_version").set(number)

    def told(self, ack: WeightsAck) -> None:
        """What became of a version."""
        if ack.status is not AckStatus.APPLIED:
            reason = ack.error or ack.status.value
            self._metrics.counter("headrace_worker_refusals", reason=reason).inc()
            return
        stage, pause, apply = (
            (milliseconds or 0.0) / _MILLISECONDS
            for milliseconds in (ack.stage_ms, ack.pause_ms, ack.apply_ms)
        )
        self._metrics.histogram("headrace_worker_stage_seconds").observe(stage)
        self._metrics.histogram("headrace_worker_pause_seconds").observe(pause)
        self._metrics.histogram("headrace_worker_apply_seconds").observe(apply)
