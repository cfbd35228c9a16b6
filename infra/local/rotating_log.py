"""A child's output in a file of bounded size."""

from pathlib import Path
from typing import BinaryIO

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
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Append, then rotate if that made the file too large."""
        self._file.write(data)
        self._file.flush()
        if self._file.tell() >= self._max_bytes:
            self._rotate()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> BinaryIO:
        self.path.touch(mode=0o600, exist_ok=True)
        return self.path.open("ab")

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._num_old_files, 0, -1):
            newer = self._old(number - 1) if number > 1 else self.path
            if newer.exists():
                newer.replace(self._old(number))
        self._file = self._open()

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
