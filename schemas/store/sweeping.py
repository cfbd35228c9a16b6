"""Deleting blobs that nobody can need any more.

Nobody counts references: a blob is needed for as long as a record may name it, so its age decides,
and writing it again makes it new.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import fsspec

#: Of a blob that is being looked at for the last time. A look of its own has a name of its own, or
#: one of two sweeps could rename what was put meanwhile over what the other one deletes.
_LEAVING = ".leaving"


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep deleted, and how many files the disk refused."""

    num_blobs: int = 0
    num_bytes: int = 0
    num_refused: int = 0


def sweep(uri: str, max_age_seconds: float) -> Swept:
    """Delete the blobs under a URI that were last put longer ago than that.

    Only in local folders: other stores have rules of their own for that. Several processes may
    sweep at once. A file that the disk refuses to delete stays, and the others go.
    """
    fs, root = fsspec.core.url_to_fs(uri, auto_mkdir=False)
    if "file" not in fs.protocol:
        return Swept()
    oldest = time.time() - max_age_seconds
    num_blobs = num_bytes = num_refused = 0
    for path in _files(Path(root)):
        try:
            size = _delete(path, oldest)
        except OSError:
            num_refused += 1
            continue
        num_blobs += size is not None
        num_bytes += size or 0
    return Swept(num_blobs, num_bytes, num_refused)


def _files(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        yield from (Path(where, name) for name in names)


def _delete(path: Path, oldest: float) -> int | None:
    """Bytes of the file where it is deleted. One that is put again meanwhile keeps its name."""
    with suppress(FileNotFoundError):  # another process was faster
        if path.name.endswith(_LEAVING):  # whoever swept it died; a later sweep decides
            _give_back(path)
            return None
        if path.stat().st_mtime >= oldest:
            return None
        leaving = path.with_name(f"{path.name}.{uuid4().hex}{_LEAVING}")
        path.rename(leaving)
        # From here on `put` finds nothing under the name and writes the blob anew.
        found = leaving.stat()
        if found.st_mtime >= oldest:
            _give_back(leaving)
            return None
        leaving.unlink()
        return found.st_size
    return None


def _give_back(leaving: Path) -> None:
    """As new: it may take the place of what was put under its name meanwhile."""
    os.utime(leaving)
    leaving.rename(leaving.with_suffix("").with_suffix(""))
