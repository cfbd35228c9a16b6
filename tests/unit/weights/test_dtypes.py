"""Number formats as integers: the order map, zig-zag, what is finite."""

import numpy as np
import pytest

from schemas.weights.dtypes import (
    Bits,
    Dtype,
    are_finite,
    code_of,
    dtype_of,
    num_bytes,
    ordered,
    unsigned,
    unzigzag,
    zigzag,
)
from tests.unit.weights.models import EDGES, NOT_FINITE


def all_bits(dtype: Dtype) -> Bits:
    """Every value of a narrow format; many of a wide one, edges included."""
    if num_bytes(dtype) < 4:
        return np.arange(1 << 8 * num_bytes(dtype)).astype(unsigned(dtype))
    many = np.random.default_rng(7).integers(0, 2**32, 100_000).astype(np.uint32)
    return np.concatenate([many, np.array(EDGES[dtype], np.uint32)])


def as_floats(dtype: Dtype, bits: Bits) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What the bits mean, written down independently of the code."""
    match dtype:
        case Dtype.BF16:
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        case Dtype.F16:
            return bits.view(np.float16).astype(np.float64)
        case Dtype.F32:
            return bits.view(np.float32).astype(np.float64)
        case Dtype.F8_E5M2:
            return (bits.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
        case Dtype.F8_E4M3:
            return np.array([_e4m3(int(b)) for b in bits])


def _e4m3(bits: int) -> float:
    sign = -1.0 if bits & 0x80 else 1.0
    exponent, fraction = (bits >> 3) & 0xF, bits & 7
    if exponent == 0xF and fraction == 7:
        return float("nan")
    if exponent == 0:
        return sign * fraction * 2.0**-9
    return sign * float((8 + fraction) * 2.0 ** (exponent - 10))


@pytest.mark.parametrize("dtype", Dtype)
def test_the_order_map_is_its_own_inverse_and_keeps_the_order_of_values(dtype: Dtype) -> None:
    bits = all_bits(dtype)
    mapped = ordered(bits)
    assert np.array_equal(ordered(mapped), bits)
    assert np.unique(mapped).size == np.unique(bits).size
    with np.errstate(invalid="ignore"):
        values = as_floats(dtype, bits)
    finite = np.isfinite(values)
    order = np.argsort(mapped[finite].view(f"int{8 * num_bytes(dtype)}"), kind="stable")
    assert np.all(np.diff(values[finite][order]) >= 0)


@pytest.mark.parametrize("dtype", Dtype)
def test_minus_zero_lies_one_below_zero(dtype: Dtype) -> None:
    zeros = ordered(np.array(EDGES[dtype][:2], unsigned(dtype)))
    assert zigzag(zeros[1:] - zeros[:1]).tolist() == [1]


@pytest.mark.parametrize("dtype", Dtype)
def test_what_is_finite_is_what_floats_say(dtype: Dtype) -> None:
    bits = all_bits(dtype)
    with np.errstate(invalid="ignore"):
        values = as_floats(dtype, bits)
    said = [are_finite(dtype, bits[i : i + 1]) for i in range(bits.size)]
    assert said == np.isfinite(values).tolist()
    assert not any(are_finite(dtype, np.array([b], unsigned(dtype))) for b in NOT_FINITE[dtype])


@pytest.mark.parametrize("width", [8, 16, 32])
def test_zigzag_makes_small_numbers_of_small_differences_and_comes_back(width: int) -> None:
    small = np.array([0, -1, 1, -2, 2], f"int{width}").view(f"uint{width}")
    assert zigzag(small).tolist() == [0, 1, 2, 3, 4]
    everything = np.arange(1 << min(width, 16)).astype(f"uint{width}")
    spread = everything * np.array((1 << width) // everything.size + 1, f"uint{width}")
    assert np.array_equal(unzigzag(zigzag(spread)), spread)


def test_codes_on_the_wire_are_frozen() -> None:
    assert {dtype.value: code_of(dtype) for dtype in Dtype} == {
        "BF16": 1, "F16": 2, "F32": 3, "F8_E4M3": 4, "F8_E5M2": 5,
    }  # fmt: skip
    assert all(dtype_of(code_of(dtype)) is dtype for dtype in Dtype)
    assert dtype_of(0) is None
