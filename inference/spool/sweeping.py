"""The thread that deletes the blobs of bodies that are older than `gateway.blob_days`."""

import threading
from datetime import timedelta

import structlog

from schemas.settings import Settings
from schemas.store import sweep
from schemas.telemetry import Metrics

_log = structlog.get_logger("spool")

#: Also before the first sweep: a machine that has just started may not know the time yet.
_EVERY_SECONDS = 600.0


class BlobSweep:
    """Sweeps every ten minutes."""

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
        while not self._stopping.wait(_EVERY_SECONDS):
            self.look()

    def look(self) -> None:
        """One sweep. What the disk refuses is tried again with the next one."""
        swept = sweep(self._uri, self._max_age_seconds)
        if swept.num_refused:
            self._metrics.counter("headrace_blobs_not_swept").inc(swept.num_refused)
            _log.warning("blobs_not_swept", num_blobs=swept.num_refused)
        if swept.num_blobs:
            self._metrics.counter("headrace_blobs_swept").inc(swept.num_blobs)
            _log.info("blobs_swept", num_blobs=swept.num_blobs, num_bytes=swept.num_bytes)
