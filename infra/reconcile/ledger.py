"""Each offset of one topic is marked once, with where it was found. Pure.

One byte an offset; `rounds` cuts a long log so that a ledger stays within its bound.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from infra.reconcile.report import Kind

#: Offsets that one ledger holds at most, which is also its size in bytes.
MAX_OFFSETS = 16 * 1024**2
_ABSENT, _FOUND, _SEEN = 0, 1, 2
_NOT_FOUND = re.compile(rb"[^\x01]+")

Spans = Mapping[int, tuple[int, int]]
"""Partition → first offset and end."""


def rounds(spans: Spans, max_offsets: int = MAX_OFFSETS) -> Iterator[dict[int, tuple[int, int]]]:
    """The spans cut into parts, in order, of at most `max_offsets` in all."""
    left = {partition: span for partition, span in spans.items() if span[0] < span[1]}
    while left:
        room = max(1, max_offsets // len(left))
        part = {p: (first, min(end, first + room)) for p, (first, end) in left.items()}
        yield part
        left = {p: (part[p][1], end) for p, (_, end) in left.items() if part[p][1] < end}


class Ledger:
    """The offsets of the partitions of one topic, within spans."""

    def __init__(self, spans: Spans) -> None:
        self.spans = dict(spans)
        self.counts: dict[int, Counter[Kind]] = {partition: Counter() for partition in spans}
        self._marks = {p: bytearray(end - first) for p, (first, end) in spans.items()}
        self.num_absent = sum(map(len, self._marks.values()))

    def is_absent(self, partition: int, offset: int) -> bool:
        """True for an offset within the span that nothing has shown yet."""
        first, end = self.spans.get(partition, (0, 0))
        return first <= offset < end and self._marks[partition][offset - first] != _FOUND

    def see(self, partition: int, offset: int) -> None:
        """The log holds a record here, whether or not it shows anywhere else."""
        if self.is_absent(partition, offset):
            self._marks[partition][offset - self.spans[partition][0]] = _SEEN

    def mark(self, kind: Kind, partition: int, offset: int) -> None:
        """The offset is accounted for. What was marked before, or lies outside, stays."""
        if self.is_absent(partition, offset):
            self._marks[partition][offset - self.spans[partition][0]] = _FOUND
            self._count(kind, partition, 1)

    def mark_range(self, kind: Kind, partition: int, first: int, end: int) -> None:
        """Mark what is still absent from `first` up to `end`."""
        start, stop = self._within(partition, first, end)
        if start < stop:
            marks = self._marks[partition]
            self._count(kind, partition, stop - start - marks.count(_FOUND, start, stop))
            marks[start:stop] = bytes([_FOUND]) * (stop - start)

    def mark_unseen(self, kind: Kind, partition: int, first: int, end: int) -> None:
        """Mark what is absent and was not seen in the log either."""
        start, stop = self._within(partition, first, end)
        if start < stop:
            marks = self._marks[partition]
            self._count(kind, partition, marks.count(_ABSENT, start, stop))
            part = marks[start:stop].replace(bytes([_ABSENT]), bytes([_FOUND]))
            marks[start:stop] = part

    def mark_rest(self, kind: Kind) -> None:
        """Everything that is still absent is of this kind."""
        for partition, span in self.spans.items():
            self.mark_range(kind, partition, *span)

    def absent(self, partition: int) -> Iterator[tuple[int, int]]:
        """Absent stretches, in order: first offset and end."""
        low = self.spans[partition][0]
        for found in _NOT_FOUND.finditer(self._marks[partition]):
            yield low + found.start(), low + found.end()

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Partition → first absent offset and the end of the last absent stretch."""
        found = {}
        for partition, (low, _) in self.spans.items():
            first = _NOT_FOUND.search(self._marks[partition])
            if first is not None:
                last = len(self._marks[partition].rstrip(bytes([_FOUND])))
                found[partition] = (low + first.start(), low + last)
        return found

    def _within(self, partition: int, first: int, end: int) -> tuple[int, int]:
        low, high = self.spans.get(partition, (0, 0))
        return max(first, low) - low, min(end, high) - low

    def _count(self, kind: Kind, partition: int, number: int) -> None:
        self.counts[partition][kind] += number
        self.num_absent -= number
