"""The codec: lossless both ways, small, and never fooled."""

import struct
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.weights.delta import Delta, TensorDelta
from schemas.weights.dtypes import Dtype, ordered, unsigned
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Layout, Spec, Tensors, tensor
from schemas.weights.ulpgap import pack, unpack
from tests.unit.weights.models import (
    EDGES,
    NOT_FINITE,
    random_model,
    same,
    stepped,
    versions,
)

_HEADER = struct.Struct("<8s32s32s7Q")
_SHAPES: dict[str, tuple[int, ...]] = {
    "embed": (40, 8), "head": (7,), "layer.0": (16, 5), "layer.1": (3, 3, 3), "norm": (),
    "z": (65,),
}  # fmt: skip


def small_payload() -> tuple[Shadow, Tensors, bytes]:
    rng = np.random.default_rng(5)
    base = random_model(rng, _SHAPES)
    new = stepped(rng, base, 0.2)
    shadow = Shadow(base)
    return shadow, new, pack(shadow.diff(new)[0])


_SMALL = small_payload()


def resealed(payload: bytes) -> bytes:
    """The payload with a checksum that fits: what somebody hostile would send."""
    return payload[:-16] + xxhash.xxh3_128_digest(payload[:-16])


@given(versions())
def test_any_two_versions_travel_there_and_back_bit_for_bit(pair: tuple[Tensors, Tensors]) -> None:
    base, new = pair
    shadow = Shadow(base)
    delta, digests = shadow.diff(new)
    received = unpack(pack(delta), shadow.layout)
    shadow.apply(received, digests)
    assert same(shadow.tensors, new)
    assert shadow.root == Shadow(new).root
    shadow.apply(unpack(pack(received.inverse()), shadow.layout))
    assert same(shadow.tensors, base)
    assert shadow.root == Shadow(base).root


@pytest.mark.parametrize("dtype", Dtype)
def test_every_edge_becomes_every_other_edge(dtype: Dtype) -> None:
    edges = np.array(EDGES[dtype], unsigned(dtype))
    old, new = np.repeat(edges, edges.size), np.tile(edges, edges.size)
    shadow = Shadow({"t": tensor(dtype, (old.size,), old)})
    delta, _ = shadow.diff({"t": tensor(dtype, (old.size,), new)})
    assert delta.num_changed == old.size - edges.size
    shadow.apply(unpack(pack(delta), shadow.layout))
    assert np.array_equal(shadow.tensors["t"].bits, new)


def test_a_thousand_versions_in_a_row_stay_exact() -> None:
    rng = np.random.default_rng(2026)
    model = random_model(rng, _SHAPES)
    shadow, past = Shadow(model), []
    for number in range(1_000):
        new = stepped(rng, model, float(rng.choice([0.0, 0.005, 0.05, 0.3, 1.0])))
        delta, digests = shadow.diff(new)
        patch = shadow.apply(unpack(pack(delta), shadow.layout), digests)
        assert same(shadow.tensors, new), f"version {number} differs"
        past.append((model, patch))
        model = new
    assert shadow.root == Shadow(model).root
    for before, patch in reversed(past[-20:]):
        shadow.write(patch.inverse())
        assert same(shadow.tensors, before)


@pytest.mark.parametrize("gap", [1, 2, 65_535, 65_536, 65_537, 131_072])
@pytest.mark.parametrize("dtype", [Dtype.F8_E5M2, Dtype.BF16])
def test_gaps_around_the_escape_and_first_and_last_elements(gap: int, dtype: Dtype) -> None:
    size = 2 * gap + 1
    old = np.zeros(size, unsigned(dtype))
    new = old.copy()
    new[[0, gap, 2 * gap]] = EDGES[dtype][5]
    shadow = Shadow({"t": tensor(dtype, (size,), old)})
    shadow.apply(unpack(pack(shadow.diff({"t": tensor(dtype, (size,), new)})[0]), shadow.layout))
    assert np.array_equal(shadow.tensors["t"].bits, new)


