"""What the spool asks of the file system: a port, so that a test can be the disk that is full."""

import os
from pathlib import Path

_MODE = 0o600


class Disk:
    """The real file system. Every method raises OSError where the disk refuses.

    With `fsync` the two `sync` methods make what was written survive a loss of power; without
    it they do nothing.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._fsync = fsync

    def open_append(self, path: Path) -> int:
        """A descriptor that writes at the end of a private file, made where it is absent."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)

    def write(self, descriptor: int, *parts: bytes) -> int:
        """Append all parts in one call; how many bytes of them the disk took."""
        return os.writev(descriptor, parts)

    def cut(self, descriptor: int, num_bytes: int) -> None:
        """Shorten the file to that size."""
        os.ftruncate(descriptor, num_bytes)

    def sync(self, descriptor: int) -> None:
        """What was written into the file is on the disk when this returns."""
        if self._fsync:
            os.fdatasync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """The names in the folder are on the disk when this returns."""
        if not self._fsync:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Let go of the descriptor."""
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is absent is fine."""
        path.unlink(missing_ok=True)
