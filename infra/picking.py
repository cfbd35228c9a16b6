"""A record by its id, or by the beginning of one."""

from collections.abc import Mapping
from typing import TypeVar

from schemas.errors import ConfigError

#: Characters of an id that are asked for at least.
MIN_PREFIX = 6
_Kept = TypeVar("_Kept")


def picked(by_id: Mapping[str, _Kept], name: str, what: str, command: str) -> _Kept:
    """The one whose id begins with `name`. ConfigError when it is not one.

    `what` names such a record in the sentence, `command` is the one whose `list` shows the ids.
    """
    found = [record for record_id, record in by_id.items() if record_id.startswith(name)]
    if len(name) < MIN_PREFIX or not found:
        raise ConfigError(
            f"There is no {what} {name}. `headrace {command} list` shows the ids; the first "
            f"{MIN_PREFIX} characters or more are enough."
        )
    if len(found) > 1:
        raise ConfigError(f"{len(found)} ids begin with {name}. Give more of the id.")
    return found[0]