@pytest.mark.parametrize("density", [0.0024, 0.0063, 0.0175, 0.1, 0.25, 0.9])
def test_the_size_is_near_the_entropy_at_any_density(density: float) -> None:
    rng, size = np.random.default_rng(3), 1_000_000
    # Normal values as bf16, of which a share moves by one either way: two equally likely values.
    old = (rng.standard_normal(size).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    flags = rng.random(size) < density
    steps = rng.choice(np.array([1, 0xFFFF], np.uint16), size)
    new = np.where(flags, ordered(ordered(old) + steps), old)
    shadow = Shadow({"t": tensor(Dtype.BF16, (size,), old)})
    payload = pack(shadow.diff({"t": tensor(Dtype.BF16, (size,), new)})[0])
    share = np.array([1 - density, density / 2, density / 2])
    entropy_bytes = -float(np.sum(share * np.log2(share))) * size / 8
    assert len(payload) <= 1.15 * entropy_bytes + 600


def test_nothing_changed_is_a_small_payload() -> None:
    shadow, _, _ = _SMALL
    delta, digests = shadow.diff(shadow.tensors)
    assert (delta.num_changed, digests, delta.root) == (0, {}, shadow.root)
    assert unpack(pack(delta), shadow.layout).num_changed == 0


def test_every_single_bit_flip_is_refused() -> None:
    shadow, _, payload = _SMALL
    for bit in range(len(payload) * 8):
        broken = bytearray(payload)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RefusedError):
            unpack(bytes(broken), shadow.layout)


def test_every_truncation_and_every_addition_is_refused() -> None:
    shadow, _, payload = _SMALL
    for length in range(len(payload)):
        with pytest.raises(RefusedError):
            unpack(payload[:length], shadow.layout)
    for more in (payload + b"\0", resealed(payload + b"\0")):
        with pytest.raises(RefusedError):
            unpack(more, shadow.layout)


@settings(max_examples=300)
@given(st.data())
def test_hostile_bytes_under_a_good_checksum_change_nothing(data: st.DataObject) -> None:
    """A few bits of a zstd frame mean nothing; others are noticed, by the root at the latest."""
    shadow, new, payload = _SMALL
    broken = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(payload) - 17))] = data.draw(st.integers(0, 255))
    root = shadow.root
    try:
        patch = shadow.apply(unpack(resealed(bytes(broken)), shadow.layout))
    except RefusedError:
        assert shadow.root == root
    else:
        assert same(shadow.tensors, new)
        shadow.write(patch.inverse())
    shadow.prove()


def with_sections(payload: bytes, change: dict[int, bytes]) -> bytes:
    """The payload with other sections, lengths and checksum to match."""
    magic, old, new, *lengths = _HEADER.unpack_from(payload)
    start, sections = _HEADER.size, []
    for index, length in enumerate(lengths):
        sections.append(change.get(index, payload[start : start + length]))
        start += length
    head = _HEADER.pack(magic, old, new, *map(len, sections))
    return resealed(head + b"".join(sections) + bytes(16))


def test_a_frame_that_unpacks_to_more_is_refused_before_it_does() -> None:
    shadow, _, payload = _SMALL
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(300_000_000))
    for section in range(7):
        hostile = with_sections(payload, {section: bomb})
        tracemalloc.start()
        with pytest.raises(RefusedError):
            unpack(hostile, shadow.layout)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 1_000_000


def test_a_frame_that_hides_its_size_or_has_something_behind_it_is_refused() -> None:
    shadow, _, payload = _SMALL
    raw_values = zstandard.ZstdDecompressor().decompress(section_of(payload, 4))
    quiet = zstandard.ZstdCompressor(write_content_size=False).compress(raw_values)
    for section in (quiet, section_of(payload, 4) + b"more", b"\x28\xb5\x2f\xfd", b"no frame"):
        with pytest.raises(RefusedError):
            unpack(with_sections(payload, {4: section}), shadow.layout)


def section_of(payload: bytes, index: int) -> bytes:
    _, _, _, *lengths = _HEADER.unpack_from(payload)
    start = _HEADER.size + sum(lengths[:index])
    return payload[start : start + lengths[index]]


