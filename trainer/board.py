"""Where the figures of each step go beside metrics: one small port, and what implements it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_MAX_BYTES = 50 * 1024**2


class Board(Protocol):
    """Takes the figures of a step: names and finite numbers."""

    def show(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class LinesBoard:
    """A JSON line for each step. At 50 MB the file is put aside as `.1`, replacing the last."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = file
        self._file = file.open("a")

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the line through, so that whoever follows the file sees it."""
        if self._file.tell() > _MAX_BYTES:
            self._file.close()
            self._path.replace(self._path.with_suffix(self._path.suffix + ".1"))
            self._file = self._path.open("a")
        self._file.write(json.dumps({"step": step, **figures}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
