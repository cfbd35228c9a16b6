"""What a file holds, and its events."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infra.publishing import atdp, conversations
from infra.publishing.documents import Entry, Problem, is_message
from infra.publishing.minting import Mint
from schemas.codec import PUBLISHABLE
from schemas.errors import ConfigError


class Format(StrEnum):
    """How the entries of a file are to be read."""

    ATDP = "atdp"
    MESSAGES = "messages"
    TRAJECTORIES = "trajectories"


@dataclass(frozen=True, slots=True)
class Made:
    """What one entry became. `num_left_out` counts messages that belong to no step."""

    where: str
    events: tuple[Any, ...]
    num_left_out: int = 0


def detect(entries: Iterable[Entry | Problem]) -> Format:
    """The format of the first entry that is JSON. ConfigError when it is none that we know."""
    first = next((entry for entry in entries if isinstance(entry, Entry)), None)
    value = None if first is None else first.value
    if isinstance(value, dict) and value.get("type") in PUBLISHABLE and "role" not in value:
        return Format.ATDP
    if isinstance(value, dict) and "traj" in value:
        return Format.TRAJECTORIES
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return Format.MESSAGES
    if isinstance(value, list) and value and is_message(value[0]):
        return Format.MESSAGES
    raise ConfigError(
        "The file is none of the formats that are told apart by themselves: ATDP events with a "
        "type, lists of messages, trajectories with traj. Name one with --format "
        f"{'|'.join(Format)} to see what is wrong with it; docs/publish.md has examples."
    )


def make_events(
    entries: Iterable[Entry | Problem], file_format: Format, mint: Mint
) -> Iterator[Made | Problem]:
    """What each entry becomes, in the file's order."""
    for index, entry in enumerate(entries):
        yield entry if isinstance(entry, Problem) else _made(entry, index, file_format, mint)


def _made(entry: Entry, index: int, file_format: Format, mint: Mint) -> Made | Problem:
    if file_format is Format.ATDP:
        event = atdp.event_of(entry, index, mint)
        return event if isinstance(event, Problem) else Made(entry.where, (event,))
    read = (
        conversations.from_messages
        if file_format is Format.MESSAGES
        else conversations.from_trajectory
    )
    found = read(entry)
    if isinstance(found, Problem):
        return found
    events = tuple(conversations.events_of(found, mint))
    return Made(entry.where, events, found.num_trailing)


def first_entries(entries: Iterable[Entry | Problem]) -> list[Entry | Problem]:
    """Enough of a file to tell its format."""
    return list(itertools.islice(entries, 100))
