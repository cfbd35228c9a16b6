"""Which samples were consumed: each is trained once, however often it comes."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

#: As many samples are remembered; the oldest are forgotten first. The topic's retention and
#: batching's own memory keep older ones away.
MAX_SAMPLES = 100_000


@dataclass(frozen=True, slots=True)
class Entry:
    """The step that consumed a sample."""

    revision: int
    step: int


class Ledger:
    """Sample → when it was consumed. Not for several threads."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, sample_id: str | None) -> Entry | None:
        """None for a sample that was never consumed."""
        return None if sample_id is None else self._entries.get(sample_id)

    def has(self, sample_id: str, revision: int) -> bool:
        """Whether this revision or a later one was consumed."""
        entry = self._entries.get(sample_id)
        return entry is not None and entry.revision >= revision

    def add(self, sample_id: str, revision: int, step: int) -> None:
        """The sample is consumed by that step."""
        self._entries[sample_id] = Entry(revision, step)
        self._entries.move_to_end(sample_id)
        while len(self._entries) > MAX_SAMPLES:
            self._entries.popitem(last=False)

    def state(self) -> list[tuple[str, int, int]]:
        """All of it as plain values, in order: for a checkpoint."""
        return [(name, entry.revision, entry.step) for name, entry in self._entries.items()]

    def restore(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Take back what `state` gave."""
        self._entries = OrderedDict((name, Entry(rev, step)) for name, rev, step in rows)
