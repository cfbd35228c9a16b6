"""Hypothesis strategies for every protocol record, derived from its type hints."""

import dataclasses
import types
import typing
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from schemas.atdp.avro import RELEASES

RECORD_TYPES: list[type] = [cls for cls, _ in RELEASES.values()]

_PRIMITIVES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=12),
    type(None): st.none(),
    datetime: st.integers(0, 2**47).map(lambda us: datetime.fromtimestamp(us // 10**6, UTC)
                                        + timedelta(microseconds=us % 10**6)),
}  # fmt: skip


def events() -> st.SearchStrategy[Any]:
    """Any event of any type."""
    return st.sampled_from(RECORD_TYPES).flatmap(values_of)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a record type or of the type of one of its fields."""
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    origin = typing.get_origin(hint)
    if origin is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=2).map(tuple)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values_of(member) for member in typing.get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    hints = typing.get_type_hints(hint)
    fields = {field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)}
    return st.fixed_dictionaries(fields).map(lambda values: hint(**values))
