"""Conversations as values: made from a seed, or read from a file of recorded ones."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.demo.draft import Draft, Message
from infra.demo.gold import gold_of_tool_results
from infra.demo.private_data import KINDS, Planted, PrivateData
from infra.demo.scenes import CODING_TOOLS, SHOP_TOOLS, coding_conversation, shop_conversation
from schemas.errors import ConfigError

DEFAULT_NUM_CONVERSATIONS = 72


@dataclass(frozen=True)
class Conversation:
    """One recorded conversation; every assistant message in it is one call to the model."""

    conversation_id: str
    task_key: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    reward: float
    planted: tuple[Planted, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Positions of the assistant messages: the calls, in order."""
        return tuple(
            index for index, message in enumerate(self.messages) if message["role"] == "assistant"
        )


def generate(seed: int, num_conversations: int = DEFAULT_NUM_CONVERSATIONS) -> list[Conversation]:
    """The demo's own conversations: the same seed gives the same ones, byte for byte.

    Two of three start with a prompt and an opening that others share; the rest have a prompt of
    their own with private data in it.
    """
    rng = random.Random(seed)
    data = PrivateData(rng)
    kinds = list(KINDS)
    return [_conversation(index, rng, data, kinds) for index in range(num_conversations)]


def _conversation(
    index: int, rng: random.Random, data: PrivateData, kinds: list[Any]
) -> Conversation:
    is_shop = index % 2 == 0
    write = shop_conversation if is_shop else coding_conversation
    # The order of kinds is drawn anew each time; a fixed rotation would tie kinds to places.
    draft = Draft(data, rng, rng.sample(kinds, len(kinds)))
    write(draft, own_prompt=index % 3 == 0, num_follow_ups=rng.randint(0, 3))
    return Conversation(
        conversation_id=f"demo-{index:03d}",
        task_key=("shop" if is_shop else "coding") + f"-{index % 6}",
        messages=tuple(draft.messages),
        tools=SHOP_TOOLS if is_shop else CODING_TOOLS,
        reward=float(rng.random() < 0.6),
        planted=tuple(draft.planted),
    )


def load_trajectories(path: Path) -> list[Conversation]:
    """Recorded conversations in the form `[{task_id, trial, reward, traj: [messages]}]`.

    Raises `ConfigError` where the file cannot be read as that.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return [_recorded(index, record) for index, record in enumerate(records)]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a list of recorded conversations "
            '([{"task_id", "trial", "reward", "traj": [messages]}]). Check the file.'
        ) from error


def _recorded(index: int, record: dict[str, Any]) -> Conversation:
    messages = tuple(record["traj"])
    return Conversation(
        conversation_id=f"file-{index:04d}",
        task_key=f"task-{record['task_id']}",
        messages=messages,
        tools=(),
        reward=float(record["reward"]),
        planted=gold_of_tool_results(messages),
    )
