"""The order of durability and the four outcomes: record by record, without a broker."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from schemas import topics
from schemas.bus import Received, Record
from schemas.bus.api import OnDelivery
from schemas.bus.memory import MemoryProducer
from schemas.errors import ConfigError, Reason, TransientError
from schemas.telemetry import Metrics
from streams.runtime import Effects, State, crashes
from streams.runtime.crashes import CrashLedger
from tests.unit.runtime.lane_world import CHANGELOG, OUT, Appending, World, record
from tests.unit.runtime_harness import events_of, lane_over, memory_bus, records_of


@pytest.mark.parametrize("by_report", [True, False])
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
async def test_whatever_send_fails_nothing_is_acknowledged_nor_remembered_and_the_retry_succeeds(
    tmp_path: Path, failing: int, by_report: bool
) -> None:
    world = World(tmp_path, [failing], by_report=by_report)
    lane = world.lane()
    batch = [record(0, key=b"a"), record(1, key=b"b")]  # two outputs, then two state changes
    with pytest.raises(TransientError):
        await lane.process(batch)
    assert world.table.rows == {}
    if failing <= 2:
        assert world.values(CHANGELOG) == []  # no state is written before its outputs are safe
    assert await lane.process(batch) == batch
    assert world.table.rows == {"a": b"0", "b": b"1"}
    assert set(world.values(OUT)) == {b"a:0", b"b:1"}
    assert world.values(CHANGELOG)[-2:] == [b"0", b"1"]


async def test_later_records_of_a_batch_see_the_state_of_earlier_ones(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.lane().process([record(0), record(1), record(2)])
    assert world.table.rows == {"k": b"0,1,2"}
    assert world.values(CHANGELOG) == [b"0,1,2"]  # one write a key and batch


async def test_deleting_writes_a_tombstone(tmp_path: Path) -> None:
    world = World(tmp_path)
    lane = world.lane()
    await lane.process([record(0)])
    await lane.process([record(1, "delete")])
    assert world.table.rows == {}
    assert world.values(CHANGELOG) == [b"0", None]


async def test_a_broken_record_becomes_a_dead_letter_without_its_text(tmp_path: Path) -> None:
    world = World(tmp_path)
    batch = [record(6, "broken"), record(7)]
    metrics = Metrics()
    with capture_logs() as lines:
        assert await world.lane(metrics=metrics).process(batch) == batch
    assert lines == [
        {"event": "record_dead_lettered", "log_level": "warning", "group": topics.REDACTION,
         "topic": topics.RAW_EVENTS, "partition": 0, "offset": 6, "reason": "wrong_type"}
    ]  # fmt: skip
    labels = {"group": topics.REDACTION, "reason": "wrong_type"}
    assert metrics.registry.get_sample_value("headrace_dead_letters_total", labels) == 1
    [letter] = events_of(world.bus, topics.dead_letter_topic(topics.RAW_EVENTS))
    assert (letter.source.topic, letter.source.partition, letter.source.offset) == (
        topics.RAW_EVENTS, 0, 6,
    )  # fmt: skip
    assert (letter.reason, letter.field, letter.num_bytes) == ("wrong_type", "name", 6)
    assert b"broken" not in (world.values(topics.dead_letter_topic(topics.RAW_EVENTS))[0] or b"")
    assert world.values(OUT) == [b"k:7"]


async def test_what_became_of_records_is_counted_and_holds_are_shown_by_all_lanes_together(
    tmp_path: Path,
) -> None:
    bus, metrics = memory_bus(), Metrics()
    first, second = (
        lane_over(bus, Appending(), tmp_path / name, metrics=metrics) for name in ("1", "2")
    )
    await first.process([record(0), record(1, "broken"), record(2, "unsure"), record(3, "waits")])
    await second.process([record(0, "waits"), record(1, "waits")])
    await second.process([])

    def count(result: str) -> float:
        labels = {"group": topics.REDACTION, "result": result}
        return metrics.registry.get_sample_value("headrace_records_total", labels) or 0.0

    def gauge(name: str) -> float | None:
        return metrics.registry.get_sample_value(name)

    assert [count(r) for r in ("handled", "dead_lettered", "quarantined")] == [1.0, 1.0, 1.0]
    assert (gauge("headrace_held_events"), gauge("headrace_held_bytes")) == (3.0, 18.0)
    second.forget(topics.RAW_EVENTS, 0)
    await second.process([])
    assert (gauge("headrace_held_events"), gauge("headrace_held_bytes")) == (1.0, 6.0)


async def test_a_dead_letter_that_cannot_be_written_is_retried(tmp_path: Path) -> None:
    world = World(tmp_path, [1])
    lane = world.lane()
    with pytest.raises(TransientError):
        await lane.process([record(0, "broken")])
    assert await lane.process([record(0, "broken")]) == [record(0, "broken")]
    assert len(world.values(topics.dead_letter_topic(topics.RAW_EVENTS))) == 1


async def test_what_redaction_is_unsure_of_goes_to_quarantine_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert await world.lane().process([record(3, "unsure")])
    [event] = events_of(world.bus, topics.QUARANTINE)
    assert (event.reason, event.value, event.source.offset) == ("detector_timeout", b"unsure", 3)
    assert world.values(OUT) == []


async def test_a_transient_failure_leaves_everything_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(TransientError):
        await world.lane().process([record(0), record(1, "later")])
    assert world.table.rows == {}
    assert world.values(OUT) == []


async def test_a_bug_stops_three_times_and_is_a_dead_letter_then(tmp_path: Path) -> None:
    for attempt in range(3):
        world = World(tmp_path)  # the process is gone; the ledger is on disk
        with pytest.raises(ZeroDivisionError):
            await world.lane().process([record(0), record(1, "bug")])
        assert world.values(OUT) == [], attempt
    world = World(tmp_path)
    batch = [record(0), record(1, "bug"), record(2)]
    assert await world.lane().process(batch) == batch
    [letter] = events_of(world.bus, topics.dead_letter_topic(topics.RAW_EVENTS))
    assert (letter.reason, letter.source.offset) == ("bug", 1)
    assert world.values(OUT) == [b"k:0", b"k:2"]
    assert "alice" not in (tmp_path / "crashes.json").read_text()


def test_the_crash_ledger_is_bounded_and_forgets_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "MAX_REMEMBERED", 5)
    path = tmp_path / "deep" / "crashes.json"
    ledger = CrashLedger(path)
    for offset in range(6):
        ledger.add(("t", 0, offset))
    again = CrashLedger(path)
    assert again.count(("t", 0, 0)) == 0
    assert again.count(("t", 0, 5)) == 1


async def test_an_output_that_the_broker_refuses_for_good_is_a_bug(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bus.max_record_bytes = 2
    with pytest.raises(RuntimeError, match=r"refused an output of streams\.redaction"):
        await world.lane().process([record(0)])


async def test_a_missing_topic_is_a_configuration_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bus.admin().delete_topics([OUT])
    with pytest.raises(ConfigError):
        await world.lane().process([record(0)])


# --- any failure, anywhere ---------------------------------------------------------------------


@given(
    values=st.lists(st.sampled_from(["ok", "ok", "broken", "unsure", "waits"]), max_size=8),
    keys=st.lists(st.sampled_from([b"a", b"b"]), min_size=8, max_size=8),
    fails=st.sets(st.integers(1, 30), max_size=12),
    sizes=st.lists(st.integers(1, 4), min_size=8, max_size=8),
    by_report=st.booleans(),
)
@settings(max_examples=150, deadline=None)
async def test_whatever_fails_every_record_has_its_effect_and_repeats_change_nothing(
    values: list[str], keys: list[bytes], fails: set[int], sizes: list[int], by_report: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("lane")
    records = [
        record(i, value, key)
        for i, (value, key) in enumerate(zip(values, keys[: len(values)], strict=True))
    ]
    world = World(folder, list(fails), by_report=by_report)
    once, often = World(folder), world
    await settle(once, records, [len(records) or 1])
    await settle(often, records, sizes)
    await settle(often, records, sizes, start_anew=True)  # acknowledged, but the commit was lost
    assert often.table.rows == once.table.rows
    assert set(often.values(OUT)) == set(once.values(OUT))
    for topic in (topics.QUARANTINE, topics.dead_letter_topic(topics.RAW_EVENTS)):
        assert often.ids(topic) == once.ids(topic)
    assert replayed_changelog(often) == often.table.rows


async def settle(
    world: World, records: list[Received], sizes: list[int], *, start_anew: bool = False
) -> None:
    """Process everything as the pump would: the same batch again after a transient failure."""
    lane = world.lane()
    acknowledged: set[int] = set()
    position = 0
    for size in [*sizes, len(records)]:
        batch, position = records[position : position + size], position + size
        acknowledged |= {done.offset for done in await until_it_succeeds(lane, batch)}
    world.clock.advance(timedelta(seconds=10))
    acknowledged |= {done.offset for done in await until_it_succeeds(lane, [])}
    assert acknowledged == {one.offset for one in records}, start_anew


async def until_it_succeeds(lane: Any, batch: list[Received]) -> list[Received]:
    for _ in range(50):
        try:
            done: list[Received] = await lane.process(batch)
        except TransientError:
            continue
        return done
    raise AssertionError("the batch never succeeded")


def replayed_changelog(world: World) -> dict[str, bytes]:
    """The table as a recovery from the changelog makes it."""
    rows: dict[str, bytes] = {}
    for change in records_of(world.bus, CHANGELOG):
        rows[(change.key or b"").decode()] = change.value or b""
    return {key: value for key, value in rows.items() if value}


async def test_a_decision_that_depends_on_time_is_durable_before_it_is_seen(tmp_path: Path) -> None:
    bus = memory_bus()
    order: list[str] = []

    class Watching(MemoryProducer):
        def send(self, record: Record, on_delivery: OnDelivery) -> None:
            order.append(record.topic)
            super().send(record, on_delivery)

    for decides_once in (True, False):
        order.clear()
        lane = lane_over(
            bus, Appending(), tmp_path, producer=Watching(bus), decides_once=decides_once
        )
        await lane.process([record(0)])
        assert order == ([CHANGELOG, OUT] if decides_once else [OUT, CHANGELOG])


async def test_a_record_whose_effects_no_topic_takes_is_dead_lettered(tmp_path: Path) -> None:
    bus = memory_bus()

    class Swelling:
        def handle(self, record: Received, state: State, *, overdue: bool) -> Effects:  # noqa: ARG002 - the port
            return Effects(state=((str(record.value) * 1_000_000, b"x"),))

    lane = lane_over(bus, Swelling(), tmp_path)
    assert await lane.process([record(0)]) == [record(0)]
    (letter,) = events_of(bus, topics.dead_letter_topic(topics.RAW_EVENTS))
    assert letter.reason == Reason.OVERSIZED.value
    assert records_of(bus, CHANGELOG) == []
