"""Small models for the tests: hypothesis strategies, and seeded walks over many versions."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from schemas.weights.dtypes import Bits, Dtype, are_finite, num_bytes, ordered, unsigned
from schemas.weights.tensors import Tensor, Tensors, tensor

#: Bits of ±0, the smallest subnormals, the largest subnormal, ±1 or so, the extremes.
EDGES = {
    Dtype.BF16: [0, 0x8000, 1, 0x8001, 0x7F, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F],
    Dtype.F16: [0, 0x8000, 1, 0x8001, 0x3FF, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF],
    Dtype.F32: [0, 0x8000_0000, 1, 0x8000_0001, 0x7F_FFFF, 0x3F80_0000, 0x7F7F_FFFF, 0xFF7F_FFFF],
    Dtype.F8_E4M3: [0, 0x80, 1, 0x81, 7, 0x38, 0xB8, 0x7E, 0xFE],
    Dtype.F8_E5M2: [0, 0x80, 1, 0x81, 3, 0x3C, 0xBC, 0x7B, 0xFB],
}
NOT_FINITE = {
    Dtype.BF16: [0x7F80, 0xFF80, 0x7FC0, 0xFFFF],
    Dtype.F16: [0x7C00, 0xFC00, 0x7E00, 0xFFFF],
    Dtype.F32: [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFFF_FFFF],
    Dtype.F8_E4M3: [0x7F, 0xFF],
    Dtype.F8_E5M2: [0x7C, 0xFC, 0x7F, 0xFD],
}


def _is_finite(dtype: Dtype, value: int) -> bool:
    return are_finite(dtype, np.array([value], unsigned(dtype)))


def finite_bits(dtype: Dtype) -> st.SearchStrategy[int]:
    """One finite value, edges more often than chance would have them."""
    anything = st.integers(0, (1 << 8 * num_bytes(dtype)) - 1)
    finite = anything.filter(lambda value: _is_finite(dtype, value))
    return st.one_of(st.sampled_from(EDGES[dtype]), finite)


@st.composite
def versions(draw: st.DrawFn) -> tuple[Tensors, Tensors]:
    """Two versions of one model of up to three tensors, with any share of changed elements."""
    base, new = {}, {}
    for name in draw(st.lists(st.sampled_from(["a", "b.weight", "ç"]), min_size=1, unique=True)):
        dtype = draw(st.sampled_from(list(Dtype)))
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        values: Any = arrays.arrays(unsigned(dtype), shape, elements=finite_bits(dtype))
        base[name] = tensor(dtype, shape, draw(values))
        others = draw(values).reshape(-1)
        flags: Any = arrays.arrays(np.bool_, others.shape)
        new[name] = tensor(dtype, shape, np.where(draw(flags), others, base[name].bits))
    return base, new


def random_model(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Finite tensors of all number formats in turn."""
    formats = list(Dtype)
    model = {}
    for i, (name, shape) in enumerate(sorted(shapes.items())):
        dtype = formats[i % len(formats)]
        model[name] = tensor(dtype, shape, _random_bits(rng, dtype, int(np.prod(shape))))
    return model


def _random_bits(rng: np.random.Generator, dtype: Dtype, size: int) -> Bits:
    top = 1 << 8 * num_bytes(dtype)
    bits = rng.integers(0, top, size).astype(unsigned(dtype))
    edges = np.array(EDGES[dtype], unsigned(dtype))
    bits[rng.random(size) < 0.1] = edges[0]
    return _finite_or(edges[-1], dtype, bits)


def _finite_or(instead: Any, dtype: Dtype, bits: Bits) -> Bits:
    mask = bits.dtype.type(NOT_FINITE[dtype][0])
    return np.where((bits & mask) == mask, instead, bits).astype(bits.dtype)


def stepped(rng: np.random.Generator, model: Tensors, density: float) -> dict[str, Tensor]:
    """The next version: of that share of elements most move by one, some anywhere."""
    new = {}
    for name, old in model.items():
        dtype, bits = old.spec.dtype, old.bits.copy()
        at = np.flatnonzero(rng.random(bits.size) < density)
        small = rng.choice(np.array([1, 255], np.uint8), at.size).view(np.int8)
        near = ordered(ordered(bits[at]) + small.astype(f"int{8 * num_bytes(dtype)}")
                       .view(bits.dtype))  # fmt: skip
        far = rng.integers(0, 1 << 8 * num_bytes(dtype), at.size).astype(bits.dtype)
        values = np.where(rng.random(at.size) < 0.9, near, far)
        bits[at] = _finite_or(EDGES[dtype][1], dtype, values)
        new[name] = tensor(dtype, old.spec.shape, bits)
    return new


def same(one: Tensors, other: Tensors) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].spec == other[name].spec
        and bool(np.array_equal(one[name].bits, other[name].bits))
        for name in one
    )


SHAPES: dict[str, tuple[int, ...]] = {"a": (40, 9), "b": (31,), "c": (2, 2), "d": (1,), "e": (64,)}


def walk(num_versions: int, density: float = 0.05, seed: int = 1) -> list[dict[str, Tensor]]:
    """So many versions of a small model, each a step from the one before."""
    rng = np.random.default_rng(seed)
    models = [random_model(rng, SHAPES)]
    for _ in range(num_versions - 1):
        models.append(stepped(rng, models[-1], density))
    return models
