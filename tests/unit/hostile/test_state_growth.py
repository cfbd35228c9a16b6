"""State and outputs grow with what is new, not with the history that every call carries."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemas import codec, topics
from schemas.atdp.types import Lineage, Step
from schemas.bus import Received
from schemas.errors import PermanentError, Reason
from schemas.ids import trajectory_key
from schemas.settings import AssemblySettings
from schemas.telemetry import Metrics
from streams.assembly.processor import MAX_FACTS, Assembly
from streams.runtime import Effects, ReplayMark
from tests.unit.redaction_processor.captures import exchange, record
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import DictTable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = trajectory_key("acme", "t")


def size_of(effects: Effects, table: DictTable) -> tuple[int, int]:
    """Bytes of changelog and of outputs; the changes are applied."""
    for key, value in effects.state:
        table.apply(key, value)
    state = sum(len(key) + len(value or b"") for key, value in effects.state)
    return state, sum(len(output.value or b"") for output in effects.outputs)


def assert_flat(sizes: list[tuple[int, int]]) -> None:
    """The last quarter costs what the second one did."""
    quarter = len(sizes) // 4
    for kind in (0, 1):
        early = sum(size[kind] for size in sizes[quarter : 2 * quarter])
        late = sum(size[kind] for size in sizes[-quarter:])
        assert late <= 1.25 * early + 1_000, "it grows with the length of the trajectory"


def test_a_call_with_a_long_history_writes_what_is_new_in_it(tmp_path: Path) -> None:
    processor = Redaction(tmp_path).raw_lane._processor
    table = DictTable()
    messages: list[dict[str, str]] = [{"role": "user", "content": "begin"}]
    sizes = []
    for number in range(80):
        answer = {"role": "assistant", "content": f"answer {number:03d} " + "y" * 500}
        call = exchange(messages, answer, f"{number:03d}")
        effects = processor.handle(record(call, number, b"acme/~o"), table, overdue=False)
        assert isinstance(effects, Effects)
        sizes.append(size_of(effects, table))
        messages += [answer, {"role": "user", "content": f"go on {number:03d} " + "x" * 500}]
    assert_flat(sizes[1:])
    assert max(state for state, _ in sizes) < 2_000


def a_step(number: int) -> Step:
    parent = f"step-{number - 1:06d}" if number else None
    return Step(
        step_id=f"step-{number:06d}",
        event_id=f"event-{number}",
        tenant_id="acme",
        trajectory_id="t",
        started_at=NOW + timedelta(seconds=number),
        lineage=Lineage(parent_step_id=parent, step_index=number),
    )


def test_a_step_of_a_long_trajectory_rewrites_a_bounded_part_of_its_state() -> None:
    assembly = Assembly(AssemblySettings(), ReplayMark(), Metrics())
    table = DictTable()
    sizes = []
    for number in range(512):
        told = Received(topics.STEPS, 0, number, KEY, codec.encode(a_step(number)))
        sizes.append(size_of(assembly.handle(told, table, overdue=False), table))
    assert_flat(sizes)
    assert len(table.rows) == 1 + 512 // 64


def test_an_endless_trajectory_is_cut_off_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.assembly.processor.MAX_FACTS", 8)
    assert MAX_FACTS >= 20 * 500
    assembly = Assembly(AssemblySettings(), ReplayMark(), Metrics())
    table = DictTable()
    for number in range(8):
        told = Received(topics.STEPS, 0, number, KEY, codec.encode(a_step(number)))
        size_of(assembly.handle(told, table, overdue=False), table)
    one_more = Received(topics.STEPS, 0, 8, KEY, codec.encode(a_step(8)))
    with pytest.raises(PermanentError) as refused:
        assembly.handle(one_more, table, overdue=False)
    assert (refused.value.reason, refused.value.field) == (Reason.OVERSIZED, "trajectory_id")
    again = Received(topics.STEPS, 0, 9, KEY, codec.encode(a_step(7)))
    assert assembly.handle(again, table, overdue=False) == Effects(), "what is known stays known"


def test_the_measure_itself_sees_growth() -> None:
    with pytest.raises(AssertionError):
        assert_flat([(100 * number, 0) for number in range(100)])
