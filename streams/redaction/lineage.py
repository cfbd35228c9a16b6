"""Where a call stands: its trajectory, its parent step, which of its messages are new.

A call carries its whole history. The chain of keyed digests of its messages names every prefix;
a step is found again under the digest of its messages and its answer, so the parent of a call is
the step with the longest such prefix. Several steps can have the same prefix: they are
interchangeable, and one that nothing extends yet is taken. Pure: state in, decision out.

State, all under the record's partition, one small value a step, so the changelog grows with new
content and not with the length of the history:

    <scope>|<digest>   steps whose messages and answer have this chain digest
    <scope>?<digest>   steps that were answered when they had asked exactly these messages
    <scope>><digest>   steps whose answer hands this task to a subagent
    <scope>^<digest>   the step whose response has this id
    <scope>/           the digest of what the trunk of a session began with
    <scope>#<step id>  what was decided for a step, so that a second processing decides the same

`scope` is the Kafka key of the call: its trajectory, or the fingerprint of its opening.
"""

from collections.abc import Iterator, Sequence
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
    #: Empty on the trunk.
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands."""

    trajectory_id: str
    parent: Node | None
    #: Messages before this index are the parent's.
    num_known: int
    #: Reason of a gap in the lineage, from the closed list.
    gap: str | None = None
    #: Empty on the trunk.
    branch: str = ""
    #: The step that answered the same request after this call had failed.
    attempt_of: str | None = None

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
    started_us: int = 0
    #: It ended without a complete answer, so that its client may ask the same again.
    has_failed: bool = False
    #: The branch that its client names: a subagent's, or work beside the trunk.
    branch: str = ""
    #: Digests of the tasks that the call of a subagent may have been given.
    tasks: Sequence[str] = ()
    #: Digest of the id of the response that it goes on from without sending it again.
    previous: str | None = None
    #: The trajectory is a session of an agent, which has one trunk.
    is_session: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What a call leaves for later ones to find it by: digests."""

    #: Of its messages and each of its answers.
    ends: Sequence[str] = ()
    #: Of the tasks that its answer hands to subagents.
    tasks: Sequence[str] = ()
    #: Of the id of its response.
    response: str | None = None


def chain(key: bytes, canonical_messages: Sequence[str | None]) -> list[str]:
    """Digests of all prefixes; one longer than the list of messages. None does not count."""
    digests = [keyed_digest(key, "root")]
    for message in canonical_messages:
        last = digests[-1]
        digests.append(last if message is None else keyed_digest(key, last, message))
    return digests


def place(call: Call, state: StateView, *, overdue: bool) -> Place | Waits:
    """Find the parent. `overdue` settles for the best there is and says what is missing.

    A call that failed waits for its client to ask again: then it is an attempt of that step.
    """
    decided = state.get(f"{call.scope}#{call.step_id}")
    if decided is not None:
        return _decided_before(decided)
    if call.parent_step_id not in (None, call.step_id):
        return _named_parent(call, state, overdue=overdue)
    where = _among_known(call, state)
    again = _answered_later(call, state) if call.has_failed else None
    may_change = where.gap in _MAY_COME or (call.has_failed and again is None)
    if may_change and not overdue:
        return Waits()
    if again is None:
        return where
    return replace(where, trajectory_id=again.trajectory_id, attempt_of=again.step_id)


#: Reasons of gaps. What the first ones name may still be on its way.
_MAY_COME = frozenset(
    {"steps_before_not_captured", "steps_between_not_captured", "answer_changed_by_client",
     "previous_response_not_captured", "spawning_step_not_captured"}
)  # fmt: skip
GAPS = _MAY_COME | {"parent_not_captured", "context_begun_anew"}


