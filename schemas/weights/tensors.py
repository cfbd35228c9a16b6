"""Tensors as bits, their digests, and the root that stands for all of them."""

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xxhash

from schemas.weights.dtypes import Bits, Dtype, code_of, num_bytes, unsigned
from schemas.weights.refusals import Refusal, RefusedError

#: Beyond these a layout is not a model that headrace can carry.
MAX_TENSORS = 100_000
MAX_NAME_BYTES = 512
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Spec:
    """Number format and shape of a tensor."""

    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Product of the shape; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.num_elements * num_bytes(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One tensor: its spec, and its bits as a flat array of unsigned integers."""

    spec: Spec
    bits: Bits


Layout = Mapping[str, Spec]
Tensors = Mapping[str, Tensor]


def tensor(dtype: Dtype, shape: tuple[int, ...], bits: Bits) -> Tensor:
    """A tensor after a check of its bits. RefusedError when they do not fit dtype and shape."""
    spec = Spec(dtype, shape)
    flat = bits.reshape(-1)
    if flat.dtype != np.dtype(unsigned(dtype)) or flat.size != spec.num_elements:
        raise RefusedError(Refusal.WRONG_LAYOUT)
    return Tensor(spec, flat)


def layout_of(tensors: Tensors) -> dict[str, Spec]:
    """Names, number formats and shapes, sorted by name."""
    return {name: tensors[name].spec for name in sorted(tensors)}


def require_layout(layout: Layout) -> None:
    """Refuse a layout beyond the limits. RefusedError names the tensor."""
    if len(layout) > MAX_TENSORS:
        raise RefusedError(Refusal.WRONG_LAYOUT, f"{len(layout)} tensors")
    for name, spec in layout.items():
        fits = 0 < len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES
        fits &= len(spec.shape) <= MAX_DIMENSIONS and all(size >= 0 for size in spec.shape)
        if not fits or spec.num_elements > MAX_ELEMENTS:
            raise RefusedError(Refusal.WRONG_LAYOUT, name[:100])


def require_same_layout(base: Layout, new: Layout) -> None:
    """Refuse tensors that were added, removed, reshaped or recast. RefusedError names the first."""
    for name in sorted({*base, *new}):
        if base.get(name) != new.get(name):
            raise RefusedError(
                Refusal.WRONG_LAYOUT, f"{name[:100]} ({_difference(base, new, name)})"
            )


def _difference(base: Layout, new: Layout, name: str) -> str:
    if name not in base:
        return "added"
    if name not in new:
        return "removed"
    return f"{_text(base[name])} became {_text(new[name])}"


def _text(spec: Spec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"


def digest(bits: Bits) -> bytes:
    """XXH3-128 of a tensor's bytes, 16 bytes."""
    return xxhash.xxh3_128_digest(np.ascontiguousarray(bits).view(np.uint8).data)


def digests_of(tensors: Tensors) -> dict[str, bytes]:
    """The digest of every tensor."""
    return {name: digest(tensors[name].bits) for name in sorted(tensors)}


def root_of(layout: Layout, digests: Mapping[str, bytes]) -> str:
    """SHA-256, in hex, over the leaves (name, dtype, shape, digest) sorted by name.

    To follow a change, replace the digests of the changed tensors and call this again: tensors
    that did not change are not read.
    """
    whole = hashlib.sha256(b"headrace weights root/1")
    for name in sorted(layout):
        spec, encoded = layout[name], name.encode()
        head = struct.pack("<IBB", len(encoded), code_of(spec.dtype), len(spec.shape))
        whole.update(head + encoded + struct.pack(f"<{len(spec.shape)}Q", *spec.shape))
        whole.update(digests[name])
    return whole.hexdigest()
