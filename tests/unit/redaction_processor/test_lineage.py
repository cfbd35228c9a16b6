"""Calls find their place by their messages alone."""

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import Gap, Step
from schemas.bus import Received
from schemas.bus.memory import MemoryBus
from schemas.settings import RedactionSettings
from schemas.store import BlobStore
from streams.redaction.processor import RedactionProcessor
from streams.redaction.tenants import Tenants
from streams.runtime import RecordLane, ReplayMark
from tests.unit.redaction_processor.captures import calls_of, exchange, record
from tests.unit.runtime_harness import ManualClock, events_of, lane_over, memory_bus

ROOT = b"r" * 32


@pytest.fixture
def bus() -> MemoryBus:
    return memory_bus()


@pytest.fixture
def lane(bus: MemoryBus, tmp_path: Path) -> RecordLane:
    return make_lane(bus, tmp_path)


def make_lane(bus: MemoryBus, folder: Path, **options: Any) -> RecordLane:
    tenants = Tenants(ROOT, RedactionSettings(tier="regex"))
    blobs = BlobStore((folder / "blobs").as_uri())
    processor = RedactionProcessor(tenants, blobs, ReplayMark(), hold_seconds=5.0)
    return lane_over(bus, processor, folder, **options)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


CONVERSATION = [user("hi"), said("hello"), user("what is 2+2"), said("4"), user("bye"), said("bye")]


def by_id(steps: list[Step]) -> dict[str, Step]:
    return {step.step_id: step for step in steps}


def bodies(step: Step) -> list[Any]:
    return [
        json.loads(m.body) for m in (*step.observation.new_messages, *step.action_and_result.output)
    ]


async def test_a_conversation_is_one_chain_without_repeated_messages(
    bus: MemoryBus, lane: RecordLane
) -> None:
    records = [record(call, i) for i, call in enumerate(calls_of(CONVERSATION, "a"))]
    assert await lane.process(records) == records
    steps = events_of(bus, topics.STEPS)
    assert [m for step in steps for m in bodies(step)] == CONVERSATION
    assert len({step.trajectory_id for step in steps}) == 1
    assert [step.lineage.parent_step_id for step in steps] == [None, "step-a-1", "step-a-3"]
    assert [step.lineage.step_index for step in steps] == [0, 1, 2]


async def test_equal_openings_become_separate_trajectories(
    bus: MemoryBus, lane: RecordLane
) -> None:
    first, second = calls_of(CONVERSATION, "a"), calls_of(CONVERSATION, "b")
    mixed = [call for pair in zip(first, second, strict=True) for call in pair]
    await lane.process([record(call, i) for i, call in enumerate(mixed)])
    trajectories = defaultdict(list)
    for step in events_of(bus, topics.STEPS):
        trajectories[step.trajectory_id] += bodies(step)
    assert list(trajectories.values()) == [CONVERSATION, CONVERSATION]


@pytest.mark.parametrize("seed", range(20))
async def test_arrival_order_does_not_matter_within_the_hold(
    bus: MemoryBus, lane: RecordLane, seed: int
) -> None:
    calls = calls_of(CONVERSATION, "a")
    random.Random(seed).shuffle(calls)
    for offset, call in enumerate(calls):
        await lane.process([record(call, offset)])
    steps = by_id(events_of(bus, topics.STEPS))
    assert steps["step-a-5"].lineage.parent_step_id == "step-a-3"
    assert steps["step-a-3"].lineage.parent_step_id == "step-a-1"
    assert len({step.trajectory_id for step in steps.values()}) == 1
    assert all(gap.field != "lineage.parent_step_id" for s in steps.values() for gap in s.gaps)


