"""Whole models in the safetensors format: blobs of a snapshot, and folders that people have.

What is written here any safetensors reader reads. What is read is not trusted.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from schemas.errors import ConfigError
from schemas.weights.dtypes import Dtype, unsigned
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Spec, Tensor, Tensors, require_layout

CODEC = "safetensors"
#: A snapshot is cut into blobs of about this size, at least a tensor each.
SHARD_BYTES = 256 * 1024**2
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100_000_000


def shards(tensors: Tensors, shard_bytes: int = SHARD_BYTES) -> Iterator[bytes]:
    """The model as safetensors files, tensors in the order of their names.

    The same weights make the same bytes. One file is in memory at a time.
    """
    pending: dict[str, Tensor] = {}
    size = 0
    for name in sorted(tensors):
        num_bytes = tensors[name].spec.num_bytes
        if pending and size + num_bytes > shard_bytes:
            yield shard(pending)
            pending, size = {}, 0
        pending[name] = tensors[name]
        size += num_bytes
    yield shard(pending)


def shard(tensors: Tensors) -> bytes:
    """One safetensors file. The data begins at a multiple of eight bytes."""
    header: dict[str, Any] = {}
    end = 0
    for name in sorted(tensors):
        spec = tensors[name].spec
        start, end = end, end + spec.num_bytes
        header[name] = {"dtype": spec.dtype.value, "shape": [*spec.shape],
                        "data_offsets": [start, end]}  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = [np.ascontiguousarray(tensors[name].bits).tobytes() for name in sorted(tensors)]
    return b"".join((_LENGTH.pack(len(text)), text, *data))


def read_shard(data: bytes | memoryview | Any) -> dict[str, Tensor]:
    """The tensors of one safetensors file, as views of `data`.

    RefusedError for what is no such file, or holds a number format that headrace does not carry.
    """
    view = memoryview(data).cast("B")
    header, start = _header(view)
    tensors: dict[str, Tensor] = {}
    spans = []
    for name, entry in header.items():
        spec, first, last = _entry(name, entry)
        if not 0 <= first <= last <= view.nbytes - start or last - first != spec.num_bytes:
            raise RefusedError(Refusal.CORRUPT, name[:100])
        spans.append((first, last))
        bits = np.frombuffer(view[start + first : start + last], np.uint8)
        tensors[name] = Tensor(spec, bits.view(unsigned(spec.dtype)))
    require_layout({name: tensor.spec for name, tensor in tensors.items()})
    if not _cover(spans, view.nbytes - start):
        raise RefusedError(Refusal.CORRUPT, "data")
    return tensors


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    if view.nbytes < _LENGTH.size:
        raise RefusedError(Refusal.CORRUPT, "header")
    (length,) = _LENGTH.unpack_from(view)
    if length > min(_MAX_HEADER_BYTES, view.nbytes - _LENGTH.size):
        raise RefusedError(Refusal.CORRUPT, "header")
    start = _LENGTH.size + length
    try:
        header = json.loads(bytes(view[_LENGTH.size : start]))
    except (ValueError, RecursionError):
        raise RefusedError(Refusal.CORRUPT, "header") from None
    if not isinstance(header, dict):
        raise RefusedError(Refusal.CORRUPT, "header")
    header.pop("__metadata__", None)
    return header, start


def _entry(name: str, entry: Any) -> tuple[Spec, int, int]:
    try:
        code, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, first, last]
    except (KeyError, TypeError, ValueError):
        raise RefusedError(Refusal.CORRUPT, name[:100]) from None
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise RefusedError(Refusal.CORRUPT, name[:100])
    try:
        dtype = Dtype(code)
    except ValueError:
        raise RefusedError(Refusal.WRONG_LAYOUT, f"{name[:100]} ({str(code)[:20]})") from None
    return Spec(dtype, tuple(shape)), first, last


def _cover(spans: list[tuple[int, int]], size: int) -> bool:
    """Whether the spans lie one behind the other, without holes, from the beginning to the end."""
    ordered = sorted(spans)
    starts = [0, *(last for _, last in ordered)]
    return starts[-1] == size and all(s == f for s, (f, _) in zip(starts, ordered, strict=False))


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The model in a Hugging Face checkpoint folder: all its *.safetensors, mapped into memory.

    ConfigError where there are none, or where a tensor is there twice or cannot be carried.
    """
    paths = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    if not paths:
        raise ConfigError(
            f"{folder} holds no *.safetensors. Name a Hugging Face checkpoint folder."
        )
    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            found = read_shard(np.memmap(path, np.uint8, "r") if path.stat().st_size else b"")
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror}).") from None
        except RefusedError as error:
            raise ConfigError(_sentence(path, error)) from None
        if twice := sorted(tensors.keys() & found.keys()):
            raise ConfigError(f"{twice[0]} is in two files of {folder}. Keep one set of files.")
        tensors |= found
    return tensors


def _sentence(path: Path, error: RefusedError) -> str:
    if error.refusal is Refusal.WRONG_LAYOUT:
        formats = ", ".join(Dtype)
        return f"{path.name}: {error.where} cannot be carried. Save the model as one of {formats}."
    return f"{path} is no whole safetensors file ({error.where}). Save or download it again."


def dtype_of_all(layout: Mapping[str, Spec]) -> str:
    """The one number format of a model, or `mixed`."""
    dtypes = {spec.dtype.value for spec in layout.values()}
    return dtypes.pop() if len(dtypes) == 1 else "mixed"


def num_elements(layout: Mapping[str, Spec]) -> int:
    """Elements of a model."""
    return sum(math.prod(spec.shape) for spec in layout.values())