_ONE = {"t": Spec(Dtype.BF16, (200_000,))}
_ROOT = "00" * 32
_BITMAPS, _GAPS, _WIDE_GAPS, _SMALL_VALUES, _VALUES, _WIDE_VALUES = range(1, 7)


def forged(mode: int, counts: tuple[int, int, int, int], streams: dict[int, bytes]) -> bytes:
    """A payload for one tensor of 200,000 elements, written by hand."""
    table = struct.pack("<HBB", 1, 1, 1) + b"t" + struct.pack("<Q", 200_000)
    table += struct.pack("<BQQQQ", mode, *counts)
    raw = [table] + [streams.get(i, b"") for i in range(1, 7)]
    sections = [zstandard.ZstdCompressor().compress(part) if part else b"" for part in raw]
    head = _HEADER.pack(b"ulpgap/1", bytes(32), bytes(32), *map(len, sections))
    return resealed(head + b"".join(sections) + bytes(16))


def planes(numbers: list[int], dtype: str) -> bytes:
    array = np.array(numbers, dtype)
    return array.view(np.uint8).reshape(len(numbers), -1).T.tobytes()


def gaps(*numbers: int) -> dict[int, bytes]:
    return {_GAPS: planes(list(numbers), "u2")}


def wide_gaps(*numbers: int) -> dict[int, bytes]:
    return {_WIDE_GAPS: planes(list(numbers), "u4")}


_DENSE = {_BITMAPS: b"\x80" + bytes(24_999)}
_PLUS = {_SMALL_VALUES: b"\2"}
_ESCAPE = {_SMALL_VALUES: b"\0"}


def forgeries() -> Iterator[tuple[str, bytes]]:
    yield "unknown mode", forged(3, (1, 0, 0, 0), gaps(0) | _PLUS)
    yield "unchanged with changes", forged(0, (1, 0, 0, 0), _PLUS)
    yield "sparse without changes", forged(1, (0, 0, 0, 0), {})
    yield "more changes than elements", forged(1, (2**62, 0, 0, 0), {})
    yield "more wide gaps than fit", forged(1, (4, 4, 0, 0), gaps(*[65_535] * 4))
    yield "more values than changes", forged(1, (1, 0, 2, 0), gaps(0) | _ESCAPE)
    yield "more wide values than values", forged(1, (1, 0, 0, 1), gaps(0) | _ESCAPE)
    streams = gaps(65_535, 65_535) | wide_gaps(150_000, 65_535) | {_SMALL_VALUES: b"\5"}
    yield "past the end", forged(1, (2, 2, 0, 0), streams)
    streams = gaps(65_535) | wide_gaps(2**32 - 1) | _PLUS
    yield "far past the end", forged(1, (1, 1, 0, 0), streams)
    streams = gaps(65_535) | wide_gaps(5) | _PLUS
    yield "a narrow gap written wide", forged(1, (1, 1, 0, 0), streams)
    yield "an escape without its gap", forged(1, (1, 0, 0, 0), gaps(65_535) | _PLUS)
    yield "an escape without its value", forged(1, (1, 0, 0, 0), gaps(0) | _ESCAPE)
    streams = gaps(0) | _ESCAPE | {_VALUES: b"\3"}
    yield "a small value among the others", forged(1, (1, 0, 1, 0), streams)
    streams = gaps(0) | _ESCAPE | {_VALUES: b"\0"}
    yield "a difference of nothing", forged(1, (1, 0, 1, 0), streams)
    streams = gaps(0) | _ESCAPE | {_VALUES: b"\xff"}
    yield "an escape without its wide value", forged(1, (1, 0, 1, 0), streams)
    streams |= {_WIDE_VALUES: planes([254], "u4")}
    yield "a narrow value written wide", forged(1, (1, 0, 1, 1), streams)
    streams |= {_WIDE_VALUES: planes([65_536], "u4")}
    yield "a value wider than the format", forged(1, (1, 0, 1, 1), streams)
    yield "bits in the padding", forged(1, (1, 0, 0, 0), gaps(0) | {_SMALL_VALUES: b"\x42"})
    yield "fewer bits than changes", forged(2, (2, 0, 0, 0), _DENSE | {_SMALL_VALUES: b"\5"})
    yield "a bitmap with wide gaps", forged(2, (1, 1, 0, 0), _DENSE | _PLUS)
    yield "a stream too long", forged(1, (1, 0, 0, 0), gaps(0, 0) | _PLUS)
    yield "a stream too many", forged(1, (1, 0, 0, 0), gaps(0) | _PLUS | {_BITMAPS: b"\1"})


