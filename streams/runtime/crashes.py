"""How often each record stopped the process, on disk, because the process is gone by then."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import HeadraceError, PermanentError, Reason

Where = tuple[str, int, int]

#: A record that stopped the process so often is dead-lettered as `bug`.
MAX_CRASHES = 3
#: Records remembered; the oldest is forgotten first. A crash loop concerns one record at a time.
MAX_REMEMBERED = 1_000


class CrashLedger:
    """Counts by coordinates in one small file. A new count is durable before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[Where, int] = {}
        if path.exists():
            rows = json.loads(path.read_text())
            self._counts = {(t, p, o): n for t, p, o, n in rows}

    def count(self, where: Where) -> int:
        """Number of crashes that this record caused."""
        return self._counts.get(where, 0)

    @contextmanager
    def counting(self, where: Where) -> Iterator[None]:
        """Count what is a bug as a crash of this record before it goes on up.

        PermanentError with the reason `bug` for a record that caused too many already.
        """
        if self.count(where) >= MAX_CRASHES:
            raise PermanentError(Reason.BUG)
        try:
            yield
        except HeadraceError:
            raise
        except Exception:
            self.add(where)
            raise

    def add(self, where: Where) -> None:
        """Count one more crash of this record."""
        self._counts[where] = self._counts.pop(where, 0) + 1
        kept = list(self._counts.items())[-MAX_REMEMBERED:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump([[*position, number] for position, number in kept], file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
