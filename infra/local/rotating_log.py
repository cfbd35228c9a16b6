"""A child's output in a file of bounded size."""

from io import FileIO
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
NUM_OLD_FILES = 2


class RotatingLog:
    """Appends bytes; beyond `max_bytes` the file becomes `.1`, `.1` becomes `.2`, the rest goes."""

    def __init__(
        self, path: Path, max_bytes: int = MAX_BYTES, num_old_files: int = NUM_OLD_FILES
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._num_old_files = num_old_files
        self._num_lost_bytes = 0
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Append, then rotate if that made the file too large. Never raises OSError.

        What the disk refuses is left out, and the log says how much once the disk takes it: a
        child must not stand still, or end, because its log cannot be written.
        """
        taken = 0
        try:
            if self._num_lost_bytes:
                said = f"[{self._num_lost_bytes} bytes of output are missing: the disk was full]"
                self._file.write(f"\n{said}\n".encode())
                self._num_lost_bytes = 0
            taken = self._file.write(data)
            if self._file.tell() >= self._max_bytes:
                self._rotate()
        except OSError:
            pass  # counted below; a rotation is tried again at the next write
        self._num_lost_bytes += len(data) - taken

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> FileIO:
        self.path.touch(mode=0o600, exist_ok=True)
        return self.path.open("ab", buffering=0)

    def _rotate(self) -> None:
        for number in range(self._num_old_files, 0, -1):
            newer = self._old(number - 1) if number > 1 else self.path
            if newer.exists():
                newer.replace(self._old(number))
        fresh = self._open()
        self._file.close()
        self._file = fresh

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def last_lines(path: Path, number: int, window_bytes: int = 65_536) -> list[str]:
    """The last lines of a log, as text; fewer when they do not fit into the window."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - window_bytes))
            return file.read().decode(errors="replace").splitlines()[-number:]
    except FileNotFoundError:
        return []
