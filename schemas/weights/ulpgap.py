"""The wire format `ulpgap/1` of a delta. Lossless, and refused when a single bit is not right.

    magic "ulpgap/1" · root before · root after · lengths of seven sections · sections · XXH3-128

Sections are zstd frames, empty where nothing is in them. Each stream runs across all tensors in
the order of their names:

    table        per tensor: name, number format, shape, mode, counts
    bitmaps      dense tensors: one bit an element, first element in the highest bit
    gaps         sparse tensors: gap to the position before, minus 1, as u16 in two byte planes;
                 0xFFFF says that the gap is in wide_gaps, as u32 in four byte planes
    small        every change: its zig-zag difference under the order map, 1 to 3, in two bits, four
                 to a byte, the first in the lowest bits; 0 says that it is in values
    values       the others as u8, 4 to 254; 255 says that it is in wide_values, as u32 in four byte
                 planes

A tensor is `sparse` or `dense`, whichever packs smaller, or `unchanged`. Reading trusts
nothing: the layout is the reader's own, every length follows from it and from the table's counts,
and is compared before anything of that size is allocated.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from schemas.weights.delta import Delta, Positions, TensorDelta
from schemas.weights.dtypes import Bits, code_of, num_bytes, unsigned, unzigzag, zigzag
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Layout, Spec, require_layout

CODEC = "ulpgap/1"
_MAGIC = CODEC.encode()
_HEADER = struct.Struct("<8s32s32s7Q")
_CHECKSUM_BYTES = 16
_COUNTS = struct.Struct("<BQQQQ")
_ZSTD_LEVEL = 1
_WIDE_GAP = 0xFFFF
_WIDE_VALUE = 0xFF
_LARGEST_SMALL = 3
#: Below this density a bitmap costs more than the gaps can, whatever they are.
_SURELY_SPARSE = 1 / 128
_SAMPLE_BYTES = 1 << 15

Bytes = NDArray[np.uint8]


class Mode(IntEnum):
    """How the positions of one tensor are written."""

    UNCHANGED = 0
    SPARSE = 1
    DENSE = 2


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the table, without the name."""

    spec: Spec
    mode: Mode
    num_changed: int = 0
    num_wide_gaps: int = 0
    num_values: int = 0
    num_wide_values: int = 0


# --- writing ---------------------------------------------------------------------------------


def pack(delta: Delta) -> bytes:
    """The payload of a delta. RefusedError when the layout is beyond the limits."""
    require_layout(delta.layout)
    table: list[bytes] = []
    streams: tuple[list[Any], ...] = ([], [], [], [], [], [])
    bitmaps, gaps, wide_gaps, small, values, wide_values = streams
    for name in sorted(delta.layout):
        spec, part = delta.layout[name], delta.changed.get(name)
        if part is None:
            table.append(_table_line(name, _Entry(spec, Mode.UNCHANGED)))
            continue
        steps, wide_steps, bitmap = _positions_out(part.positions, spec.num_elements)
        numbers = zigzag(part.differences)
        is_small = numbers <= _LARGEST_SMALL
        others, wide_others = _split(numbers[~is_small], _WIDE_VALUE, np.uint8)
        mode = Mode.SPARSE if bitmap is None else Mode.DENSE
        counts = part.positions.size, wide_steps.size, others.size, wide_others.size
        entry = _Entry(spec, mode, *counts)
        table.append(_table_line(name, entry))
        small.append(np.where(is_small, numbers, 0).astype(np.uint8))
        values.append(others)
        wide_values.append(wide_others)
        gaps.append(steps)
        wide_gaps.append(wide_steps)
        if bitmap is not None:
            bitmaps.append(bitmap)
    sections = [
        _compress(b"".join(table)),
        _compress(_joined(bitmaps, np.uint8)),
        _compress(_planes(_joined(gaps, np.uint16))),
        _compress(_planes(_joined(wide_gaps, np.uint32))),
        _compress(_quarters(_joined(small, np.uint8))),
        _compress(_joined(values, np.uint8)),
        _compress(_planes(_joined(wide_values, np.uint32))),
    ]
    roots = bytes.fromhex(delta.from_root), bytes.fromhex(delta.root)
    head = _HEADER.pack(_MAGIC, *roots, *map(len, sections))
    checksum = xxhash.xxh3_128(head)
    for section in sections:
        checksum.update(section)
    return b"".join((head, *sections, checksum.digest()))


