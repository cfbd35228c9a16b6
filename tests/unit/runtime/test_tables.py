"""A table forgets what nobody wrote for its retention, and nothing earlier."""

import asyncio
import tracemalloc
from datetime import timedelta
from types import SimpleNamespace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.clock import ManualClock
from schemas.telemetry import Metrics
from streams.runtime.tables import GENERATIONS, FaustTable, sweeper
from tests.unit.runtime_harness import START

HOURS = 16.0
#: A row goes one generation late at most, and is looked at once in each.
LATE_HOURS = 2 * HOURS / GENERATIONS


def table_over(rows: dict[bytes, bytes], clock: ManualClock, hours: float | None) -> FaustTable:
    return FaustTable(SimpleNamespace(data=rows), "changelog", hours, clock)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write a", "write b", "delete a", "recover b", "sweep"]),
            st.integers(0, 8),
        ),
        max_size=40,
    )
)
def test_a_row_stays_for_its_retention_and_goes_soon_after(acts: list[tuple[str, int]]) -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {}
    table = table_over(rows, clock, HOURS)
    written: dict[bytes, int] = {}
    now = 0
    for act, hours in acts:
        match act.split():
            case ["write", key]:
                table.apply(key, b"1")
                written[key.encode()] = now
            case ["delete", key]:
                table.apply(key, None)
                written.pop(key.encode(), None)
            case ["recover", key] if key.encode() not in rows:  # Faust does so, past the table
                rows[key.encode()] = b"1"
                asyncio.run(table.sweep())
                written[key.encode()] = now
            case ["sweep"]:
                asyncio.run(table.sweep())
                ages = {key: now - at for key, at in written.items()}
                assert {key for key, age in ages.items() if age <= HOURS} <= rows.keys()
                assert rows.keys() <= {k for k, age in ages.items() if age <= HOURS + LATE_HOURS}
                written = {key: at for key, at in written.items() if key in rows}
        clock.advance(timedelta(hours=hours))
        now += hours


def test_the_retention_is_kept_to_a_sixteenth() -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {}
    table = table_over(rows, clock, HOURS)
    table.apply("a", b"1")
    clock.advance(timedelta(hours=HOURS))
    assert asyncio.run(table.sweep()) == 0
    clock.advance(timedelta(hours=LATE_HOURS))
    assert asyncio.run(table.sweep()) == 1
    assert rows == {}


def test_a_wall_clock_that_is_set_loses_nothing() -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {}
    table = table_over(rows, clock, HOURS)
    table.apply("a", b"1")
    asyncio.run(table.sweep())
    clock.set_back(timedelta(hours=-100 * HOURS))
    asyncio.run(table.sweep())
    assert rows == {b"a": b"1"}


def test_without_a_retention_rows_stay() -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {}
    table = table_over(rows, clock, None)
    table.apply("a", b"1")
    clock.advance(timedelta(days=1_000))
    assert asyncio.run(table.sweep()) == 0
    assert table.get("a") == b"1"


def test_a_row_written_while_others_are_forgotten_stays() -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {}
    table = table_over(rows, clock, HOURS)
    for number in range(5_000):
        table.apply(str(number), b"1")
    clock.advance(timedelta(hours=HOURS + LATE_HOURS))

    async def both() -> int:
        sweep = asyncio.create_task(table.sweep())
        await asyncio.sleep(0)  # one slice is forgotten
        kept = [key.decode() for key in rows]
        assert 0 < len(kept) < 5_000
        for key in kept:
            table.apply(key, b"2")
        assert set(map(str.encode, kept)) == rows.keys()
        return await sweep

    num_forgotten = asyncio.run(both())
    assert num_forgotten + len(rows) == 5_000
    assert set(rows.values()) == {b"2"}


def test_a_small_row_takes_little_memory_whoever_made_it() -> None:
    table = table_over({}, ManualClock(START), HOURS)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1_000):
            table.apply(str(number), orjson.dumps({"number": number}))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000 * 500


def test_rows_are_counted_and_so_are_those_that_went() -> None:
    clock = ManualClock(START)
    rows: dict[bytes, bytes] = {b"a": b"1"}
    table = table_over(rows, clock, HOURS)
    metrics = Metrics()
    run = sweeper(table, "g", "t", metrics)

    async def one_round() -> None:
        task = asyncio.create_task(run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()

    def told(name: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"group": "g", "table": "t"})

    asyncio.run(one_round())
    assert (told("headrace_state_rows"), told("headrace_state_rows_forgotten_total")) == (1, 0)
    clock.advance(timedelta(hours=HOURS + LATE_HOURS))
    asyncio.run(one_round())
    assert (told("headrace_state_rows"), told("headrace_state_rows_forgotten_total")) == (0, 1)


def test_state_outlives_what_its_group_can_read_again() -> None:
    for group in topics.FORGETTING_GROUPS:
        inputs = [
            topic.retention_hours
            for topic in topics.all_topics()
            if group in topic.readers and topic.cleanup == "delete"
        ]
        for table in topics.TABLES[group]:
            changelog = topics.topic(topics.changelog_topic(group, table))
            assert inputs
            assert changelog.retention_hours > max(inputs)
