"""Where a call stands: its trajectory, its parent step, which of its messages are new.

A call carries its whole history. The chain of keyed digests of its messages names every prefix;
a step is found again under the digest of its messages and its answer, so the parent of a call is
the step with the longest such prefix. Several steps can have the same prefix: they are
interchangeable, and one that nothing extends yet is taken. Pure: state in, decision out.

State, all under the record's partition, one small value a step, so the changelog grows with new
content and not with the length of the history:

    <scope>|<digest>   steps whose messages and answer have this chain digest
    <scope>#<step id>  what was decided for a step, so that a second processing decides the same

`scope` is the Kafka key of the call: its trajectory, or the fingerprint of its opening.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from schemas.ids import keyed_digest

#: Interchangeable steps kept per digest: enough for that many equal conversations at a time.
MAX_CANDIDATES = 256
#: Extended ones kept beside them: what was written is told from what was lost in a crash.
MAX_EXTENDED = 16


class StateView(Protocol):
    """Reads a value of the lineage table."""

    def get(self, key: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Node:
    """A step that later calls may extend."""

    step_id: str
    trajectory_id: str
    step_index: int
    redacted: bool
    #: The step that extends this one first; empty while none does.
    extended_by: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands."""

    trajectory_id: str
    parent: Node | None
    #: Messages before this index are the parent's.
    num_known: int
    #: Reason of a gap in the lineage, from the closed list.
    gap: str | None = None

    @property
    def step_index(self) -> int:
        """Number of ancestors."""
        return 0 if self.parent is None else self.parent.step_index + 1


@dataclass(frozen=True, slots=True)
class Waits:
    """The step before this call is not known yet."""


@dataclass(frozen=True, slots=True)
class Call:
    """What lineage needs to know of a call."""

    scope: str
    step_id: str
    #: Chain digests: `chain[k]` covers the first k messages.
    chain: Sequence[str]
    #: Indices of messages that an assistant wrote.
    answers: Sequence[int]
    trajectory_id: str | None
    parent_step_id: str | None
    #: Trajectory that the call starts if it extends nothing.
    own_trajectory_id: str


def chain(key: bytes, canonical_messages: Sequence[str]) -> list[str]:
    """Digests of all prefixes; one longer than the list of messages."""
    digests = [keyed_digest(key, "root")]
    for message in canonical_messages:
        digests.append(keyed_digest(key, digests[-1], message))
    return digests


def place(call: Call, state: StateView, *, overdue: bool) -> Place | Waits:
    """Find the parent. `overdue` settles for the best there is and says what is missing."""
    decided = state.get(f"{call.scope}#{call.step_id}")
    if decided is not None:
        return _decided_before(decided)
    if call.parent_step_id not in (None, call.step_id):
        return _named_parent(call, state, overdue=overdue)
    num_known, parent = _longest_prefix(call, state)
    unseen = any(index >= num_known for index in call.answers)
    if unseen and not overdue:
        return Waits()
    gap = None
    if unseen:
        gap = "steps_before_not_captured" if parent is None else "steps_between_not_captured"
    trajectory_id = call.trajectory_id or (
        call.own_trajectory_id if parent is None else parent.trajectory_id
    )
    return Place(trajectory_id, parent, num_known, gap)


def _named_parent(call: Call, state: StateView, *, overdue: bool) -> Place | Waits:
    assert call.parent_step_id is not None
    known = state.get(f"{call.scope}#{call.parent_step_id}")
    if known is not None:
        parent = orjson.loads(known)
        node = _node(parent["self"])
        # What another step held is not this parent's: it counts as new, and is looked at again.
        ends = set(parent["ends"])
        lengths = range(len(call.chain) - 1, 0, -1)
        num_known = next((n for n in lengths if call.chain[n] in ends), 0)
        return Place(call.trajectory_id or node.trajectory_id, node, num_known)
    if not overdue:
        return Waits()
    # The parent's text is unknown, so what it held must be taken as redacted.
    trajectory_id = call.trajectory_id or call.own_trajectory_id
    missing = Node(call.parent_step_id, trajectory_id, 0, redacted=True)
    return Place(missing.trajectory_id, missing, 0, "parent_not_captured")


