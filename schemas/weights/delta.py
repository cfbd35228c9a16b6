"""What changed between two versions: positions, and differences under the order map."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.weights.dtypes import Bits, are_finite, ordered
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Layout, Tensor

Positions = NDArray[np.uint32]

_WORD_BYTES = 8
#: Words compared at a time: what is compared stays in the cache, and memory is bounded.
_BLOCK_WORDS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class TensorDelta:
    """Strictly rising positions, and o(new) - o(old) modulo 2^w at each, never 0."""

    positions: Positions
    differences: Bits


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """The way from one root to another. `changed` holds the tensors that differ, by name."""

    layout: Layout
    changed: Mapping[str, TensorDelta]
    from_root: str
    root: str

    @property
    def num_changed(self) -> int:
        """Elements that differ."""
        return sum(part.positions.size for part in self.changed.values())

    @property
    def num_elements(self) -> int:
        """Elements of the whole model."""
        return sum(spec.num_elements for spec in self.layout.values())

    def inverse(self) -> "Delta":
        """The way back, in O(changed)."""
        back = {
            name: TensorDelta(part.positions, np.zeros_like(part.differences) - part.differences)
            for name, part in self.changed.items()
        }
        return Delta(self.layout, back, self.root, self.from_root)


def difference(name: str, old: Tensor, new: Tensor) -> TensorDelta | None:
    """What changed in one tensor; None when nothing did.

    RefusedError when a changed value is NaN or infinite. The specs are the same.
    """
    positions = changed_positions(old.bits, new.bits)
    if positions.size == 0:
        return None
    values = new.bits[positions]
    if not are_finite(new.spec.dtype, values):
        raise RefusedError(Refusal.NOT_FINITE, name)
    return TensorDelta(positions, ordered(values) - ordered(old.bits[positions]))


def changed_positions(old: Bits, new: Bits) -> Positions:
    """Indices at which two flat arrays of the same type and size differ, rising.

    Whole words of eight bytes are compared first: few of them differ, so little is looked at twice.
    """
    lanes = _WORD_BYTES // old.dtype.itemsize
    whole = old.size - old.size % lanes
    old_words, new_words = _words(old[:whole]), _words(new[:whole])
    found = [
        _changed_in_block(old_words[start:end], new_words[start:end], start, old.dtype)
        for start in range(0, old_words.size, _BLOCK_WORDS)
        for end in [start + _BLOCK_WORDS]
    ]
    tail = np.flatnonzero(old[whole:] != new[whole:]) + whole
    return np.concatenate([*found, tail.astype(np.uint32)])


def _changed_in_block(
    old: NDArray[np.uint64], new: NDArray[np.uint64], first_word: int, dtype: np.dtype[Any]
) -> Positions:
    """The same for one block, as positions in the whole; while its words are in the cache."""
    words = np.flatnonzero(old != new)
    inside = np.flatnonzero((old[words] ^ new[words]).view(dtype) != 0)
    lanes = _WORD_BYTES // dtype.itemsize
    positions = (words[inside // lanes] + first_word) * lanes + inside % lanes
    return positions.astype(np.uint32)


def _words(bits: Bits) -> NDArray[Any]:
    return np.ascontiguousarray(bits).view(np.uint64)


def moved(old: Bits, differences: Bits) -> Bits:
    """The new values where old ones move by these differences."""
    return ordered(ordered(old) + differences)