@pytest.mark.parametrize(("name", "payload"), list(forgeries()), ids=lambda value: str(value)[:30])
def test_forged_counts_positions_and_values_are_refused(name: str, payload: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        unpack(payload, _ONE)
    assert refused.value.refusal is Refusal.CORRUPT, name


def test_the_forger_can_write_what_is_taken() -> None:
    delta = unpack(forged(1, (2, 0, 0, 0), gaps(3, 0) | {_SMALL_VALUES: b"\x09"}), _ONE)
    assert delta.changed["t"].positions.tolist() == [3, 4]
    assert delta.changed["t"].differences.tolist() == [0xFFFF, 1]
    dense = unpack(forged(2, (1, 0, 0, 0), {_BITMAPS: b"\x10" + bytes(24_999)} | _PLUS), _ONE)
    assert dense.changed["t"].positions.tolist() == [3]
    wide = gaps(65_535) | wide_gaps(100_000) | _ESCAPE | {_VALUES: b"\xff"}
    wide |= {_WIDE_VALUES: planes([65_535], "u4")}
    far = unpack(forged(1, (1, 1, 1, 1), wide), _ONE)
    assert far.changed["t"].positions.tolist() == [100_000]
    assert far.changed["t"].differences.tolist() == [0x8000]


_OTHER_LAYOUTS: dict[str, Layout] = {
    "another shape": {"t": Spec(Dtype.BF16, (2, 100_000))},
    "another format": {"t": Spec(Dtype.F16, (200_000,))},
    "another name": {"u": Spec(Dtype.BF16, (200_000,))},
    "a tensor more": {**_ONE, "u": Spec(Dtype.BF16, (1,))},
    "none": {},
}


@pytest.mark.parametrize("name", _OTHER_LAYOUTS)
def test_a_payload_for_another_layout_is_refused(name: str) -> None:
    payload = forged(1, (1, 0, 0, 0), gaps(0) | _PLUS)
    with pytest.raises(RefusedError) as refused:
        unpack(payload, _OTHER_LAYOUTS[name])
    assert refused.value.refusal is Refusal.WRONG_LAYOUT


def test_a_later_codec_is_told_from_damage() -> None:
    payload = bytearray(forged(1, (1, 0, 0, 0), gaps(0) | _PLUS))
    payload[:8] = b"ulpgap/2"
    with pytest.raises(RefusedError) as refused:
        unpack(resealed(bytes(payload)), _ONE)
    assert refused.value.refusal is Refusal.UNKNOWN_CODEC


@pytest.mark.parametrize("dtype", Dtype)
def test_values_that_are_not_finite_are_refused_by_writer_and_reader(dtype: Dtype) -> None:
    old = np.array([EDGES[dtype][5]], unsigned(dtype))
    shadow = Shadow({"t": tensor(dtype, (1,), old)})
    for value in NOT_FINITE[dtype]:
        bad = np.array([value], unsigned(dtype))
        with pytest.raises(RefusedError, match="NaN or infinite") as refused:
            shadow.diff({"t": tensor(dtype, (1,), bad)})
        assert refused.value.refusal is Refusal.NOT_FINITE
        part = TensorDelta(np.zeros(1, np.uint32), ordered(bad) - ordered(old))
        hostile = Delta(shadow.layout, {"t": part}, shadow.root, _ROOT)
        with pytest.raises(RefusedError) as refused:
            shadow.apply(unpack(pack(hostile), shadow.layout))
        assert refused.value.refusal is Refusal.NOT_FINITE
        with pytest.raises(RefusedError):
            Shadow({"t": tensor(dtype, (1,), bad)})