async def test_a_call_whose_history_never_arrives_is_emitted_with_a_gap(
    bus: MemoryBus, tmp_path: Path
) -> None:
    clock = ManualClock(exchange([], None, "x").started_at)
    lane = make_lane(bus, tmp_path, clock=clock)
    late = record(calls_of(CONVERSATION, "a")[1], 0)
    assert await lane.process([late]) == []
    clock.advance(exchange([], None, "x").ended_at - clock.now())
    assert await lane.process([]) == []
    clock.advance(5 * (clock.now() - exchange([], None, "x").started_at))
    assert await lane.process([]) == [late]
    (step,) = events_of(bus, topics.STEPS)
    assert Gap(field="lineage.parent_step_id", reason="steps_before_not_captured") in step.gaps
    assert [json.loads(m.body) for m in step.observation.new_messages] == CONVERSATION[:3]


async def test_a_second_processing_of_a_call_decides_the_same(
    bus: MemoryBus, lane: RecordLane
) -> None:
    calls = [*calls_of(CONVERSATION, "a"), *calls_of(CONVERSATION, "b")]
    records = [record(call, i) for i, call in enumerate(calls)]
    await lane.process(records)
    once = by_id(events_of(bus, topics.STEPS))
    for again in reversed(records):
        await lane.process([again])
    steps = events_of(bus, topics.STEPS)
    assert len(steps) == 2 * len(once)
    assert all(once[step.step_id] == step for step in steps)


async def test_a_retry_under_one_idempotency_key_is_an_attempt_of_the_step(
    bus: MemoryBus, lane: RecordLane
) -> None:
    first = exchange([user("hi")], said("hello"), "a", idempotency_key="k")
    second = exchange([user("hi")], said("hey"), "b", idempotency_key="k", step_id="step-a")
    await lane.process([record(first, 0), record(second, 1)])
    steps = events_of(bus, topics.STEPS)
    assert [s.lineage.attempt_of for s in steps] == [None, "step-a"]
    assert steps[0].step_id == "step-a"
    assert steps[1].step_id != "step-a"


async def test_a_named_trajectory_is_kept_and_its_parts_still_chained(
    bus: MemoryBus, lane: RecordLane
) -> None:
    calls = [
        exchange(CONVERSATION[:i], CONVERSATION[i], str(i), trajectory_id="t-1") for i in (1, 3, 5)
    ]
    await lane.process([record(call, i) for i, call in enumerate(calls)])
    steps = events_of(bus, topics.STEPS)
    assert {s.trajectory_id for s in steps} == {"t-1"}
    assert [m for s in steps for m in bodies(s)] == CONVERSATION


async def test_real_conversations_without_any_session_come_out_whole(
    bus: MemoryBus, lane: RecordLane, shared_data: Path
) -> None:
    path = shared_data / "trajectories" / "tau-bench-airline-gpt-4o.json"
    conversations = [c["traj"] for c in json.loads(path.read_text())]
    queues = [calls_of(messages, str(n)) for n, messages in enumerate(conversations)]
    mixed: list[Received] = []
    rng = random.Random(7)
    while any(queues):
        queue = rng.choice([q for q in queues if q])
        mixed.append(record(queue.pop(0), len(mixed)))
    for start in range(0, len(mixed), 50):
        batch = mixed[start : start + 50]
        assert await lane.process(batch) == batch
    whole = defaultdict(list)
    spans = 0
    for step in events_of(bus, topics.STEPS):
        whole[step.trajectory_id] += bodies(step)
        spans += len(step.governance.redactions)
    assert len(whole) == len(conversations)
    # compared outside redacted text: roles, order and tool names identify each conversation
    expected = sorted(_shape(messages[: _last_answer(messages) + 1]) for messages in conversations)
    assert sorted(_shape(messages) for messages in whole.values()) == expected
    assert spans > 0


def _last_answer(messages: list[dict[str, Any]]) -> int:
    return max(i for i, m in enumerate(messages) if m["role"] == "assistant")


def _shape(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (m["role"], ",".join(c["function"]["name"] for c in m.get("tool_calls") or []))
        for m in messages
    ]
