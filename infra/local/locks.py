"""A file lock by which others see that somebody is at work; it ends with its process."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import ConfigError

_POLL_SECONDS = 0.2


@contextmanager
def in_turn(
    path: Path, what: str, within_seconds: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Hold the lock for the length of the block; others that make the same thing wait for it.

    `say` is told that it waits. ConfigError where the other process does not finish in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, deadline, told = _open(path), time.monotonic() + within_seconds, False
    try:
        while not _taken(handle):
            if not told:
                say(f"another process makes {what}; waiting for it")
                told = True
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"Another process holds {path} and does not finish. End it and try again."
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Hold the lock for the length of the block. ConfigError with `taken` where another has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(taken) from None
    try:
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """True while a process holds the lock."""
    if not path.parent.is_dir():
        return False
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
