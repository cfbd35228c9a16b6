"""The thread that deletes the blobs of bodies when no record can name them any more."""

import threading
from datetime import timedelta

import structlog

from schemas.settings import Settings
from schemas.store import sweep
from schemas.telemetry import Metrics

_log = structlog.get_logger("spool")

_EVERY_SECONDS = 3_600.0


class BlobSweep:
    """Sweeps at its start and then every hour."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._uri = settings.original_blobs
        self._max_age_seconds = timedelta(days=settings.gateway.blob_days).total_seconds()
        self._metrics = metrics
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blob-sweep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False once the thread has ended, wanted or not."""
        return self._thread.is_alive()

    def stop(self, timeout_seconds: float) -> None:
        """End between two sweeps. One under way goes on to its end, or ends with the process."""
        self._stopping.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while True:
            self.look()
            if self._stopping.wait(_EVERY_SECONDS):
                return

    def look(self) -> None:
        """One sweep. What the disk refuses is tried again with the next one."""
        try:
            swept = sweep(self._uri, self._max_age_seconds)
        except OSError as error:
            _log.warning("blobs_not_swept", error=type(error).__name__)
            return
        if swept.num_blobs:
            self._metrics.counter("headrace_blobs_swept").inc(swept.num_blobs)
            _log.info("blobs_swept", num_blobs=swept.num_blobs, num_bytes=swept.num_bytes)
