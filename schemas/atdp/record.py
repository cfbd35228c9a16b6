"""What a protocol record is: a frozen dataclass whose fields carry their documentation."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict

T = TypeVar("T")

#: How JSON becomes a record: unknown names and non-finite numbers are errors.
_JSON_RULES = ConfigDict(extra="forbid", allow_inf_nan=False)


def doc(text: str, *, default: Any = dataclasses.MISSING) -> Any:
    """A field with the sentence that goes into the schema; `default` makes it optional to give."""
    metadata = {"doc": text}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def nested(text: str, factory: Callable[..., Any]) -> Any:
    """A field that holds another record and defaults to an empty one."""
    return dataclasses.field(default_factory=factory, metadata={"doc": text})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(doc, nested))
def record(cls: type[T]) -> type[T]:
    """Make `cls` an immutable protocol record with keyword-only fields."""
    made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.__pydantic_config__ = _JSON_RULES  # type: ignore[attr-defined]
    return made
