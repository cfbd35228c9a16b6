"""One spool folder: segment files and a lock that says whether its process lives."""

import contextlib
import fcntl
import os
import uuid
from pathlib import Path

from inference.spool.disk import Disk

_LOCK = "lock"
_SUFFIX = ".seg"
_UNFINISHED = ".new-"


class SpoolFolder:
    """A folder whose lock this process holds. Files are 0600, the folder 0700."""

    def __init__(self, path: Path, lock: int, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self._lock = lock

    @classmethod
    def create(cls, root: Path, disk: Disk) -> "SpoolFolder":
        """A new, locked folder. It gets its name only once it is locked, so nobody adopts it."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{_next_number(root):08d}-{uuid.uuid4().hex}"
        unfinished = root / f"{_UNFINISHED}{name}"
        unfinished.mkdir(mode=0o700)
        lock = os.open(unfinished / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = unfinished.rename(root / name)
        for folder in (root, root.parent):
            disk.sync_folder(folder)
        return cls(path, lock, disk)

    @classmethod
    def adopt(cls, path: Path, disk: Disk) -> "SpoolFolder | None":
        """The folder of a process that has died, locked; None where its process lives."""
        try:
            lock = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        if os.fstat(lock).st_nlink == 0:  # somebody else adopted, published and removed it
            os.close(lock)
            return None
        return cls(path, lock, disk)

    def segment_path(self, number: int) -> Path:
        """The file of a segment."""
        return self.path / f"{number:08d}{_SUFFIX}"

    def segments(self) -> dict[int, int]:
        """Number → size in bytes of the files that exist, in order."""
        found = sorted(self.path.glob(f"*{_SUFFIX}"))
        return {int(file.stem): file.stat().st_size for file in found}

    def delete_segment(self, number: int) -> None:
        """Remove a file whose content is delivered. OSError where the disk refuses."""
        self.disk.remove(self.segment_path(number))

    def release(self) -> None:
        """Give the lock back; remove the folder if nothing waits in it."""
        with contextlib.suppress(OSError):  # the disk refuses: the next process tries again
            if not self.segments():
                for note in self.path.glob("*.done"):  # left by a kill between two removals
                    note.unlink(missing_ok=True)
                (self.path / _LOCK).unlink(missing_ok=True)
                self.path.rmdir()
        os.close(self._lock)


def others(root: Path, own: Path | None) -> list[Path]:
    """Folders of other processes, dead or alive, in the order in which they were made: what one
    process took comes after what the one before it left. No clock says so, their numbers do."""
    if not root.is_dir():
        return []
    found = [
        path
        for path in root.iterdir()
        if path.is_dir() and path != own and not path.name.startswith(_UNFINISHED)
    ]
    return sorted(found, key=lambda path: (_number(path), path.name))


def _next_number(root: Path) -> int:
    """Higher than those of all folders that still hold something."""
    return max(map(_number, others(root, None)), default=0) + 1


def _number(path: Path) -> int:
    """0 for a folder that an earlier version named."""
    number, dash, _ = path.name.partition("-")
    return int(number) if dash and number.isdecimal() else 0
