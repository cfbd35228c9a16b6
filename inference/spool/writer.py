"""The writing side of a spool, used from the event loop only."""

import errno
import os
import threading
from pathlib import Path

from inference.spool import frames
from inference.spool.folder import SpoolFolder
from inference.spool.frames import Kind
from schemas.errors import TransientError


class SpoolFullError(TransientError):
    """The spool has reached its limit: Kafka has not taken what waits in it."""

    def __init__(self) -> None:
        super().__init__("The spool is full because Kafka does not take its events.")


class SpoolWriteError(TransientError):
    """The disk refused a write; nothing of that frame is in the file."""

    def __init__(self, number: int | None) -> None:
        super().__init__(f"The spool's disk refused a write: {os.strerror(number or 0)}.")


class Spool:
    """Appends frames to segment files.

    `max_bytes` limits what may begin; an exchange that has begun may finish beyond it, so that
    no answer is cut short because Kafka is away.
    """

    def __init__(self, root: Path, *, max_bytes: int, fsync: bool) -> None:
        self.folder = SpoolFolder.create(root)
        self.wake = threading.Event()
        self._max_bytes = max_bytes
        self._segment_bytes = min(max(max_bytes // 8, 64 * 1024), 8 * 1024**2)
        self._fsync = fsync
        self._written_bytes = 0
        self._trimmed_bytes = 0
        self._segment = 0
        self._size = 0
        self._descriptor = self._open(0)

    def _open(self, segment: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(self.folder.segment_path(segment), flags, 0o600)

    @property
    def position(self) -> tuple[int, int]:
        """Active segment and the bytes of it that are whole frames."""
        return self._segment, self._size

    @property
    def backlog_bytes(self) -> int:
        """Bytes in files that are not deleted yet."""
        return self._written_bytes - self._trimmed_bytes

    def begin(self, kind: Kind, exchange_id: bytes, payload: bytes) -> None:
        """Append something new. SpoolFullError when the limit is reached."""
        if self.backlog_bytes + len(payload) + frames.OVERHEAD_BYTES > self._max_bytes:
            raise SpoolFullError
        self.append(kind, exchange_id, payload)

    def append(self, kind: Kind, exchange_id: bytes, payload: bytes) -> None:
        """Append a frame; it is in the file when this returns. SpoolWriteError if it is not."""
        head = frames.header(kind, exchange_id, payload)
        wanted = len(head) + len(payload)
        try:
            written = os.writev(self._descriptor, (head, payload))
            if self._fsync:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._forget_from(self._size)
            raise SpoolWriteError(error.errno) from error
        if written != wanted:
            self._forget_from(self._size)
            raise SpoolWriteError(errno.ENOSPC)
        self._size += wanted
        self._written_bytes += wanted
        if self._size >= self._segment_bytes:
            self._roll()
        if kind in (Kind.END, Kind.RECORD):
            self.wake.set()

    def _forget_from(self, size: int) -> None:
        """No half frame may stay: what is appended next would be unreadable behind it."""
        os.ftruncate(self._descriptor, size)

    def roll_if_read(self, position: tuple[int, int]) -> None:
        """Begin a new file if all up to `position` is delivered and nothing came since.

        So that delivered text does not stay on the disk until the next call.
        """
        if self._size and position == self.position:
            self._roll()
            self.wake.set()

    def _roll(self) -> None:
        try:
            descriptor = self._open(self._segment + 1)
        except OSError:
            return  # no room for another file; the next append tries again
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._segment, self._size = self._segment + 1, 0

    def trimmed(self, num_bytes: int) -> None:
        """The publisher deleted that much. Called on its thread, the only writer of the sum."""
        self._trimmed_bytes += num_bytes

    def close(self) -> None:
        """Close the active file. What is not published stays for the next process."""
        os.close(self._descriptor)
