"""Stored conversations as examples, and their split by task. Pure.

messages ─▶ text of the chat template, in pieces ─▶ tokens ─▶ windows, each answer token trained
                                                               in one of them
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from schemas.atdp.training import SequenceKind
from schemas.errors import ConfigError
from trainer.examples import UNKNOWN_VERSION, Example

Encode = Callable[[str], list[int]]


class Render(Protocol):
    """Messages as text; with `answers` what stands before an answer follows."""

    def __call__(self, messages: list[dict[str, str]], *, answers: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation as it was stored."""

    name: str
    task: str
    reward: float
    messages: tuple[dict[str, str], ...]


def plain(message: dict[str, Any]) -> dict[str, str]:
    """Role and text alone, for any template: calls and results of tools are marked in the text."""
    role, content = str(message["role"]), str(message.get("content") or "")
    calls = [
        f'<tool_call>{{"name": "{call["function"]["name"]}", '
        f'"arguments": {call["function"]["arguments"] or "{}"}}}</tool_call>'
        for call in message.get("tool_calls") or ()
    ]
    if role == "tool":
        return {"role": "user", "content": f"<tool_response>{content}</tool_response>"}
    role = "system" if role == "developer" else role
    return {"role": role, "content": "\n".join(part for part in [content, *calls] if part)}


def is_held_out(task: str, seed: int, share: float) -> bool:
    """Whether a task is kept for the comparison, the same for all of its conversations."""
    digest = hashlib.sha256(f"{seed} {task}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def pieces(messages: Sequence[dict[str, str]], render: Render) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether each is an answer. What follows the last one is left out.

    ConfigError for a template that writes earlier messages anew.
    """
    done = ""
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = render([*messages[:index]], answers=True)
        after = render([*messages[: index + 1]], answers=False)
        if not (before.startswith(done) and after.startswith(before)):
            raise ConfigError(
                "The chat template of the model writes earlier messages anew with each answer. "
                "Name another --model, or none."
            )
        yield before[len(done) :], False
        yield after[len(before) :], True
        done = after


def examples_of(
    talk: Talk, render: Render, encode: Encode, max_tokens: int, *, all_tokens: bool = False
) -> list[Example]:
    """The windows of a conversation: at most `max_tokens` long, each beginning a quarter before
    the tokens that it trains. With `all_tokens` what others wrote is trained, too.
    """
    ids: list[int] = []
    is_answer: list[bool] = []
    for text, answered in pieces(talk.messages, render):
        found = encode(text)
        ids += found
        is_answer += [answered or all_tokens] * len(found)
    lead = max_tokens // 4
    stride = max_tokens - lead
    windows = []
    for number, first in enumerate(range(0, len(ids), stride)):
        begin = max(0, first - lead)
        end = min(len(ids), first + stride)
        places = [at - begin for at in range(max(first, 1), end) if is_answer[at]]
        if places:
            windows.append(_example(talk, number, ids[begin:end], places))
    return windows


def _example(talk: Talk, number: int, ids: list[int], places: list[int]) -> Example:
    size = len(places)
    return Example(
        sample_id=f"{talk.name}/{number}",
        revision=1,
        trajectory=talk.name,
        task=talk.task,
        kind=SequenceKind.SUPERVISED,
        reward=talk.reward,
        replaces=None,
        replaced_reward=None,
        token_ids=np.array(ids, np.int64),
        positions=np.array(places, np.int64),
        behaviour=np.full(size, np.nan),
        versions=np.full(size, UNKNOWN_VERSION, np.int64),
        turns=np.zeros(size, np.int64),
        approximate=np.zeros(size, np.bool_),
    )