def _longest_prefix(call: Call, state: StateView) -> tuple[int, Node | None]:
    for length in range(len(call.chain) - 1, 0, -1):
        stored = state.get(f"{call.scope}|{call.chain[length]}")
        if stored is not None:
            nodes = [_node(row) for row in orjson.loads(stored)]
            # One that this call had taken before it died is taken again.
            mine = [node for node in nodes if node.extended_by == call.step_id]
            free = [node for node in nodes if not node.extended_by]
            return length, (mine or free or nodes[-1:])[0]
    return 0, None


def remember(
    call: Call, where: Place, node: Node, output_digests: Sequence[str], state: StateView
) -> tuple[tuple[str, bytes | None], ...]:
    """State changes after the call was placed: itself under its digests, its parent marked as
    extended, and last, since it makes the others final, its decision.

    Remembering a call again changes nothing, unless the process died before it had written all:
    then what is missing is written.
    """
    decided = f"{call.scope}#{call.step_id}"
    is_known = state.get(decided) is not None
    changes: dict[str, bytes | None] = {}
    if where.parent is not None and where.num_known:
        key = f"{call.scope}|{call.chain[where.num_known]}"
        if not is_known or _is_free(where.parent, state.get(key)):
            _update(changes, state, key, replace(where.parent, extended_by=call.step_id))
    for digest in dict.fromkeys(output_digests):
        key = f"{call.scope}|{digest}"
        if not is_known or _was_never_written(node, state.get(key)):
            _update(changes, state, key, node)
    if not is_known:
        decision = {
            "self": _row(node),
            "parent": None if where.parent is None else _row(where.parent),
            "known": where.num_known,
            "gap": where.gap,
            "ends": list(dict.fromkeys(output_digests)),
        }
        changes[decided] = orjson.dumps(decision)
    return tuple(changes.items())


def _was_never_written(node: Node, stored: bytes | None) -> bool:
    """Whether a digest surely never listed a step: it does not now, and has dropped none so far."""
    nodes = [_node(row) for row in orjson.loads(stored)] if stored else []
    num_extended = sum(bool(n.extended_by) for n in nodes)
    may_have_dropped = num_extended >= MAX_EXTENDED or len(nodes) - num_extended >= MAX_CANDIDATES
    return not may_have_dropped and all(n.step_id != node.step_id for n in nodes)


def _is_free(parent: Node, stored: bytes | None) -> bool:
    rows = orjson.loads(stored) if stored else []
    return any(n.step_id == parent.step_id and not n.extended_by for n in map(_node, rows))


def _update(changes: dict[str, bytes | None], state: StateView, key: str, node: Node) -> None:
    """Put `node` among the steps of a digest: free ones first, then the last extended ones."""
    stored = changes.get(key) or state.get(key)
    nodes = [_node(row) for row in orjson.loads(stored)] if stored else []
    others = [other for other in nodes if other.step_id != node.step_id]
    ordered = [*others, node]
    free = [n for n in ordered if not n.extended_by][-MAX_CANDIDATES:]
    extended = [n for n in ordered if n.extended_by][-MAX_EXTENDED:]
    changes[key] = orjson.dumps([_row(n) for n in [*free, *extended]])


def _decided_before(decided: bytes) -> Place:
    value = orjson.loads(decided)
    parent = None if value["parent"] is None else _node(value["parent"])
    return Place(value["self"][1], parent, value["known"], value["gap"])


def _row(node: Node) -> list[Any]:
    return [node.step_id, node.trajectory_id, node.step_index, node.redacted, node.extended_by]


def _node(row: list[Any]) -> Node:
    return Node(row[0], row[1], row[2], redacted=row[3], extended_by=row[4])
