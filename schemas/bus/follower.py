"""The life of a thread that follows topics: it begins anew after a pause where Kafka is away."""

import threading
from abc import ABC, abstractmethod

import structlog

from schemas.errors import ConfigError, TransientError

_log = structlog.get_logger("bus")

_RETRY_SECONDS = 1.0
_STOP_SECONDS = 5.0


class Follower(ABC):
    """Started once. What it knows may be read by any thread."""

    def __init__(self, name: str) -> None:
        #: What the last attempt failed for, empty while it gets on.
        self.waits_for = ""
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _follow(self) -> None:
        """Read until `is_stopping`. Whatever is open is closed when this raises."""

    @property
    def is_stopping(self) -> bool:
        """True once the thread has been told to end."""
        return self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        """False once the thread has ended, wanted or not."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(timeout=_STOP_SECONDS)

    def _run(self) -> None:
        while not self.is_stopping:
            try:
                self._follow()
            except (TransientError, ConfigError) as error:
                self.waits_for = str(error)
                _log.info("follower_waits", follower=self._name, error=str(error))
                self._stopping.wait(_RETRY_SECONDS)
