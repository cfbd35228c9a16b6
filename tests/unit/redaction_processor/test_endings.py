"""How a call ended, where its gateway was killed before it could note the end."""

from datetime import timedelta
from pathlib import Path

import pytest

from schemas import topics
from schemas.atdp.internal import Alias
from schemas.atdp.types import Outcome
from schemas.bus.memory import MemoryBus
from streams.runtime import RecordLane
from tests.unit.redaction_processor.captures import START, exchange, record
from tests.unit.redaction_processor.streams import chunk, sse
from tests.unit.redaction_processor.test_lineage import make_lane, said, user
from tests.unit.runtime_harness import ManualClock, events_of, memory_bus

WHOLE_STREAM = sse([chunk({"role": "assistant", "content": "hello"}), chunk(finish_reason="stop")])
CUT_STREAM = sse([chunk({"role": "assistant", "content": "hel"})], done=False)
WHOLE_OBJECT = exchange([user("hi")], said("hello"), "a").response_body


@pytest.fixture
def bus() -> MemoryBus:
    return memory_bus()


@pytest.fixture
def lane(bus: MemoryBus, tmp_path: Path) -> RecordLane:
    return make_lane(bus, tmp_path)


@pytest.mark.parametrize(
    ("answer", "status", "outcome"),
    [
        (WHOLE_STREAM, 200, Outcome.COMPLETE),
        (WHOLE_OBJECT, 200, Outcome.COMPLETE),
        (b'event: message_stop\ndata: {"type": "message_stop"}\n\n', 200, Outcome.COMPLETE),
        (b'data: {"type": "response.completed", "response": {}}\n\n', 200, Outcome.COMPLETE),
        (CUT_STREAM, 200, Outcome.GATEWAY_CRASHED),
        (WHOLE_OBJECT[:-1], 200, Outcome.GATEWAY_CRASHED),
        (b"", 200, Outcome.GATEWAY_CRASHED),
        (b"", None, Outcome.GATEWAY_CRASHED),
        (b'{"error": {}}', 500, Outcome.GATEWAY_CRASHED),
    ],
)
async def test_an_answer_that_is_whole_is_complete_though_nobody_noted_its_end(
    bus: MemoryBus, tmp_path: Path, answer: bytes, status: int | None, outcome: Outcome
) -> None:
    clock = ManualClock(START)
    lane = make_lane(bus, tmp_path, clock=clock)
    call = exchange(
        [user("hi")], None, "a", response_body=answer, status=status, ended_at=None,
        outcome=Outcome.GATEWAY_CRASHED, response_headers=(),
    )  # fmt: skip
    await lane.process([record(call, 0)])
    # Its client may ask again as long as a call waits for another.
    clock.advance(timedelta(seconds=10))
    await lane.process([])
    (step,) = events_of(bus, topics.STEPS)
    assert step.outcome is outcome


async def test_feedback_finds_the_step_that_its_client_named_and_never_asked_for_again(
    bus: MemoryBus, lane: RecordLane
) -> None:
    call = exchange(
        [user("hi")], None, "a", response_body=WHOLE_STREAM, ended_at=None, response_headers=(),
        outcome=Outcome.GATEWAY_CRASHED, idempotency_key="k", step_id="chosen",
    )  # fmt: skip
    await lane.process([record(call, 0)])
    (step,) = events_of(bus, topics.STEPS)
    assert (step.step_id, step.lineage.attempt_of) == ("chosen", None)
    aliases: list[Alias] = events_of(bus, topics.RAW_ALIASES)
    assert {alias.step_id for alias in aliases} == {"chosen"}
    assert len(aliases) == 2  # by the step's own id, and by the provider's


async def test_a_clock_that_was_set_back_in_a_call_measures_nothing(
    lane: RecordLane, bus: MemoryBus
) -> None:
    """Any producer may say when a call began and ended."""
    fields = {"ended_at": START - timedelta(hours=1), "first_byte_at": START + timedelta(seconds=1)}
    await lane.process([record(exchange([user("hi")], said("hello"), "a", **fields), 0)])
    (step,) = events_of(bus, topics.STEPS)
    assert step.action_and_result.latency_ms is None
    assert step.action_and_result.first_byte_ms == 1000.0