def _among_known(call: Call, state: StateView) -> Place:
    """The place among the steps that are known by now."""
    if call.previous is not None:
        return _after_response(call, call.previous, state)
    num_known, parent = _longest_prefix(call, state)
    unseen = [index for index in call.answers if index >= num_known]
    if parent is None and not unseen:
        return _root(call, state)
    gap = None
    if unseen:
        gap = "steps_before_not_captured" if parent is None else "steps_between_not_captured"
        changed = _changed_answer(call, num_known, state)
        if changed is not None:
            gap, (num_known, parent) = "answer_changed_by_client", changed
    return _below(call, parent, num_known, gap)


def _below(call: Call, parent: Node | None, num_known: int, gap: str | None = None) -> Place:
    trajectory_id = call.trajectory_id or (
        call.own_trajectory_id if parent is None else parent.trajectory_id
    )
    branch = call.branch or (parent.branch if parent is not None else "")
    return Place(trajectory_id, parent, num_known, gap, branch)


def _root(call: Call, state: StateView) -> Place:
    """A call without history: it begins a trajectory, the work of a subagent, or a session's
    context anew."""
    if call.tasks:
        found = (_nodes(state.get(f"{call.scope}>{digest}")) for digest in call.tasks)
        spawner = next((nodes[-1] for nodes in found if nodes), None)
        gap = "spawning_step_not_captured" if spawner is None else None
        return _below(call, spawner, 0, gap)
    place = _below(call, None, 0)
    trunk = state.get(f"{call.scope}/")
    if not call.is_session or call.branch or trunk in (None, call.chain[-1].encode()):
        return place
    return replace(place, branch=f"context-{call.chain[-1][:8]}", gap="context_begun_anew")


def _after_response(call: Call, previous: str, state: StateView) -> Place:
    nodes = _nodes(state.get(f"{call.scope}^{previous}"))
    if nodes:
        return _below(call, nodes[-1], 0)
    return _below(call, None, 0, "previous_response_not_captured")


def _changed_answer(call: Call, num_known: int, state: StateView) -> tuple[int, Node] | None:
    """The last step that asked a beginning of this call's messages, where an answer follows that
    is not the one it got: some clients write down what the model said in their own words."""
    for index in reversed(call.answers):
        if index < num_known:
            return None
        rows = orjson.loads(state.get(f"{call.scope}?{call.chain[index]}") or b"[]")
        if rows:
            nodes = [_node(row[1:]) for row in rows]
            return index, next((n for n in nodes if not n.extended_by), nodes[-1])
    return None


def _answered_later(call: Call, state: StateView) -> Node | None:
    """The first step that asked the same after this call and was answered."""
    rows = orjson.loads(state.get(f"{call.scope}?{call.chain[-1]}") or b"[]")
    later = [row for row in rows if row[0] > call.started_us and row[1] != call.step_id]
    return _node(min(later)[1:]) if later else None


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
        return _below(call, node, num_known)
    if not overdue:
        return Waits()
    # The parent's text is unknown, so what it held must be taken as redacted.
    trajectory_id = call.trajectory_id or call.own_trajectory_id
    missing = Node(call.parent_step_id, trajectory_id, 0, redacted=True)
    return _below(call, missing, 0, "parent_not_captured")


def _longest_prefix(call: Call, state: StateView) -> tuple[int, Node | None]:
    for length in range(len(call.chain) - 1, 0, -1):
        stored = state.get(f"{call.scope}|{call.chain[length]}")
        if stored is not None:
            nodes = _nodes(stored)
            # One that this call had taken before it died is taken again.
            mine = [node for node in nodes if node.extended_by == call.step_id]
            free = [node for node in nodes if not node.extended_by]
            return length, (mine or free or nodes[-1:])[0]
    return 0, None


