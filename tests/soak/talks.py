"""Conversations for a long load: recorded ones, each told apart by a tag, as often as needed."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from infra.demo.conversations import Conversation, generate, load_trajectories
from infra.demo.draft import Message

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_RECORDED = Path("trajectories") / "tau-bench-airline-gpt-4o.json"
_TAG = re.compile(r"^\[case ([a-z]+)\] ")
_LETTERS = "bcdfghjklmnpqrstvwxz"
_GENERATED_SEED = 1


def recordings() -> Path | None:
    """The file of real conversations, None where the shared data is absent."""
    shared = Path(os.environ.get("HEADRACE_SHARED_DATA", _REPOSITORY.parent / "shared" / "data"))
    return shared / _RECORDED if (shared / _RECORDED).exists() else None


def load_conversations(file: Path | None) -> list[Conversation]:
    """The real ones, else the demo's own."""
    return generate(_GENERATED_SEED) if file is None else load_trajectories(file)


def tag_of(number: int) -> str:
    """A number in letters only, so that no detector of private data takes it for any."""
    letters = ""
    while number or not letters:
        number, digit = divmod(number, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters


def number_of(tag: str) -> int:
    """The number behind a tag."""
    number = 0
    for letter in tag:
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    return number


def tagged(message: Message, number: int) -> Message:
    """The message with the talk's tag before its text."""
    return {**message, "content": f"[case {tag_of(number)}] {message['content']}"}


def number_in(messages: Sequence[Message]) -> int | None:
    """The talk that a request belongs to, None for a request that is not ours."""
    for message in messages:
        if message["role"] == "user":
            found = _TAG.match(str(message["content"]))
            return None if found is None else number_of(found[1])
    return None


@dataclass(frozen=True)
class Talk:
    """One conversation to play. `number` is unique within a run."""

    number: int
    conversation: Conversation

    @property
    def turns(self) -> tuple[int, ...]:
        """Positions of the calls."""
        return self.conversation.turns

    def encoded(self) -> list[bytes]:
        """Its messages as JSON, the first of the user with the tag."""
        messages = list(self.conversation.messages)
        first = next(i for i, message in enumerate(messages) if message["role"] == "user")
        messages[first] = tagged(messages[first], self.number)
        return [orjson.dumps(message) for message in messages]