def _table_line(name: str, entry: _Entry) -> bytes:
    counts = entry.num_changed, entry.num_wide_gaps, entry.num_values, entry.num_wide_values
    return _table_head(name, entry.spec) + _COUNTS.pack(entry.mode, *counts)


def _table_head(name: str, spec: Spec) -> bytes:
    encoded, dimensions = name.encode(), len(spec.shape)
    head = struct.pack("<HBB", len(encoded), code_of(spec.dtype), dimensions)
    return head + encoded + struct.pack(f"<{dimensions}Q", *spec.shape)


def _positions_out(positions: Positions, size: int) -> tuple[Bits, Bits, Bytes | None]:
    """Gaps and wide gaps, or empty ones and a bitmap: whichever is smaller."""
    signed = positions.astype(np.int64)
    steps, wide = _split(np.diff(signed, prepend=-1) - 1, _WIDE_GAP, np.uint16)
    if positions.size <= size * _SURELY_SPARSE:
        return steps, wide, None
    flags = np.zeros(size, np.bool_)
    flags[positions] = True
    bitmap = np.packbits(flags)
    halves = steps.view(np.uint8).reshape(-1, 2)
    as_gaps = sum(_packed_size(np.ascontiguousarray(half)) for half in halves.T) + 4 * wide.size
    if as_gaps <= _packed_size(bitmap):
        return steps, wide, None
    return steps[:0], wide[:0], bitmap


def _split(numbers: Bits, limit: int, narrow: Any) -> tuple[Bits, Bits]:
    """Narrow numbers with `limit` in place of those that reach it, and those themselves."""
    is_wide = numbers >= limit
    if not is_wide.any():
        return numbers.astype(narrow), np.zeros(0, np.uint32)
    return np.where(is_wide, limit, numbers).astype(narrow), numbers[is_wide].astype(np.uint32)


def _packed_size(stream: Bytes) -> float:
    """About the bytes that a stream packs to, judged by its beginning."""
    sample = stream[:_SAMPLE_BYTES]
    return len(_compress(sample)) * stream.size / sample.size


def _joined(arrays: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _planes(numbers: NDArray[Any]) -> Bytes:
    """All lowest bytes, then all second ones, and so on."""
    columns = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize)
    return np.ascontiguousarray(columns.T).reshape(-1)


