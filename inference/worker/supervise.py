"""Keeping one engine alive: start, wait until it answers, notice its death, wait, start again."""

import os
import shutil
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog

from schemas.errors import ConfigError

_MAX_BACKOFF_SECONDS = 30.0
#: An engine that never came up this many times in a row will not come up the next time.
_MAX_FAILED_STARTS = 5
#: How often a running one is looked at, and for how long it may leave that unanswered: a machine
#: that is busy is no reason to start it anew.
_LOOK_SECONDS = 5.0
_SILENT_SECONDS = 60.0
_MAX_LOG_BYTES = 50 * 1024**2
_LOG_TAIL_BYTES = 20_000
_log = structlog.get_logger(__name__)


class Process(Protocol):
    """A started engine."""

    def exit_code(self) -> int | None: ...

    def stop(self) -> None: ...


class Phase(StrEnum):
    """Where the engine is in its life."""

    DOWN = "down"
    STARTING = "starting"
    #: It answers. Only this time; then it is `READY`.
    CAME_UP = "came_up"
    READY = "ready"
    #: It ended. Only this time; then it is `DOWN`.
    WENT_DOWN = "went_down"


class Supervisor:
    """Advances with each call of `tend`, which never waits. For the main thread."""

    def __init__(
        self,
        start: Callable[[], Process],
        is_healthy: Callable[[], bool],
        log: Path,
        start_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._is_healthy, self._log_file = start, is_healthy, log
        self._start_seconds, self._clock = start_seconds, clock
        self._process: Process | None = None
        self._is_up = self._is_proved = False
        self._since = self._looked_at = self._heard_at = 0.0
        self._num_failures = 0

    def tend(self) -> Phase:
        """Look after the engine once. ConfigError when it fails to come up again and again."""
        if self._process is None:
            if self._num_failures and self._clock() < self._since + self._backoff_seconds():
                return Phase.DOWN
            self._process, self._since = self._start(), self._clock()
            self._is_up = self._is_proved = False
            return Phase.STARTING
        if self._process.exit_code() is not None:
            return self._went_down(f"it ended with {self._process.exit_code()}")
        if self._is_up:
            return self._look()
        if self._is_healthy():
            self._is_up = True
            self._looked_at = self._heard_at = self._clock()
            return Phase.CAME_UP
        if self._clock() - self._since > self._start_seconds:
            return self._went_down(f"it was not ready within {self._start_seconds:g} s")
        return Phase.STARTING

    def _look(self) -> Phase:
        """Whether one that runs still answers. A server that hangs does not end by itself."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return Phase.READY
        if self._is_healthy():
            self._heard_at = now
        elif now - self._heard_at > _SILENT_SECONDS:
            return self._went_down(f"it did not answer for {now - self._heard_at:.0f} s")
        self._looked_at = self._clock()
        self._bound_log()
        return Phase.READY

    def _bound_log(self) -> None:
        """Put what there is beside it and begin anew. The engine appends to where it ends."""
        try:
            if self._log_file.exists() and self._log_file.stat().st_size > _MAX_LOG_BYTES:
                shutil.copyfile(self._log_file, self._log_file.with_suffix(".log.1"))
                os.truncate(self._log_file, 0)
        except OSError as error:
            _log.warning("engine_log_grows", reason=error.strerror or "")

    def has_proved_itself(self) -> None:
        """The engine that came up is what it should be: failures before it count no more."""
        self._is_proved, self._num_failures = True, 0

    def reject(self, why: str) -> None:
        """End one that came up and is of no use. ConfigError after too many in a row."""
        self._went_down(why)

    def _went_down(self, why: str) -> Phase:
        was_proved = self._is_proved
        self.end()
        self._num_failures += 1
        _log.warning("engine_ended", reason=why, was_ready=was_proved, failures=self._num_failures)
        if not was_proved and self._num_failures >= _MAX_FAILED_STARTS:
            raise ConfigError(
                f"The engine does not come up: {why}. Its last words: {self._last_words()} The "
                f"whole log is {self._log_file}."
            )
        return Phase.WENT_DOWN

    def _backoff_seconds(self) -> float:
        return min(float(2 ** (self._num_failures - 1)), _MAX_BACKOFF_SECONDS)

    def end(self) -> None:
        """Stop the engine, if there is one. `tend` starts another one."""
        if self._process is not None:
            self._process.stop()
        self._process, self._since = None, self._clock()
        self._is_up = self._is_proved = False

    def _last_words(self) -> str:
        try:
            with self._log_file.open("rb") as file:
                file.seek(max(0, self._log_file.stat().st_size - _LOG_TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "(none)"
        errors = [line for line in lines if "Error" in line] or lines or ["(none)"]
        return errors[-1][:500]
