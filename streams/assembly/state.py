"""What assembly remembers of a trajectory: facts without text, and their form in the table.

A fact is the part of an event that the join needs. Of several versions of one step or reward
only the winner is kept; which one wins depends on the versions alone, never on their order of
arrival. Times are whole microseconds since 1970, UTC.

In the table a trajectory is one head row and, for long trajectories, further rows of
`FACTS_PER_ROW` facts each, so that no row grows without bound and one event rewrites at most
two rows. Every row begins with a fixed header, so that a scan need not parse JSON.
"""

import dataclasses
import functools
import operator
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

import orjson

FORMAT = 1
FACTS_PER_ROW = 64

_HEADER = struct.Struct(">BBIq")


class RowKind(IntEnum):
    """What a row of the table holds."""

    HEAD = 1
    #: Further facts of a long trajectory.
    FACTS = 2
    #: The trajectory is past its retention; the row keeps later events from starting it anew.
    TOMBSTONE = 3
    #: How far the ticks of a partition have come; in the place of the due time.
    WATERMARK = 4


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the join needs of a step. A higher epoch supersedes; ties fall to the larger fact."""

    step_id: str
    epoch: int
    started_us: int
    ended_us: int
    index: int
    outcome: str
    eligible: bool
    replayed: bool = False
    parent: str | None = None
    attempt_of: str | None = None
    policy_version: int | None = None
    oldest_version: int | None = None
    newest_version: int | None = None
    task_key: str | None = None
    agent_id: str | None = None
    #: Where the first record lies that says this. Rows from before this was kept lack it.
    partition: int | None = None
    offset: int | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """Steps stand in this order."""
        return self.index, self.started_us, self.step_id


@dataclass(frozen=True, slots=True)
class RewardFacts:
    """What the join needs of a reward. `score` is its number, None where it has none.

    `final_us` is the earliest judgement among all its versions that was final and not retracted.
    """

    reward_id: str
    revision: int
    epoch: int
    occurred_us: int
    digest: str
    retracted: bool
    final: bool
    replayed: bool = False
    step_id: str | None = None
    score: float | None = None
    final_us: int | None = None
    task_key: str | None = None
    kind: str = ""
    #: Where the first record lies that says this. Rows from before this was kept lack it.
    partition: int | None = None
    offset: int | None = None

    @property
    def order(self) -> tuple[int, str, str]:
        """Rewards stand in this order; the last one is the latest judgement."""
        return self.occurred_us, self.digest, self.reward_id


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All facts of one trajectory, and what was last said about it."""

    tenant_id: str
    trajectory_id: str
    steps: Mapping[str, StepFacts] = field(default_factory=dict)
    rewards: Mapping[str, RewardFacts] = field(default_factory=dict)
    #: Earliest explicit end.
    end_us: int | None = None
    end_replayed: bool = False
    #: Watermark of the partition when the last new fact came; None before the first tick.
    touched_us: int | None = None
    #: Digests of the summary and of the samples that were emitted last.
    summary_digest: str = ""
    sample_digests: tuple[str, ...] = ()

    @property
    def last_end_us(self) -> int | None:
        """End of the latest activity."""
        return max((step.ended_us for step in self.steps.values()), default=None)


# --- rows -------------------------------------------------------------------------------------

Row = tuple[str, bytes]
Fact = StepFacts | RewardFacts
_CLASSES: dict[str, Any] = {"s": StepFacts, "r": RewardFacts}
F = TypeVar("F", StepFacts, RewardFacts)
# dataclasses.astuple copies deeply and takes ten times as long
_VALUES = {
    cls: operator.attrgetter(*(f.name for f in dataclasses.fields(cls)))
    for cls in (StepFacts, RewardFacts)
}


def values(fact: Fact) -> tuple[Any, ...]:
    """The values of a fact in the order of its fields."""
    got: tuple[Any, ...] = _VALUES[type(fact)](fact)
    return got


def pack(kind: RowKind, partition: int, due_us: int, body: bytes = b"") -> bytes:
    """A row: header, then JSON. `due_us` is when a tick must look at the trajectory next."""
    return _HEADER.pack(FORMAT, kind, partition, due_us) + body


def header(row: bytes) -> tuple[RowKind, int, int]:
    """Kind, partition and due time of a row. ValueError for a format this program cannot read."""
    row_format, kind, partition, due_us = _HEADER.unpack_from(row)
    if row_format != FORMAT:
        raise ValueError(f"state row of format {row_format}; run `headrace replay` to rebuild it")
    return RowKind(kind), partition, due_us