def _quarters(numbers: Bytes) -> Bytes:
    """Four numbers of two bits in each byte. zstd alone needs half a bit more for each."""
    padded: NDArray[Any] = np.zeros(-(-numbers.size // 4) * 4, np.uint8)
    padded[: numbers.size] = numbers
    first, second, third, fourth = padded.reshape(-1, 4).T
    packed: Bytes = first | second << 2 | third << 4 | fourth << 6
    return packed


def _compress(raw: Any) -> bytes:
    if len(raw) == 0:
        return b""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(memoryview(raw))


# --- reading ---------------------------------------------------------------------------------


def unpack(payload: bytes | memoryview, layout: Layout) -> Delta:
    """The delta in a payload for weights of that layout.

    RefusedError, before anything large is allocated, for whatever `pack` did not write: another
    layout, wrong lengths or counts, positions out of range, a wrong checksum. Memory is bounded by
    a few bytes for each element that changed, and so by the layout.
    """
    require_layout(layout)
    view = memoryview(payload)
    from_root, root, sections = _sections(view)
    names = sorted(layout)
    entries = _entries(sections[0], layout, names)
    expected = _raw_sizes(entries)
    raw = [_decompress(s, size) for s, size in zip(sections[1:], expected, strict=True)]
    streams = _Streams(
        bitmaps=np.frombuffer(raw[0], np.uint8),
        gaps=_from_planes(raw[1], np.uint16),
        wide_gaps=_from_planes(raw[2], np.uint32),
        small=_from_quarters(raw[3], sum(entry.num_changed for entry in entries)),
        values=np.frombuffer(raw[4], np.uint8),
        wide_values=_from_planes(raw[5], np.uint32),
    )
    changed = {}
    for name, entry in zip(names, entries, strict=True):
        if entry.mode is not Mode.UNCHANGED:
            positions = streams.positions(name, entry)
            changed[name] = TensorDelta(positions, streams.differences(name, entry))
    return Delta(dict(layout), changed, from_root, root)


def _sections(view: memoryview) -> tuple[str, str, list[memoryview]]:
    if view.nbytes < _HEADER.size + _CHECKSUM_BYTES:
        raise RefusedError(Refusal.CORRUPT, "length")
    magic, from_root, root, *lengths = _HEADER.unpack_from(view)
    body = view[:-_CHECKSUM_BYTES]
    if xxhash.xxh3_128_digest(body) != view[-_CHECKSUM_BYTES:]:
        raise RefusedError(Refusal.CORRUPT, "checksum")
    if magic != _MAGIC:
        raise RefusedError(Refusal.UNKNOWN_CODEC)
    if sum(lengths) != body.nbytes - _HEADER.size:
        raise RefusedError(Refusal.CORRUPT, "length")
    sections, start = [], _HEADER.size
    for length in lengths:
        sections.append(body[start : start + length])
        start += length
    return from_root.hex(), root.hex(), sections


def _entries(section: memoryview, layout: Layout, names: list[str]) -> list[_Entry]:
    """The table, which must be that of the layout, line for line."""
    heads = [_table_head(name, layout[name]) for name in names]
    size = sum(map(len, heads)) + _COUNTS.size * len(heads)
    if section.nbytes and _content_size(section) != size:
        raise RefusedError(Refusal.WRONG_LAYOUT)
    table, start, entries = _decompress(section, size), 0, []
    for name, head in zip(names, heads, strict=True):
        if table[start : start + len(head)] != head:
            raise RefusedError(Refusal.WRONG_LAYOUT, name)
        start += len(head)
        entries.append(_entry(name, layout[name], table, start))
        start += _COUNTS.size
    return entries


def _entry(name: str, spec: Spec, table: bytes, start: int) -> _Entry:
    mode, num_changed, num_wide_gaps, num_values, num_wide = _COUNTS.unpack_from(table, start)
    size = spec.num_elements
    if mode > max(Mode):
        raise RefusedError(Refusal.CORRUPT, name)
    entry = _Entry(spec, Mode(mode), num_changed, num_wide_gaps, num_values, num_wide)
    counts_fit = num_wide <= num_values <= num_changed <= size
    # Each wide gap skips more than 65,535 elements, so few of them fit.
    counts_fit &= num_wide_gaps <= min(num_changed, size // (_WIDE_GAP + 1))
    counts_fit &= (num_changed > 0) == (entry.mode is not Mode.UNCHANGED)
    counts_fit &= num_wide_gaps == 0 or entry.mode is Mode.SPARSE
    if not counts_fit:
        raise RefusedError(Refusal.CORRUPT, name)
    return entry


def _raw_sizes(entries: list[_Entry]) -> Iterator[int]:
    sparse = [entry for entry in entries if entry.mode is Mode.SPARSE]
    dense = [entry for entry in entries if entry.mode is Mode.DENSE]
    yield sum(_bitmap_bytes(entry) for entry in dense)
    yield 2 * sum(entry.num_changed for entry in sparse)
    yield 4 * sum(entry.num_wide_gaps for entry in sparse)
    yield -(-sum(entry.num_changed for entry in entries) // 4)
    yield sum(entry.num_values for entry in entries)
    yield 4 * sum(entry.num_wide_values for entry in entries)


def _bitmap_bytes(entry: _Entry) -> int:
    return -(-entry.spec.num_elements // 8)


def _content_size(section: memoryview) -> int:
    try:
        return zstandard.frame_content_size(section)
    except zstandard.ZstdError:
        raise RefusedError(Refusal.CORRUPT, "frame") from None


def _decompress(section: memoryview, size: int) -> bytes:
    """Exactly `size` bytes. The frame says its own size first, so a bomb is never unpacked."""
    if size == 0 and section.nbytes == 0:
        return b""
    if _content_size(section) != size or size == 0:
        raise RefusedError(Refusal.CORRUPT, "length")
    try:
        raw = zstandard.ZstdDecompressor().decompress(section, allow_extra_data=False)
    except zstandard.ZstdError:
        raise RefusedError(Refusal.CORRUPT, "frame") from None
    if len(raw) != size:
        raise RefusedError(Refusal.CORRUPT, "length")
    return raw


def _from_planes(raw: bytes, dtype: Any) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    planes = np.frombuffer(raw, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view(dtype)


def _from_quarters(raw: bytes, count: int) -> Bytes:
    packed = np.frombuffer(raw, np.uint8)
    numbers = np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)
    if numbers[count:].any():
        raise RefusedError(Refusal.CORRUPT, "padding")
    return numbers[:count]


@dataclass(slots=True)
class _Streams:
    """The unpacked streams, each read once from its beginning to its end."""

    bitmaps: Bytes
    gaps: NDArray[Any]
    wide_gaps: NDArray[Any]
    small: Bytes
    values: Bytes
    wide_values: NDArray[Any]

    def _take(self, stream: str, count: int) -> NDArray[Any]:
        whole: NDArray[Any] = getattr(self, stream)
        setattr(self, stream, whole[count:])
        return whole[:count]

    def positions(self, name: str, entry: _Entry) -> Positions:
        """Strictly rising by construction; RefusedError when one is out of range."""
        size = entry.spec.num_elements
        if entry.mode is Mode.DENSE:
            bits = np.unpackbits(self._take("bitmaps", _bitmap_bytes(entry)))
            positions = np.flatnonzero(bits)
        else:
            narrow = self._take("gaps", entry.num_changed)
            wide = self._take("wide_gaps", entry.num_wide_gaps)
            steps = _merged(name, narrow, wide, _WIDE_GAP, np.int64)
            positions = np.cumsum(steps + 1) - 1
        if positions.size != entry.num_changed or positions[-1] >= size:
            raise RefusedError(Refusal.CORRUPT, name)
        return positions.astype(np.uint32)

    def differences(self, name: str, entry: _Entry) -> Bits:
        """One for each position; RefusedError for a 0, or one wider than the number format."""
        small = self._take("small", entry.num_changed)
        narrow = self._take("values", entry.num_values)
        wide = self._take("wide_values", entry.num_wide_values)
        others = _merged(name, narrow, wide, _WIDE_VALUE, np.uint32)
        is_other = small == 0
        largest = (1 << 8 * num_bytes(entry.spec.dtype)) - 1
        if np.count_nonzero(is_other) != others.size or not _all_within(others, largest):
            raise RefusedError(Refusal.CORRUPT, name)
        numbers = small.astype(unsigned(entry.spec.dtype))
        numbers[is_other] = others
        return unzigzag(numbers)


def _all_within(others: NDArray[Any], largest: int) -> bool:
    return others.size == 0 or bool(others.min() > _LARGEST_SMALL and others.max() <= largest)


def _merged(
    name: str, narrow: NDArray[Any], wide: NDArray[Any], limit: int, dtype: Any
) -> NDArray[Any]:
    """The inverse of `_split`; there is one way to write a number."""
    is_wide = narrow == limit
    if np.count_nonzero(is_wide) != wide.size or (wide < limit).any():
        raise RefusedError(Refusal.CORRUPT, name)
    merged = narrow.astype(dtype)
    merged[is_wide] = wide
    return merged
