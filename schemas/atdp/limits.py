"""What a value may be beyond its type, for events that others made.

The schema says integer, time and text. What it cannot say is settled here, once for every door
and before anything is derived from the event: ids that can be keys, counts that are not negative,
numbers that Avro and the store can hold, times that the store can hold and that do not depend on
the time zone of a machine.
"""

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from schemas.errors import PermanentError, Reason

#: Milliseconds or seconds taken for microseconds land in January 1970; the store ends in 2299.
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MAX_INT64 = 2**63 - 1
MAX_UINT32 = 2**32 - 1

#: Ids that become keys of topics, tables and state. Producers choose them freely; what separates
#: the parts of a key is not in them. What a tenant may be called is settled where tenants are.
_ID = re.compile(r"[^\x00-\x1f\x7f]{1,512}\Z")
_IDS = frozenset({
    "step_id", "event_id", "trajectory_id", "reward_id", "response_id", "key_id",
    "parent_step_id", "attempt_of",
})  # fmt: skip
#: Positions, numbers of things and numbers of a sequence; 32 bits hold them.
_COUNTS = frozenset({
    "step_index", "context_messages", "prompt_token_ids", "token_ids", "attempts", "start", "end",
    "partition", "replay_epoch", "revision", "http_status", "status", "prompt_tokens",
    "completion_tokens", "cached_tokens", "reasoning_tokens", "approximate_from",
})  # fmt: skip
#: Numbers that are not negative and may be long.
_POSITIONS = frozenset({"offset", "policy_version"})

Check = Callable[[Any], None]


def check(event: Any) -> None:
    """Refuse an event with a value that is out of range. PermanentError names the field."""
    for name, look in _plan(event.__class__):
        look(getattr(event, name))


@functools.cache
def _plan(cls: type) -> tuple[tuple[str, Check], ...]:
    hints = typing.get_type_hints(cls)
    looks = ((f.name, _look(f.name, hints[f.name])) for f in dataclasses.fields(cls))
    return tuple((name, look) for name, look in looks if look is not None)


def _look(name: str, hint: Any) -> Check | None:
    """How to look at a value of that type; None where any will do."""
    if typing.get_origin(hint) is tuple:
        return _each(_look(name, typing.get_args(hint)[0]))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _optional(name, hint)
    if dataclasses.is_dataclass(hint):
        return check
    if hint is str and name not in _IDS:
        return None
    kinds: dict[Any, Callable[[str, Any], None]] = {
        datetime: _time, int: _integer, float: _number, str: _id,
    }  # fmt: skip
    kind = kinds.get(hint)
    return None if kind is None else functools.partial(kind, name)


def _each(look: Check | None) -> Check | None:
    if look is None:
        return None
    one = look

    def all_of_them(values: Any) -> None:
        for value in values:
            one(value)

    return all_of_them


def _optional(name: str, hint: Any) -> Check | None:
    members = set(typing.get_args(hint)) - {type(None)}
    kind = float if members == {bool, float} else members.pop()
    look = _look(name, kind)
    if look is None:
        return None
    given = look
    return lambda value: None if value is None else given(value)


def _id(name: str, value: str) -> None:
    if _ID.match(value) is None:
        raise PermanentError(Reason.WRONG_TYPE, name)


def _integer(name: str, value: int) -> None:
    lowest = 0 if name in _COUNTS or name in _POSITIONS else -MAX_INT64 - 1
    highest = MAX_UINT32 if name in _COUNTS else MAX_INT64
    if not lowest <= value <= highest:
        raise PermanentError(Reason.WRONG_TYPE, name)


def _number(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise PermanentError(Reason.NOT_FINITE, name)


def _time(name: str, value: datetime) -> None:
    if value.utcoffset() is None or not EARLIEST <= value < LATEST:
        raise PermanentError(Reason.WRONG_TYPE, name)