def remember(
    call: Call, where: Place, node: Node, left: Left, state: StateView
) -> tuple[tuple[str, bytes | None], ...]:
    """State changes after the call was placed: itself under its digests, its parent marked as
    extended, and last, since it makes the others final, its decision.

    Remembering a call again changes nothing, unless the process died before it had written all:
    then what is missing is written.
    """
    decided = f"{call.scope}#{call.step_id}"
    is_known = state.get(decided) is not None
    changes: dict[str, bytes | None] = {}
    if where.parent is not None and where.num_known and where.attempt_of is None:
        key = f"{call.scope}|{call.chain[where.num_known]}"
        if not is_known or _is_free(where.parent, state.get(key)):
            _update(changes, state, key, replace(where.parent, extended_by=call.step_id))
    for key in _keys_of(call, left):
        if not is_known or _was_never_written(node, state.get(key)):
            _update(changes, state, key, node)
    if not call.has_failed:
        _remember_asked(changes, call, node, state)
    is_trunk = call.is_session and where.parent is None and not where.branch
    if is_trunk and state.get(f"{call.scope}/") is None:
        changes[f"{call.scope}/"] = call.chain[-1].encode()
    if not is_known:
        decision = {
            "self": _row(node),
            "parent": None if where.parent is None else _row(where.parent),
            "known": where.num_known,
            "gap": where.gap,
            "ends": list(dict.fromkeys(left.ends)),
            "branch": where.branch,
            "attempt_of": where.attempt_of,
        }
        changes[decided] = orjson.dumps(decision)
    return tuple(changes.items())


def _keys_of(call: Call, left: Left) -> Iterator[str]:
    yield from (f"{call.scope}|{digest}" for digest in dict.fromkeys(left.ends))
    yield from (f"{call.scope}>{digest}" for digest in dict.fromkeys(left.tasks))
    if left.response is not None:
        yield f"{call.scope}^{left.response}"


def _remember_asked(
    changes: dict[str, bytes | None], call: Call, node: Node, state: StateView
) -> None:
    """List a call that was answered under what it had asked; once the list is full, no more."""
    key = f"{call.scope}?{call.chain[-1]}"
    rows = orjson.loads(state.get(key) or b"[]")
    if len(rows) < MAX_EXTENDED and all(row[1] != node.step_id for row in rows):
        changes[key] = orjson.dumps([*rows, [call.started_us, *_row(node)]])


def _was_never_written(node: Node, stored: bytes | None) -> bool:
    """Whether a digest surely never listed a step: it does not now, and has dropped none so far."""
    nodes = _nodes(stored)
    num_extended = sum(bool(n.extended_by) for n in nodes)
    may_have_dropped = num_extended >= MAX_EXTENDED or len(nodes) - num_extended >= MAX_CANDIDATES
    return not may_have_dropped and all(n.step_id != node.step_id for n in nodes)


def _is_free(parent: Node, stored: bytes | None) -> bool:
    rows = orjson.loads(stored) if stored else []
    return any(n.step_id == parent.step_id and not n.extended_by for n in map(_node, rows))


def _update(changes: dict[str, bytes | None], state: StateView, key: str, node: Node) -> None:
    """Put `node` among the steps of a digest: free ones first, then the last extended ones."""
    stored = changes.get(key) or state.get(key)
    nodes = _nodes(stored)
    others = [other for other in nodes if other.step_id != node.step_id]
    ordered = [*others, node]
    free = [n for n in ordered if not n.extended_by][-MAX_CANDIDATES:]
    extended = [n for n in ordered if n.extended_by][-MAX_EXTENDED:]
    changes[key] = orjson.dumps([_row(n) for n in [*free, *extended]])


def _decided_before(decided: bytes) -> Place:
    value = orjson.loads(decided)
    parent = None if value["parent"] is None else _node(value["parent"])
    return Place(
        value["self"][1], parent, value["known"], value["gap"],
        value.get("branch", ""), value.get("attempt_of"),
    )  # fmt: skip


def _row(node: Node) -> list[Any]:
    row = [node.step_id, node.trajectory_id, node.step_index, node.redacted, node.extended_by]
    return [*row, node.branch] if node.branch else row


def _nodes(stored: bytes | None) -> list[Node]:
    return [_node(row) for row in orjson.loads(stored)] if stored else []


def _node(row: list[Any]) -> Node:
    return Node(row[0], row[1], row[2], row[3], row[4], row[5] if len(row) > 5 else "")
