"""The ledger's counts and the plan of unusual rewards."""

from __future__ import annotations

import random

from infra.demo.conversations import generate
from infra.demo.ledger import Ledger, RewardPlan, plan_rewards, reward_posts

TALKS = generate(5)


def test_the_plan_keeps_its_shares_and_never_mixes_them() -> None:
    names = [talk.conversation_id for talk in TALKS]
    plan = plan_rewards(TALKS, names[:40], random.Random(1))
    assert len(plan.early) == -(-len(TALKS) // 10)
    assert len(plan.twice) == len(plan.revised) == -(-len(TALKS) // 20)
    assert plan.early <= set(names[:40])
    assert not plan.early & plan.twice
    assert not plan.early & plan.revised
    assert not plan.twice & plan.revised


def test_a_revised_reward_ends_with_the_recorded_value_and_counts_once() -> None:
    talk = TALKS[0]
    plan = RewardPlan(frozenset(), frozenset(), frozenset({talk.conversation_id}))
    posts = reward_posts(talk, {"step_id": "s"}, plan, "feedback-1")
    ledger = Ledger(rewards=posts[::-1])
    assert [post.value for post in posts] == [1.0 - talk.reward, talk.reward]
    assert ledger.num_rewards == 1
    assert ledger.final_rewards()["feedback-1"].value == talk.reward


def test_a_reward_sent_twice_is_the_same_body_twice() -> None:
    talk = TALKS[0]
    plan = RewardPlan(frozenset(), frozenset({talk.conversation_id}), frozenset())
    first, second = reward_posts(talk, {"response_id": "r"}, plan, "feedback-1")
    assert first.body() == second.body()
    assert Ledger(rewards=[first, second]).num_rewards == 1