def rows_key(key: str, fact: str, number: int) -> str:
    """Key of a further row of the trajectory `key`; `fact` is s for steps, r for rewards."""
    return f"{key}\x00{fact}{number}"


def load(key: str, head: bytes, get: Callable[[str], bytes | None]) -> Trajectory:
    """The trajectory whose head row is `head`; further rows come from `get`."""
    body = orjson.loads(head[_HEADER.size :])
    return Trajectory(
        tenant_id=body["tenant"],
        trajectory_id=body["trajectory"],
        steps={s.step_id: s for s in _load_facts(StepFacts, "s", key, body, get)},
        rewards={r.reward_id: r for r in _load_facts(RewardFacts, "r", key, body, get)},
        end_us=body["end"],
        end_replayed=body["end_replayed"],
        touched_us=body["touched"],
        summary_digest=body["summary"],
        sample_digests=tuple(body["samples"]),
    )


def dump(
    key: str, trajectory: Trajectory, partition: int, due_us: int, stored: Trajectory | None = None
) -> Iterator[Row]:
    """The rows of a trajectory, its head last, so that a head never names a row that is not there.

    Facts keep the position at which they came (dictionaries keep it), so a full row changes only
    when one of its facts does. Full rows whose facts are those of `stored` are left out.
    """
    head: dict[str, Any] = {
        "tenant": trajectory.tenant_id,
        "trajectory": trajectory.trajectory_id,
        "end": trajectory.end_us,
        "end_replayed": trajectory.end_replayed,
        "touched": trajectory.touched_us,
        "summary": trajectory.summary_digest,
        "samples": trajectory.sample_digests,
    }
    for name, facts, before in (
        ("s", [*trajectory.steps.values()], [*stored.steps.values()] if stored else []),
        ("r", [*trajectory.rewards.values()], [*stored.rewards.values()] if stored else []),
    ):
        num_full = len(facts) // FACTS_PER_ROW
        for number in range(num_full):
            span = slice(number * FACTS_PER_ROW, (number + 1) * FACTS_PER_ROW)
            if not _same(facts[span], before[span]):
                body = orjson.dumps(_shorten(facts[span]))
                yield rows_key(key, name, number), pack(RowKind.FACTS, partition, 0, body)
        head[name] = {"rows": num_full, **_shorten(facts[num_full * FACTS_PER_ROW :])}
    yield key, pack(RowKind.HEAD, partition, due_us, orjson.dumps(head))


def all_keys(key: str, trajectory: Trajectory) -> Iterator[str]:
    """Keys of every row of a trajectory, its head last."""
    for name, number in (("s", len(trajectory.steps)), ("r", len(trajectory.rewards))):
        yield from (rows_key(key, name, row) for row in range(number // FACTS_PER_ROW))
    yield key


def _load_facts(
    cls: type[F], name: str, key: str, body: Any, get: Callable[[str], bytes | None]
) -> Iterator[F]:
    for number in range(body[name]["rows"]):
        row = get(rows_key(key, name, number))
        if row is None:
            raise LookupError("a row of a trajectory's state is gone")
        yield from _full_row(name, row)
    yield from _lengthen(cls, body[name])


@functools.lru_cache(maxsize=512)
def _full_row(name: str, row: bytes) -> tuple[Any, ...]:
    """A function of the bytes alone, so remembering it is safe; they hold 64 facts."""
    return tuple(_lengthen(_CLASSES[name], orjson.loads(row[_HEADER.size :])))


def _same(some: Sequence[Fact], others: Sequence[Fact]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _shorten(facts: Sequence[Fact]) -> dict[str, Any]:
    """Facts as arrays. Long strings that repeat within the row are stored once."""
    rows = [values(fact) for fact in facts]
    counts = Counter(v for row in rows for v in row if isinstance(v, str) and len(v) > 4)
    shared = [text for text, number in counts.items() if number > 1]
    position = {text: [index] for index, text in enumerate(shared)}
    short = [[position.get(v, v) if isinstance(v, str) else v for v in row] for row in rows]
    return {"shared": shared, "facts": short}


def _lengthen(cls: type[F], body: Any) -> Iterator[F]:
    shared = body["shared"]
    for row in body["facts"]:
        yield cls(*(shared[v[0]] if isinstance(v, list) else v for v in row))
