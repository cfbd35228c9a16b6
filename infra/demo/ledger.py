"""What the client itself knows: the calls it made and the rewards it sent.

The ledger is the independent witness. Nothing in it comes from headrace except the two ids the
gateway shows every client: the response id and the step id.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.demo.conversations import Conversation
from infra.demo.draft import Message
from infra.demo.private_data import Planted


@dataclass(frozen=True)
class Call:
    """One call as the client saw it. `finished_at` is the last byte, in Unix seconds."""

    conversation_id: str
    position: int
    streamed: bool
    response_id: str
    step_id: str | None
    sent: tuple[Message, ...]
    received: Message
    finished_at: float


@dataclass(frozen=True)
class RewardPost:
    """One POST to /v1/feedback. Posts with the same `feedback_id` are one reward.

    The time of the judgement is the client's: the same post sent twice is the same event twice.
    """

    conversation_id: str
    task_key: str
    feedback_id: str
    target: dict[str, str]
    value: float
    occurred_at: datetime
    revision: int = 1

    def body(self) -> dict[str, Any]:
        """The request body."""
        return {
            "target": self.target,
            "name": "resolved",
            "kind": "scalar",
            "value": self.value,
            "feedback_id": self.feedback_id,
            "revision": self.revision,
            "final": True,
            "task_key": self.task_key,
            "occurred_at": self.occurred_at.isoformat(),
        }


@dataclass
class Ledger:
    """Calls and rewards of one run, in the order they happened."""

    calls: list[Call] = field(default_factory=list)
    rewards: list[RewardPost] = field(default_factory=list)
    planted: tuple[Planted, ...] = ()

    @property
    def num_rewards(self) -> int:
        """Rewards sent, each counted once however often it was sent."""
        return len({post.feedback_id for post in self.rewards})

    @property
    def num_planted(self) -> int:
        """Different private values in what was sent and received."""
        return len({(item.kind, item.value) for item in self.planted})

    def final_rewards(self) -> dict[str, RewardPost]:
        """The post that counts in the end for each feedback id: the highest revision."""
        winners: dict[str, RewardPost] = {}
        for post in self.rewards:
            known = winners.get(post.feedback_id)
            if known is None or post.revision > known.revision:
                winners[post.feedback_id] = post
        return winners

    def last_calls(self) -> dict[str, Call]:
        """The last call of each conversation."""
        last: dict[str, Call] = {}
        for call in self.calls:
            known = last.get(call.conversation_id)
            if known is None or call.position > known.position:
                last[call.conversation_id] = call
        return last


@dataclass(frozen=True)
class RewardPlan:
    """Which conversations get their reward in an unusual way, by conversation id."""

    early: frozenset[str]
    twice: frozenset[str]
    revised: frozenset[str]


def plan_rewards(
    conversations: Sequence[Conversation], may_be_early: Sequence[str], rng: random.Random
) -> RewardPlan:
    """10 % before their step, 5 % twice, 5 % revised, all different conversations.

    `may_be_early` names those whose last call cannot change hands (see `casting`); a reward sent
    ahead of a call that turns out to belong to another conversation would be a wrong reward.
    """
    num_all = len(conversations)
    num_early = min(-(-num_all // 10), len(may_be_early))
    early = frozenset(rng.sample(sorted(may_be_early), num_early))
    rest = [item.conversation_id for item in conversations if item.conversation_id not in early]
    num_few = min(-(-num_all // 20), len(rest) // 2)
    few = rng.sample(rest, 2 * num_few)
    return RewardPlan(early, frozenset(few[:num_few]), frozenset(few[num_few:]))


def reward_posts(
    conversation: Conversation, target: dict[str, str], plan: RewardPlan, feedback_id: str
) -> list[RewardPost]:
    """What is sent for one conversation: one post; two where it is sent twice or revised."""

    judged_at = datetime.now(UTC)

    def post(value: float, revision: int) -> RewardPost:
        return RewardPost(
            conversation.conversation_id,
            conversation.task_key,
            feedback_id,
            target,
            value,
            judged_at,
            revision,
        )

    if conversation.conversation_id in plan.revised:
        return [post(1.0 - conversation.reward, 1), post(conversation.reward, 2)]
    num_posts = 2 if conversation.conversation_id in plan.twice else 1
    return [post(conversation.reward, 1)] * num_posts
