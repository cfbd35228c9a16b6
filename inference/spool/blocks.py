"""Reading a spool file in blocks.

The frames of many events lie side by side. Read one by one, each read lets the relay's thread take
the interpreter and this one wait for it again.
"""

import os
from pathlib import Path

#: At once, and kept: a process reads few files at a time.
_BLOCK_BYTES = 512 * 1024


class SpoolFile:
    """One file, open for reading. What lies before `end` must not change any more."""

    def __init__(self, path: Path, block_bytes: int = _BLOCK_BYTES) -> None:
        """OSError where it cannot be opened."""
        self._block_bytes = block_bytes
        self._descriptor = os.open(path, os.O_RDONLY)
        self._start = 0
        self._block = b""
        #: Offset behind what may be read in advance. The writer may still cut what lies behind it.
        self.end = 0

    def read(self, num_bytes: int, offset: int) -> bytes:
        """That many bytes, fewer where the file ends before."""
        found = self._kept(num_bytes, offset)
        if found is not None:
            return found
        ahead = min(self._block_bytes, self.end - offset)
        if ahead <= num_bytes:
            return os.pread(self._descriptor, num_bytes, offset)
        self._block, self._start = os.pread(self._descriptor, ahead, offset), offset
        return self._block[:num_bytes]

    def read_again(self, num_bytes: int, offset: int) -> bytes:
        """The same, of what has been read before: the block in hand stays."""
        found = self._kept(num_bytes, offset)
        return os.pread(self._descriptor, num_bytes, offset) if found is None else found

    def _kept(self, num_bytes: int, offset: int) -> bytes | None:
        at = offset - self._start
        if at >= 0 and at + num_bytes <= len(self._block):
            return self._block[at : at + num_bytes]
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
