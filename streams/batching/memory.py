"""What batching remembers of a trajectory: branches, revisions, and who trains which step.

A branch is named by its last step. The first sample of a branch trains the steps that no other
branch trains; a later one of the same branch is its next revision and trains the same steps. What
was not sent to the trainer is no revision. Ids are kept as short digests: of two that collide, one
is taken for known, and none is trained twice.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

FORMAT = 1
#: Samples of one trajectory that are told apart from new ones.
MAX_SEEN = 256
_HEADER = struct.Struct(">BIq")


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch: how often the trainer was told of it, and the last sample that it was sent."""

    revision: int = 0
    sample_id: str | None = None
    reward: float | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What was decided of one trajectory. `owners` maps steps to branches, both as digests."""

    seen: tuple[str, ...] = ()
    branches: Mapping[str, Branch] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)

    def knows(self, sample_id: str) -> bool:
        """Whether the sample was decided for good."""
        return digest(sample_id) in self.seen

    def branch(self, leaf: str) -> Branch:
        """The branch that ends with that step."""
        return self.branches.get(digest(leaf), Branch())

    def owned_by_others(self, leaf: str, step_ids: Iterable[str]) -> set[str]:
        """Those of the steps that another branch trains."""
        mine = digest(leaf)
        return {s for s in step_ids if self.owners.get(digest(s), mine) != mine}

    def decided(self, sample_id: str) -> "Memory":
        """One sample more was decided, whatever became of it."""
        return replace(self, seen=(*self.seen, digest(sample_id))[-MAX_SEEN:])

    def trained(
        self, leaf: str, step_ids: Sequence[str], sample_id: str, reward: float | None, policy: str
    ) -> "Memory":
        """The branch was trained on that sample; these steps are its own."""
        mine = digest(leaf)
        branch = Branch(self.branch(leaf).revision + 1, sample_id, reward, policy)
        return replace(
            self,
            branches={**self.branches, mine: branch},
            owners={**self.owners, **{digest(s): mine for s in step_ids}},
        )

    def retracted(self, leaf: str) -> "Memory":
        """The reward of the branch no longer holds, and whoever learned from it was told."""
        branch = replace(self.branch(leaf), sample_id=None, reward=None)
        branch = replace(branch, revision=branch.revision + 1)
        return replace(self, branches={**self.branches, digest(leaf): branch})


def digest(text: str) -> str:
    """Sixteen characters for an id."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def dump(memory: Memory, partition: int, at_us: int) -> bytes:
    """A row of the table. `at_us` is when it was written, microseconds since 1970."""
    by_branch: dict[str, list[str]] = {}
    for step, branch in memory.owners.items():
        by_branch.setdefault(branch, []).append(step)
    body = {
        "seen": memory.seen,
        "branches": {
            name: [b.revision, b.sample_id, b.reward, b.policy, by_branch.get(name, [])]
            for name, b in memory.branches.items()
        },
    }
    return _HEADER.pack(FORMAT, partition, at_us) + orjson.dumps(body)


def load(row: bytes | None) -> Memory:
    """The memory in a row; an empty one without a row. ValueError for an unknown format."""
    if row is None:
        return Memory()
    header(row)
    body = orjson.loads(row[_HEADER.size :])
    branches = body["branches"]
    return Memory(
        seen=tuple(body["seen"]),
        branches={name: Branch(*values[:4]) for name, values in branches.items()},
        owners={step: name for name, values in branches.items() for step in values[4]},
    )


def header(row: bytes) -> tuple[int, int]:
    """The partition of a row, and when it was written."""
    row_format, partition, at_us = _HEADER.unpack_from(row)
    if row_format != FORMAT:
        raise ValueError(f"state row of format {row_format}; this program reads {FORMAT}")
    return int(partition), int(at_us)
