"""What a reconciliation found, and what to run where something is missing. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.topics import REDACTION

#: Stretches of missing offsets that a line names; the number of offsets is always whole.
MAX_STRETCHES = 10


class Kind(StrEnum):
    """Where a record was found. The values are the names of the columns."""

    #: A row, or for raw records a clean event, carries its coordinates.
    STORED = "stored"
    #: The store holds the same id in a version that counts more.
    REPLACED = "replaced"
    #: Its reader keeps state of it and nothing that carries its coordinates.
    IN_STATE = "in_state"
    DEAD_LETTERED = "dead_lettered"
    QUARANTINED = "quarantined"
    #: Retention deleted it before its reader came to it.
    GAPS = "gaps"
    #: Retention deleted it after its reader had it.
    EXPIRED = "expired"
    #: The offset holds no record, such as the end of a transaction.
    NO_RECORD = "no_record"
    #: Its reader has still to come to it.
    UNREAD = "unread"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Line:
    """One partition of one topic, as one group reads it. `counts` add up to `produced`."""

    topic: str
    partition: int
    group: str
    produced: int
    counts: Counter[Kind]
    stretches: tuple[tuple[int, int], ...] = ()

    @property
    def num_missing(self) -> int:
        """Records that show nowhere."""
        return self.counts[Kind.MISSING]

    @property
    def is_balanced(self) -> bool:
        """Every offset was found somewhere, once."""
        return not self.num_missing and sum(self.counts.values()) == self.produced


@dataclass(frozen=True, slots=True)
class Unjoined:
    """A trajectory whose row does not hold the steps that the table of steps holds."""

    tenant_id: str
    trajectory_id: str
    num_steps: int
    num_joined: int


@dataclass(frozen=True, slots=True)
class Joins:
    """Trajectories against their steps. Not judged while records are on their way."""

    num_trajectories: int = 0
    num_unjoined: int = 0
    first: tuple[Unjoined, ...] = ()
    is_judged: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """All lines; `joins` is None where a single topic was asked for."""

    lines: tuple[Line, ...]
    joins: Joins | None = None

    @property
    def adds_up(self) -> bool:
        """Nothing is missing and every trajectory holds its steps."""
        joined = self.joins is None or not self.joins.num_unjoined
        return joined and all(line.is_balanced for line in self.lines)

    @property
    def num_unread(self) -> int:
        """Records that some group has still to read."""
        return sum(line.counts[Kind.UNREAD] for line in self.lines)


def commands(report: Report, option: str = "") -> list[str]:
    """What brings back what is missing, upstream first. `option` names the data directory."""
    found: list[str] = []
    groups = dict.fromkeys(line.group for line in report.lines if line.num_missing)
    for group in sorted(groups, key=lambda name: name != REDACTION):
        short = group.rpartition(".")[2]
        words = [f"headrace replay {short}"]
        words += [
            f"--from-offset {line.topic}:{line.partition}:{line.stretches[0][0]}"
            for line in report.lines
            if line.group == group and line.stretches
        ]
        found.append(" ".join(words) + option)
    # A row that is missing explains what it does not join.
    if not found and report.joins is not None and report.joins.num_unjoined:
        found.append(f"headrace replay assembly sink{option}")
    return found


def gather(lines: Iterable[Line]) -> Line:
    """Parts of one partition as one line."""
    parts: Sequence[Line] = list(lines)
    counts: Counter[Kind] = Counter()
    for part in parts:
        counts.update(part.counts)
    stretches = _joined(stretch for part in parts for stretch in part.stretches)
    first = parts[0]
    return Line(first.topic, first.partition, first.group, first.produced, counts, stretches)


def _joined(stretches: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, end in stretches:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        elif len(found) < MAX_STRETCHES:
            found.append((first, end))
    return tuple(found)
