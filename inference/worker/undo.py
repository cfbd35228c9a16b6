"""The last updates of an engine, so that they can be taken back without reading anything."""

from collections import deque

from schemas.weights.shadow import Patch, coalesced


class UndoList:
    """Patches in the order in which they were applied. Bounded by number and by bytes."""

    def __init__(self, max_patches: int, max_bytes: int) -> None:
        self._max_patches, self._max_bytes = max_patches, max_bytes
        self._patches: deque[Patch] = deque()

    @property
    def roots(self) -> tuple[str, ...]:
        """The root before each update, oldest first."""
        return tuple(patch.from_root for patch in self._patches)

    @property
    def num_bytes(self) -> int:
        """What the patches hold in memory."""
        return sum(map(_num_bytes, self._patches))

    def add(self, patch: Patch) -> None:
        """Remember an update; the oldest ones are forgotten where there are too many."""
        self._patches.append(patch)
        while len(self._patches) > self._max_patches or self.num_bytes > self._max_bytes:
            self._patches.popleft()

    def patch_back(self, num_updates: int) -> Patch:
        """One patch that takes back the last updates. Nothing is forgotten yet."""
        last = list(self._patches)[-num_updates:]
        return coalesced([patch.inverse() for patch in reversed(last)])

    def forget(self, num_updates: int) -> None:
        """Drop the last updates: they have been taken back."""
        for _ in range(num_updates):
            self._patches.pop()

    def clear(self) -> None:
        """Drop all: the engine's weights come from elsewhere."""
        self._patches.clear()


def _num_bytes(patch: Patch) -> int:
    changes = patch.changes.values()
    return sum(c.positions.nbytes + c.old.nbytes + c.new.nbytes for c in changes)
