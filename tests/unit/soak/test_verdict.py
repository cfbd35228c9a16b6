"""The judge of the crash matrix sees what it is there to see."""

import json
from dataclasses import asdict, replace
from typing import Any

from infra.demo.stage import TENANT
from schemas.ids import derive_id
from tests.soak.kills import plan_kills
from tests.soak.load import REFUSED, Attempt, Ledger, RewardSent
from tests.soak.stack import PROCESSES
from tests.soak.talks import number_in, number_of, tag_of, tagged
from tests.soak.verdict import Evidence, judge


def attempt(position: int, *, complete: bool = True) -> Attempt:
    return Attempt(0, position, f"step-{position}", f"chatcmpl-{position}", complete, 9, "", 10.0)


def step(number: int, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"step_id": f"step-{number}", "response_id": f"chatcmpl-{number}",
           "trajectory_id": "t", "outcome": "complete", "attempt_of": None, "gaps": []}  # fmt: skip
    return {**row, **changes}


LEDGER = Ledger(attempts=[attempt(1), attempt(3)], rewards=[RewardSent(0, "f", 1.0, 1, None)])
REWARD = {"reward_id": derive_id("reward", TENANT, "f"), "step_id": "step-3",
          "trajectory_id": "t", "value": 1.0, "revision": 1}  # fmt: skip
SAMPLE = {"sample_id": "s", "trajectory_id": "t", "step_ids": ["step-1", "step-3"], "reward": 1.0}
RIGHT = Evidence(
    steps=[step(1), step(3)],
    rewards=[REWARD],
    trajectories=[{"trajectory_id": "t", "num_steps": 2, "reward": 1.0, "num_rewards": 1}],
    samples=[SAMPLE],
    doubled_rows={"steps": 0},
    emitted=[],
    num_set_aside=0,
)


def test_what_is_right_is_right() -> None:
    verdict = judge(LEDGER, RIGHT, [])
    assert verdict.is_right, verdict


def test_a_lost_call_is_seen_and_blamed_on_the_kill_before_it() -> None:
    kills = [(5.0, "sink"), (11.0, "kafka")]
    verdict = judge(LEDGER, replace(RIGHT, steps=[step(3)]), kills)
    assert (verdict.lost, verdict.lost_after, verdict.is_right) == (1, {"sink": 1}, False)
    # a verdict that finds something is written down like any other
    assert json.loads(json.dumps(asdict(verdict)))["lost_after"] == {"sink": 1}


def test_a_call_that_is_there_twice_is_seen() -> None:
    twice = replace(RIGHT, steps=[step(1), step(3), step(3, step_id="another")])
    assert judge(LEDGER, twice, []).duplicated == 1


def test_rows_beyond_one_an_id_are_seen() -> None:
    assert not judge(LEDGER, replace(RIGHT, doubled_rows={"samples": 1}), []).is_right


def test_a_failed_attempt_explains_one_step_and_no_more() -> None:
    ledger = Ledger([*LEDGER.attempts, attempt(5, complete=False)], LEDGER.rewards)
    one = replace(RIGHT, steps=[*RIGHT.steps, step(5, outcome="gateway_crashed")])
    two = replace(RIGHT, steps=[*one.steps, step(6, response_id=None)])
    assert (judge(ledger, one, []).surplus, judge(ledger, two, []).surplus) == (0, 1)


def test_an_attempt_that_nobody_accepted_explains_nothing() -> None:
    refused = replace(attempt(5, complete=False), why=REFUSED)
    ledger = Ledger([*LEDGER.attempts, refused], LEDGER.rewards)
    assert judge(ledger, replace(RIGHT, steps=[*RIGHT.steps, step(5)]), []).surplus == 1


def test_a_reward_on_another_step_or_of_another_value_is_wrong() -> None:
    for change in ({"step_id": "step-1"}, {"value": 0.0}, {"trajectory_id": "u"}):
        wrong = replace(RIGHT, rewards=[{**REWARD, **change}])
        assert judge(LEDGER, wrong, []).rewards_wrong == 1
    assert judge(LEDGER, replace(RIGHT, rewards=[]), []).rewards_wrong == 1


def test_a_conversation_in_two_trajectories_is_split_and_its_sample_lacks_steps() -> None:
    split = replace(RIGHT, steps=[step(1, trajectory_id="u"), step(3)],
                    samples=[{**SAMPLE, "step_ids": ["step-3"]}])  # fmt: skip
    verdict = judge(LEDGER, split, [])
    assert (verdict.trajectories_split, verdict.samples_wrong) == (1, 1)


def test_a_plan_is_its_seeds_and_kills_everything_as_often_as_asked() -> None:
    plan = plan_kills(3, 1000, 2, two_workers=True)
    assert (
        plan == plan_kills(3, 1000, 2, two_workers=True) != plan_kills(4, 1000, 2, two_workers=True)
    )
    assert sorted(kill.process for kill in plan) == sorted([*PROCESSES, *PROCESSES])
    assert {kill.process for kill in plan if kill.second} == {"redaction", "assembly", "sink"}


def test_a_talk_is_found_again_by_its_tag() -> None:
    for number in (0, 19, 20, 1625):
        assert number_of(tag_of(number)) == number
        messages = [{"role": "system", "content": "s"},
                    tagged({"role": "user", "content": "hello"}, number)]  # fmt: skip
        assert number_in(messages) == number
    assert number_in([{"role": "user", "content": "hello"}]) is None
