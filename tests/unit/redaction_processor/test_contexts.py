"""Contexts begun anew, and subagents, as agent programs tell of them in their headers."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import Exchange, Header, Step, TrajectorySource
from schemas.bus.memory import MemoryBus
from streams.runtime import RecordLane
from tests.unit.redaction_processor.captures import START, exchange, record
from tests.unit.redaction_processor.test_lineage import make_lane, said, user
from tests.unit.runtime_harness import ManualClock, events_of, memory_bus

SUMMARY = "This session is being continued from a previous conversation. Summary: 2+2 was asked."


@pytest.fixture
def bus() -> MemoryBus:
    return memory_bus()


@pytest.fixture
def lane(bus: MemoryBus, tmp_path: Path) -> RecordLane:
    return make_lane(bus, tmp_path)


def call(
    messages: list[dict[str, Any]], answer: dict[str, Any], name: str, **headers: str
) -> Exchange:
    """A call of one session."""
    pairs = [Header(name=n.replace("_", "-"), value=v) for n, v in headers.items()]
    return exchange(
        messages, answer, name, trajectory_id="s-1", trajectory_source=TrajectorySource.SESSION,
        request_headers=tuple(pairs),
    )  # fmt: skip


async def steps_of(lane: RecordLane, bus: MemoryBus, calls: list[Exchange]) -> list[Step]:
    await lane.process([record(one, offset) for offset, one in enumerate(calls)])
    steps = {step.step_id: step for step in events_of(bus, topics.STEPS)}
    return [steps[one.step_id] for one in calls]


def lineage_gaps(step: Step) -> list[str]:
    return [gap.reason for gap in step.gaps if gap.field == "lineage.parent_step_id"]


async def test_a_compacted_session_goes_on_in_a_branch(bus: MemoryBus, lane: RecordLane) -> None:
    first = [user("what is 2+2")]
    anew = [user(SUMMARY), user("go on")]
    later = [*anew, said("so be it"), user("and 3+3")]
    calls = [
        call(first, said("4"), "a"), call(anew, said("so be it"), "b"),
        call(later, said("6"), "c"), call([*first, said("4"), user("bye")], said("bye"), "d"),
    ]  # fmt: skip
    trunk, begun, after, back = await steps_of(lane, bus, calls)
    assert {step.trajectory_id for step in (trunk, begun, after, back)} == {"s-1"}
    assert trunk.lineage.branch is None
    assert begun.lineage.parent_step_id is None
    assert (begun.lineage.branch or "").startswith("context-")
    assert lineage_gaps(begun) == ["context_begun_anew"]
    assert (after.lineage.parent_step_id, after.lineage.branch) == ("step-b", begun.lineage.branch)
    assert lineage_gaps(after) == []
    assert (back.lineage.parent_step_id, back.lineage.branch) == ("step-a", None), "as was"


async def test_codex_counts_its_contexts_itself(bus: MemoryBus, lane: RecordLane) -> None:
    window = {"session_id": "s-1", "thread_id": "s-1"}
    calls = [
        call([user("hi")], said("hello"), "a", **window, x_codex_window_id="s-1:0"),
        call([user(SUMMARY)], said("well"), "b", **window, x_codex_window_id="s-1:1"),
        call(
            [user(SUMMARY), said("well"), user("go")], said("ok"), "c", **window,
            x_codex_window_id="s-1:1",
        ),
    ]  # fmt: skip
    first, second, third = await steps_of(lane, bus, calls)
    assert [s.lineage.branch for s in (first, second, third)] == [None, "context-1", "context-1"]
    assert lineage_gaps(second) == []
    assert third.lineage.parent_step_id == "step-b"


SPAWN = {
    "codex": ("spawn_agent", "message", {"session_id": "s-1", "thread_id": "t-2"}, "t-2"),
    "claude": ("Agent", "prompt", {"x_claude_code_agent_id": "a-9"}, "a-9"),
    "opencode": (
        "task", "prompt",
        {"session_id": "s-2", "x_session_id": "s-2", "x_parent_session_id": "s-1"}, "s-2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", SPAWN)
async def test_a_subagent_is_a_branch_below_the_step_that_started_it(
    bus: MemoryBus, lane: RecordLane, program: str
) -> None:
    tool, field, headers, name = SPAWN[program]
    function = {"name": tool, "arguments": json.dumps({field: "count the files"})}
    spawning = {"role": "assistant", "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}]}  # fmt: skip
    asked = [user("do it")]
    calls = [
        call(asked, spawning, "a"),
        call([user("count the files")], said("3"), "b", **headers),
        call([*asked, spawning, {"role": "tool", "tool_call_id": "c1", "content": "3"}],
             said("three"), "c"),
    ]  # fmt: skip
    started, helper, ended = await steps_of(lane, bus, calls)
    assert (helper.lineage.branch, helper.lineage.subagent_id) == (name, name)
    assert helper.lineage.parent_step_id == started.step_id == ended.lineage.parent_step_id
    assert (started.lineage.branch, ended.lineage.branch) == (None, None)
    assert not any(map(lineage_gaps, (started, helper, ended)))


async def test_a_compacted_conversation_without_a_session_says_what_is_missing(
    bus: MemoryBus, tmp_path: Path
) -> None:
    clock = ManualClock(START)
    lane = make_lane(bus, tmp_path, clock=clock)
    anew = [user(SUMMARY), said("Got it."), user("go on")]
    calls = [
        exchange(anew, said("ok"), "b"),
        exchange([*anew, said("ok"), user("bye")], said("bye"), "c"),
    ]
    records = [record(one, offset) for offset, one in enumerate(calls)]
    assert await lane.process(records[:1]) == [], "what came before may be on its way"
    clock.advance(timedelta(seconds=60))
    await lane.process([])
    await lane.process(records[1:])
    begun, after = events_of(bus, topics.STEPS)
    assert lineage_gaps(begun) == ["steps_before_not_captured"]
    assert (after.trajectory_id, after.lineage.parent_step_id) == (begun.trajectory_id, "step-b")
    assert lineage_gaps(after) == []
