"""A folder for what an engine leaves behind: its sockets, and its other temporary files.

vLLM makes a socket for each pair of its processes, and removes none when it is killed. So all of it
lies in one folder, which is emptied before each start and after each end.
"""

import os
import shutil
from pathlib import Path


class Scratch:
    """One engine's folder, under a name that is short enough for a socket."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, readable by its owner only, and empty it."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._empty()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def path(self) -> Path:
        """The folder for other processes of this user, as long as this one lives.

        The name of a socket has at most 107 bytes, and vLLM's own part is 36 to 50 of them. A data
        directory may be deeper than that, so the folder is named by our handle of it.
        """
        short = Path(f"/proc/{os.getpid()}/fd/{self._handle}")
        return short if short.is_dir() else self._folder

    def close(self) -> None:
        """Empty the folder and let go of it. A second time is harmless."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._empty()

    def _empty(self) -> None:
        for entry in self._folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
