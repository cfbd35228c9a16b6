"""Feedback finds its step in either order, within its tenant only, and is visible meanwhile."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import Coordinates, Feedback, FeedbackTarget, Reward, TrajectoryEnd
from schemas.codec import encode
from schemas.settings import AssemblySettings
from schemas.telemetry import Metrics
from streams.assembly.processor import Assembly
from streams.redaction import aliases
from streams.runtime import ReplayMark
from streams.sink.rows import to_row
from tests.unit.redaction_processor.captures import START, changed, exchange, record
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import DictTable, records_of

JANE = "jane.roe@example.com"
CALL = exchange([{"role": "user", "content": "hi"}], {"role": "assistant", "content": "yo"}, "a")


def feedback(name: str = "r", **fields: Any) -> Feedback:
    target = {k: fields.pop(k) for k in ("trajectory_id", "step_id", "response_id") if k in fields}
    values: dict[str, Any] = {
        "reward_id": name, "tenant_id": "acme", "target": FeedbackTarget(**target),
        "name": "resolved", "value": 1.0, "occurred_at": START, "received_at": START,
    }  # fmt: skip
    return Feedback(**{**values, **fields})


def row_that_counts(rewards: list[Reward]) -> Reward:
    """What a user sees of rewards with one id, whatever the order in which they were stored."""
    at = Coordinates(topic=topics.REWARDS, partition=0, offset=0)
    return max(rewards, key=lambda reward: to_row(reward, at, START).version)


BY_ID = [{"step_id": "step-a"}, {"response_id": "chatcmpl-a"}]


@pytest.mark.parametrize("target", BY_ID)
@pytest.mark.parametrize("order", [(topics.RAW_ALIASES, topics.RAW_UNRESOLVED),
                                   (topics.RAW_UNRESOLVED, topics.RAW_ALIASES)])  # fmt: skip
@pytest.mark.parametrize("restarted", [False, True])
async def test_feedback_by_id_is_joined_in_either_order(
    redaction: Redaction, target: dict[str, str], order: tuple[str, str], restarted: bool
) -> None:
    for number, event in enumerate((CALL, feedback(**target))):
        await redaction.raw_lane.process([record(event, number)])
    for topic in order:
        await redaction.drain(topic)
        if restarted:
            redaction.restart()
    (step,) = redaction.events(topics.STEPS)
    reward = row_that_counts(redaction.events(topics.REWARDS))
    assert (reward.trajectory_id, reward.step_id) == (step.trajectory_id, "step-a")
    assert reward.reward_id == "r"


async def test_feedback_by_trajectory_needs_no_step(redaction: Redaction) -> None:
    await redaction.send(feedback(trajectory_id="t"))
    (reward,) = redaction.events(topics.REWARDS)
    assert (reward.trajectory_id, reward.step_id) == ("t", None)


@pytest.mark.parametrize(("target", "shown"), [(BY_ID[0], "step-a"), (BY_ID[1], None)])
async def test_unmatched_feedback_shows_at_once_and_gives_way_to_the_match(
    redaction: Redaction, target: dict[str, str], shown: str | None
) -> None:
    await redaction.send(feedback(text=f"ask {JANE}", **target))
    (waiting,) = redaction.events(topics.REWARDS)
    assert (waiting.trajectory_id, waiting.step_id, waiting.value) == ("", shown, 1.0)
    await redaction.send(CALL)
    rewards = redaction.events(topics.REWARDS)
    assert len(rewards) == 2
    assert row_that_counts(rewards) == row_that_counts(rewards[::-1]) == rewards[1]
    assert rewards[1].trajectory_id != ""
    assert JANE.encode() not in redaction.clean_bytes()


async def test_a_correction_that_waits_counts_before_and_after_the_match(
    redaction: Redaction,
) -> None:
    first = feedback(step_id="step-a", value=0.0)
    second = replace(first, value=1.0, revision=2, occurred_at=START + timedelta(days=1))
    await redaction.send(second, first)
    assert row_that_counts(redaction.events(topics.REWARDS)).value == 1.0
    await redaction.send(CALL)
    reward = row_that_counts(redaction.events(topics.REWARDS))
    assert (reward.value, reward.revision, reward.step_id) == (1.0, 2, "step-a")
    assert reward.trajectory_id != ""


async def test_assembly_leaves_a_reward_without_a_trajectory_alone(redaction: Redaction) -> None:
    await redaction.send(feedback(step_id="step-a"))
    (waiting,) = records_of(redaction.bus, topics.REWARDS)
    effects = Assembly(AssemblySettings(), ReplayMark(), Metrics()).handle(
        waiting, DictTable(), overdue=False
    )
    assert (effects.outputs, effects.state) == ((), ())


async def test_the_same_feedback_twice_is_one_reward(redaction: Redaction) -> None:
    given = feedback(step_id="step-a")
    await redaction.send(given, given)
    await redaction.send(CALL, CALL)
    await redaction.send(given)
    rewards = redaction.events(topics.REWARDS)
    assert {r.reward_id for r in rewards} == {"r"}
    assert {(r.trajectory_id != "", r.step_id) for r in rewards} == {
        (False, "step-a"),
        (True, "step-a"),
    }
    assert row_that_counts(rewards).trajectory_id != ""


@pytest.mark.parametrize("target", BY_ID)
@pytest.mark.parametrize("feedback_first", [False, True])
async def test_another_tenants_ids_never_match(
    redaction: Redaction, target: dict[str, str], feedback_first: bool
) -> None:
    foreign = feedback(tenant_id="umbrella", **target)
    await redaction.send(*((foreign, CALL) if feedback_first else (CALL, foreign)))
    (reward,) = redaction.events(topics.REWARDS)
    assert (reward.tenant_id, reward.trajectory_id) == ("umbrella", "")


async def test_another_tenants_state_is_out_of_reach_whatever_the_kafka_key(
    redaction: Redaction,
) -> None:
    foreign = replace(CALL, tenant_id="umbrella")
    await redaction.send(record(CALL, 0, b"acme/t"), record(foreign, 1, b"acme/t"))
    mine, theirs = redaction.events(topics.STEPS)
    assert mine.step_id == theirs.step_id
    assert mine.trajectory_id != theirs.trajectory_id
    child = replace(foreign, step_id="step-b", parent_step_id="step-a")
    await redaction.send(record(child, 2, b"acme/t"))
    assert redaction.events(topics.STEPS)[-1].trajectory_id == theirs.trajectory_id


@pytest.mark.parametrize("target", [
    {}, {"step_id": "a", "response_id": "b"}, {"step_id": ""}, {"trajectory_id": ""},
    {"trajectory_id": "t", "step_id": "a", "response_id": "b"},
])  # fmt: skip
async def test_a_target_that_is_not_exactly_one_is_dead_lettered(
    redaction: Redaction, target: dict[str, str]
) -> None:
    await redaction.send(feedback(**target), feedback(trajectory_id="next"))
    (letter,) = redaction.events("dead.raw.events.v1")
    assert (letter.reason, letter.field) == ("wrong_type", "target")
    assert [r.trajectory_id for r in redaction.events(topics.REWARDS)] == ["next"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["value", "confidence"])
async def test_a_number_that_is_none_is_dead_lettered(
    redaction: Redaction, value: float, field: str
) -> None:
    await redaction.send(replace(feedback(step_id="step-a"), **{field: value}))  # type: ignore[arg-type]
    (letter,) = redaction.events("dead.raw.events.v1")
    assert (letter.reason, letter.field) == ("not_finite", field)


async def test_how_many_may_wait_is_bounded_and_none_that_waits_is_lost(
    redaction: Redaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aliases, "MAX_WAITING", 3)
    await redaction.send(*(feedback(f"r{i}", step_id="step-a") for i in range(5)))
    assert [x.reason for x in redaction.events("dead.raw.unresolved.v1")] == ["oversized"] * 2
    await redaction.send(CALL)
    matched = [r.reward_id for r in redaction.events(topics.REWARDS) if r.trajectory_id]
    assert matched == ["r0", "r1", "r2"]
    assert [key for key in redaction.tables[1].rows if "~" in key] == []


async def test_large_feedback_that_waits_fits_the_changelog(redaction: Redaction) -> None:
    large = "x" * 400_000
    await redaction.send(*(feedback(f"r{i}", step_id="step-a", text=large) for i in range(5)))
    assert max(len(value) for value in redaction.tables[1].rows.values()) < 500_000
    await redaction.send(CALL)
    matched = [r for r in redaction.events(topics.REWARDS) if r.trajectory_id]
    assert [len(r.text) for r in matched] == [len(large)] * 5


@pytest.mark.parametrize("ids", [
    {"trajectory_id": f"chat-{JANE}"},
    {"step_id": f"step of {JANE}"},
    {"response_id": f"chatcmpl-{JANE}"},
])  # fmt: skip
@pytest.mark.parametrize("by_pseudonym", [False, True])
async def test_ids_with_private_data_meet_under_the_same_pseudonym(
    redaction: Redaction, ids: dict[str, str], by_pseudonym: bool
) -> None:
    fields = {k: v for k, v in ids.items() if k != "response_id"}
    call = changed(CALL, fields)
    if "response_id" in ids:
        body = call.response_body.replace(b"chatcmpl-a", ids["response_id"].encode())
        call = replace(call, response_body=body)
    await redaction.send(call)
    (step,) = redaction.events(topics.STEPS)
    (kind,) = ids
    given = {kind: getattr(step, kind)} if by_pseudonym else ids
    await redaction.send(feedback(**given), TrajectoryEnd(
        event_id="e", tenant_id="acme", trajectory_id=ids.get("trajectory_id", "t"),
        occurred_at=START))  # fmt: skip
    (reward,) = redaction.events(topics.REWARDS)
    assert reward.trajectory_id == step.trajectory_id
    if kind == "trajectory_id":
        (end,) = redaction.events(topics.ENDS)
        assert end.trajectory_id == step.trajectory_id
    assert JANE.encode() not in redaction.clean_bytes()
    assert encode(reward)


async def test_a_named_parent_with_private_data_in_its_id_is_found(redaction: Redaction) -> None:
    first = replace(CALL, step_id=f"s-{JANE}", trajectory_id="t")
    second = exchange(
        [{"role": "user", "content": "new"}], {"role": "assistant", "content": "ok"}, "b",
        trajectory_id="t", parent_step_id=f"s-{JANE}",
    )  # fmt: skip
    await redaction.send(first, second)
    parent, child = redaction.events(topics.STEPS)
    assert child.lineage.parent_step_id == parent.step_id
    assert child.lineage.step_index == 1


@pytest.mark.parametrize("target", BY_ID)
async def test_a_reward_that_is_joined_again_in_a_replay_says_so(
    redaction: Redaction, target: dict[str, str]
) -> None:
    await redaction.send(feedback("before", **target), CALL)
    handled = {(topics.RAW_EVENTS, 0): 2}
    replayed = Redaction(redaction.folder, ReplayMark(epoch=1, committed_before=handled))
    await replayed.send(feedback("before", **target), CALL, feedback("after", **target))
    found = {r.reward_id: r.replayed for r in replayed.events(topics.REWARDS) if r.trajectory_id}
    assert found == {"before": True, "after": False}
