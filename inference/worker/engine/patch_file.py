"""A patch as a file, from the worker to its engine: absolute values at positions of tensors.

    magic · length of the head · head (JSON) · positions and values, tensor by tensor · XXH3-128

Positions are u32 indices into the flat tensor as the checkpoint names it, values its bits.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

_MAGIC = b"hrpatch1"
_HEAD = struct.Struct("<8sQ")
_DIGEST_BYTES = 16
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class BrokenPatchError(ValueError):
    """The file is not what the worker wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What one tensor gets: strictly rising positions, and bits."""

    positions: Any
    bits: Any


def write(path: Path, changes: Mapping[str, Values]) -> int:
    """Write the file, readable by its owner only. Returns its size in bytes."""
    lines = [
        [name, int(changes[name].positions.size), int(changes[name].bits.dtype.itemsize)]
        for name in sorted(changes)
    ]
    head = json.dumps(lines, separators=(",", ":")).encode()
    whole, size = xxhash.xxh3_128(), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:

        def put(data: Any) -> None:
            nonlocal size
            whole.update(data)
            size += file.write(data)

        put(_HEAD.pack(_MAGIC, len(head)))
        put(head)
        for name in sorted(changes):
            put(np.ascontiguousarray(changes[name].positions, np.uint32).data.cast("B"))
            put(np.ascontiguousarray(changes[name].bits).view(np.uint8).data)
        file.write(whole.digest())
    return size + _DIGEST_BYTES


def read(path: Path) -> dict[str, Values]:
    """The changes by name. BrokenPatchError when a single bit is not right."""
    data = np.fromfile(path, np.uint8)
    body = data[:-_DIGEST_BYTES]
    if data.size < _HEAD.size + _DIGEST_BYTES or (
        xxhash.xxh3_128_digest(body.data) != data[-_DIGEST_BYTES:].tobytes()
    ):
        raise BrokenPatchError("the patch file is torn")
    magic, length = _HEAD.unpack_from(body.data)
    if magic != _MAGIC:
        raise BrokenPatchError("the patch file has another format")
    start = _HEAD.size + length
    changes = {}
    for name, count, width in json.loads(body[_HEAD.size : start].tobytes()):
        middle, end = start + 4 * count, start + (4 + width) * count
        # Copies, since a name of odd length leaves the numbers unaligned.
        positions = np.frombuffer(body[start:middle].tobytes(), np.uint32)
        bits = np.frombuffer(body[middle:end].tobytes(), _UNSIGNED[width])
        changes[name] = Values(positions, bits)
        start = end
    if start != body.size:
        raise BrokenPatchError("the patch file has another length")
    return changes
