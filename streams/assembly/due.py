"""Which trajectories a tick must look at: an index in memory over the due times in the table.

The index is derived: it is read from the table's row headers when a partition is new to this
process, and again after every `REBUILD_TICKS` ticks, so a mistake in it heals by itself and can
only make a closing late, never wrong. A batch that failed is handled again, its ticks included,
and what they took is then read anew.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from streams.assembly.state import RowKind, header

#: At the usual 5 s between ticks this is every five minutes.
REBUILD_TICKS = 60


@dataclass(slots=True)
class _Partition:
    next_offset: int
    num_ticks: int = 0
    due: dict[str, int] = field(default_factory=dict)
    heap: list[tuple[int, str]] = field(default_factory=list)

    def put(self, key: str, due_us: int) -> None:
        if self.due.get(key) != due_us:
            self.due[key] = due_us
            heapq.heappush(self.heap, (due_us, key))


class DueIndex:
    """Due times by partition. Looking at a tick costs time for what is due, not for what is."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    def __len__(self) -> int:
        return sum(len(partition.due) for partition in self._partitions.values())

    def put(self, partition: int, key: str, due_us: int) -> None:
        """Remember or move a trajectory. Before the first tick of a partition nothing is kept."""
        if partition in self._partitions:
            self._partitions[partition].put(key, due_us)

    def forget(self, partition: int, key: str) -> None:
        """The trajectory's state is gone."""
        if partition in self._partitions:
            self._partitions[partition].due.pop(key, None)

    def follows(self, partition: int, offset: int) -> bool:
        """True when the tick at `offset` is the one after the last, so that the index is good.

        A tick seen again means a batch that failed; a gap means that the partition was away.
        """
        known = self._partitions.get(partition)
        if known is None or known.next_offset != offset or known.num_ticks >= REBUILD_TICKS:
            return False
        known.next_offset += 1
        known.num_ticks += 1
        return True

    def rebuild(self, partition: int, offset: int, rows: Iterable[tuple[str, bytes]]) -> None:
        """Read the index of one partition from the table, at the tick at `offset`."""
        fresh = _Partition(next_offset=offset + 1)
        for key, row in rows:
            kind, row_partition, due_us = header(row)
            if row_partition == partition and kind in (RowKind.HEAD, RowKind.TOMBSTONE):
                fresh.put(key, due_us)
        self._partitions[partition] = fresh

    def take_due(self, partition: int, now_us: int, max_keys: int) -> list[str]:
        """At most `max_keys` trajectories due by `now_us`, the most overdue first.

        Whoever takes them puts each back with the due time that its state then has.
        """
        known = self._partitions[partition]
        taken: dict[str, None] = {}
        while known.heap and known.heap[0][0] <= now_us and len(taken) < max_keys:
            due_us, key = heapq.heappop(known.heap)
            if known.due.get(key) == due_us:
                taken[key] = None
                del known.due[key]
        return list(taken)
