"""Number formats of weights, seen as integers.

Weights are compared, moved and digested as bits, never as floats: `!=` on floats misses +0 → -0
and reports every NaN.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
"""Flat array of uint8, uint16 or uint32: the bits of one tensor in row-major order."""


class Dtype(StrEnum):
    """Names as the safetensors format has them."""

    BF16 = "BF16"
    F16 = "F16"
    F32 = "F32"
    F8_E4M3 = "F8_E4M3"
    F8_E5M2 = "F8_E5M2"


@dataclass(frozen=True, slots=True)
class _Format:
    code: int
    unsigned: Any
    signed: Any
    #: Values whose bits under `mask` are all set are NaN or infinite.
    mask: int


_FORMATS = {
    Dtype.BF16: _Format(1, np.uint16, np.int16, 0x7F80),
    Dtype.F16: _Format(2, np.uint16, np.int16, 0x7C00),
    Dtype.F32: _Format(3, np.uint32, np.int32, 0x7F80_0000),
    # E4M3 as accelerators have it: no infinity, one NaN of either sign.
    Dtype.F8_E4M3: _Format(4, np.uint8, np.int8, 0x7F),
    Dtype.F8_E5M2: _Format(5, np.uint8, np.int8, 0x7C),
}
#: Elements looked at together, so that a large tensor needs no second one.
_BLOCK = 1 << 18
_BY_CODE = {form.code: dtype for dtype, form in _FORMATS.items()}


def code_of(dtype: Dtype) -> int:
    """The number that stands for the format on the wire."""
    return _FORMATS[dtype].code


def dtype_of(code: int) -> Dtype | None:
    """The format with that number."""
    return _BY_CODE.get(code)


def unsigned(dtype: Dtype) -> Any:
    """numpy's unsigned integer of the format's width."""
    return _FORMATS[dtype].unsigned


def num_bytes(dtype: Dtype) -> int:
    """Width of one element."""
    return int(np.dtype(_FORMATS[dtype].unsigned).itemsize)


def ordered(bits: Bits) -> Bits:
    """A bijection under which neighbours in value are neighbours as integers.

    o(b) = b ^ ((b >> (w-1)) & (2^(w-1) - 1)) on signed integers of w bits, which is its own
    inverse. -0 lies one below +0.
    """
    width = bits.dtype.itemsize * 8
    signed = bits.view(f"int{width}")
    magnitude = signed.dtype.type((1 << (width - 1)) - 1)
    flipped: Bits = signed ^ ((signed >> signed.dtype.type(width - 1)) & magnitude)
    return flipped.view(bits.dtype)


def are_finite(dtype: Dtype, bits: Bits) -> bool:
    """True when no value is NaN or infinite."""
    form = _FORMATS[dtype]
    mask = form.unsigned(form.mask)
    blocks = (bits[start : start + _BLOCK] for start in range(0, bits.size, _BLOCK))
    return not any(bool(np.any((block & mask) == mask)) for block in blocks)


def zigzag(differences: Bits) -> Bits:
    """Differences modulo 2^w, small of either sign, as small unsigned numbers: 0, -1, 1, -2, …"""
    width = differences.dtype.itemsize * 8
    signed = differences.view(f"int{width}")
    one = signed.dtype.type(1)
    sign = signed >> signed.dtype.type(width - 1)
    numbers: Bits = (signed << one) ^ sign
    return numbers.view(differences.dtype)


def unzigzag(numbers: Bits) -> Bits:
    """The inverse of `zigzag`."""
    one = numbers.dtype.type(1)
    sign = np.zeros_like(numbers) - (numbers & one)
    differences: Bits = (numbers >> one) ^ sign
    return differences
