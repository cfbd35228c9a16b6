"""Whether a process gets on: pure, from looks at committed offsets and ends.

Healthy is who commits, or who has nothing to commit. That a process lives says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.bus import Position
from schemas.bus.lag import Standing


@dataclass(frozen=True, slots=True)
class Standstill:
    """A partition whose committed offset has not moved although records wait."""

    position: Position
    behind: int
    seconds: float


@dataclass(slots=True)
class _Track:
    committed: int
    moved_at: float


@dataclass(slots=True)
class Progress:
    """What the looks so far say about the partitions of one process."""

    standings: Mapping[Position, Standing] = field(default_factory=dict)
    _tracks: dict[Position, _Track] = field(default_factory=dict)
    _looked_at: float = 0.0

    def look(self, standings: Mapping[Position, Standing], at_seconds: float) -> None:
        """One look at the partitions that are assigned now, on a monotonic clock."""
        self.standings = dict(standings)
        self._looked_at = at_seconds
        tracks = {}
        for position, standing in standings.items():
            known = self._tracks.get(position)
            if known is None or known.committed != standing.committed or not standing.behind:
                known = _Track(standing.committed, at_seconds)
            tracks[position] = known
        self._tracks = tracks

    def nothing_waits(self, position: Position) -> None:
        """The offsets behind were found to hold no record."""
        if position in self._tracks:
            self._tracks[position].moved_at = self._looked_at

    def standstills(self) -> list[Standstill]:
        """Partitions that wait, the longest standstill first. 0 seconds for one that just moved."""
        found = [
            Standstill(position, standing.behind, self._looked_at - self._tracks[position].moved_at)
            for position, standing in self.standings.items()
            if standing.behind
        ]
        return sorted(found, key=lambda still: -still.seconds)

    @property
    def behind(self) -> int:
        """Offsets behind, all partitions together."""
        return sum(standing.behind for standing in self.standings.values())
