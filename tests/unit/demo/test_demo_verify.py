"""The ledger against the store: every way in which they can differ is told apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from infra.demo.ledger import Call, Ledger, RewardPost
from infra.demo.verify import Evidence, RewardRow, StepRow, Verdict, is_complete, judge
from infra.demo.visibility import percentile
from schemas.ids import derive_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def call(talk: str, position: int) -> Call:
    message = {"role": "assistant", "content": "a"}
    response = f"chatcmpl-{talk}-{position}"
    return Call(talk, position, False, response, f"step-{talk}-{position}", (), message, 1.0)


def post(talk: str, value: float, revision: int = 1) -> RewardPost:
    return RewardPost(talk, "t", f"fb-{talk}", {"step_id": "s"}, value, NOW, revision)


LEDGER = Ledger(
    calls=[call("a", 2), call("a", 4), call("b", 2)],
    rewards=[post("a", 1.0), post("b", 0.0), post("b", 1.0, revision=2)],
)


def row(talk: str, position: int) -> StepRow:
    return StepRow(f"chatcmpl-{talk}-{position}", f"step-{talk}-{position}", f"traj-{talk}")


def reward(talk: str, position: int, value: float, revision: int = 1) -> tuple[str, RewardRow]:
    row_id = derive_id("reward", "demo", f"fb-{talk}")
    return row_id, RewardRow(f"step-{talk}-{position}", f"traj-{talk}", value, revision)


GOOD = Evidence(
    steps=(row("a", 2), row("a", 4), row("b", 2)),
    num_steps=3,
    rewards=dict([reward("a", 4, 1.0), reward("b", 2, 1.0, 2)]),
    trajectory_rewards={"traj-a": 1.0, "traj-b": 1.0},
    num_dead_lettered=0,
    num_quarantined=0,
)


def test_a_store_that_holds_everything_is_complete() -> None:
    verdict = judge(LEDGER, GOOD, "demo")
    assert verdict == Verdict(0, 0, 2, 0, 2)
    assert is_complete(LEDGER, verdict)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (replace(GOOD, steps=GOOD.steps[1:]), Verdict(1, 0, 2, 0, 2)),
        (replace(GOOD, steps=(*GOOD.steps, row("a", 2))), Verdict(0, 1, 2, 0, 2)),
        (replace(GOOD, rewards=dict([reward("a", 4, 1.0)])), Verdict(0, 0, 1, 1, 1)),
        (  # joined to another step than the one it was sent for
            replace(GOOD, rewards=dict([reward("a", 2, 1.0), reward("b", 2, 1.0, 2)])),
            Verdict(0, 0, 1, 1, 2),
        ),
        (  # the value before its revision
            replace(GOOD, rewards=dict([reward("a", 4, 1.0), reward("b", 2, 0.0, 1)])),
            Verdict(0, 0, 1, 1, 2),
        ),
        (replace(GOOD, trajectory_rewards={"traj-a": 1.0, "traj-b": 0.0}), Verdict(0, 0, 2, 0, 1)),
    ],
)
def test_each_fault_is_counted(evidence: Evidence, expected: Verdict) -> None:
    verdict = judge(LEDGER, evidence, "demo")
    assert verdict == expected
    assert is_complete(LEDGER, verdict) == (expected.num_duplicated == 1)


def test_another_tenants_reward_is_not_ours() -> None:
    assert judge(LEDGER, GOOD, "other").num_unmatched == 2


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.95) == 95.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.95) is None
