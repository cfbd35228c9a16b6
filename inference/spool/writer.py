"""The writing side of a spool, used from the event loop only."""

import contextlib
import errno
import os
import threading
from pathlib import Path

from inference.spool import frames
from inference.spool.disk import Disk
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

    def __init__(self, root: Path, *, max_bytes: int, disk: Disk) -> None:
        """Make a folder of its own under `root`. OSError where the disk refuses."""
        self.folder = SpoolFolder.create(root, disk)
        self.wake = threading.Event()
        self.max_bytes = max_bytes
        self._segment_bytes = min(max(max_bytes // 8, 64 * 1024), 8 * 1024**2)
        self._disk = disk
        self._written_bytes = 0
        self._trimmed_bytes = 0
        self._segment = 0
        self._size = 0
        self._has_half_frame = False
        #: Whole events written so far.
        self.num_events = 0
        #: Size of the last one that found no room.
        self._refused_bytes = 0
        self._descriptor = self._open(0)

    def _open(self, segment: int) -> int:
        descriptor = self._disk.open_append(self.folder.segment_path(segment))
        try:
            self._disk.sync_folder(self.folder.path)
        except OSError:
            self._disk.close(descriptor)
            raise
        return descriptor

    @property
    def position(self) -> tuple[int, int]:
        """Active segment and the bytes of it that are whole frames."""
        return self._segment, self._size

    @property
    def backlog_bytes(self) -> int:
        """Bytes in files that are not deleted yet."""
        return self._written_bytes - self._trimmed_bytes

    @property
    def is_full(self) -> bool:
        """Whether what was last refused would be refused again."""
        return self.backlog_bytes + self._refused_bytes > self.max_bytes

    def begin(self, kind: Kind, exchange_id: bytes, payload: bytes) -> None:
        """Append something new. SpoolFullError when the limit is reached."""
        num_bytes = len(payload) + frames.OVERHEAD_BYTES
        if self.backlog_bytes + num_bytes > self.max_bytes:
            self._refused_bytes = num_bytes
            raise SpoolFullError
        self.append(kind, exchange_id, payload)

    def append(self, kind: Kind, exchange_id: bytes, payload: bytes) -> None:
        """Append a frame; it is in the file when this returns. SpoolWriteError if it is not."""
        head = frames.header(kind, exchange_id, payload)
        wanted = len(head) + len(payload)
        try:
            self._cut_half_frame()
            self._write(head, payload)
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next append does it, or is refused too
                self._cut_half_frame()
            raise SpoolWriteError(error.errno) from error
        self._size += wanted
        self._written_bytes += wanted
        if self._size >= self._segment_bytes:
            self._roll()
        if kind in (Kind.END, Kind.RECORD):
            self.num_events += 1
            self.wake.set()

    def _write(self, head: bytes, payload: bytes) -> None:
        self._has_half_frame = True
        if self._disk.write(self._descriptor, head, payload) != len(head) + len(payload):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.sync(self._descriptor)
        self._has_half_frame = False

    def _cut_half_frame(self) -> None:
        """No half frame may stay: what is appended next would be unreadable behind it."""
        if self._has_half_frame:
            self._disk.cut(self._descriptor, self._size)
            self._has_half_frame = False

    def roll_if_read(self, position: tuple[int, int]) -> None:
        """Begin a new file if all up to `position` is delivered and nothing came since.

        So that delivered text does not stay on the disk until the next call.
        """
        if self._size and position == self.position and not self._has_half_frame:
            self._roll()
            self.wake.set()

    def _roll(self) -> None:
        try:
            descriptor = self._open(self._segment + 1)
        except OSError:
            return  # no room for another file; the next append tries again
        self._disk.close(self._descriptor)
        self._descriptor = descriptor
        self._segment, self._size = self._segment + 1, 0

    def trimmed(self, num_bytes: int) -> None:
        """The publisher deleted that much. Called on its thread, the only writer of the sum."""
        self._trimmed_bytes += num_bytes

    def close(self) -> None:
        """Close the active file. What is not published stays for the next process."""
        self._disk.close(self._descriptor)
