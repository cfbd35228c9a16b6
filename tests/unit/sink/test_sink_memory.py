"""What a sink holds at a time is bounded in rows, whatever waits; it inserts in order."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas import topics
from schemas.bus import Received
from schemas.bus.memory import MemoryBus
from schemas.clock import SystemClock
from schemas.codec import encode
from schemas.errors import TransientError
from schemas.settings import SinkSettings
from schemas.telemetry import Metrics
from streams.runtime.crashes import CrashLedger
from streams.runtime.pump import Attempt, Pump
from streams.sink import agent
from streams.sink.agent import SinkLane
from streams.sink.migrate import shipped
from streams.sink.rows import Row
from streams.sink.tables_doc import stored_tables
from streams.sink.writer import Writer
from tests.sink_events import step

_NO_DATA_FRAMES = """
import sys
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.insert import InsertContext
from streams.sink.store import leave_data_frames_out
leave_data_frames_out()
context = InsertContext("t", ["a"], [get_from_name("String")], [["x"]])
assert [len(block.column_data) for block in context.next_block()] == [1]
assert not {"pandas", "numpy"} & sys.modules.keys()
"""


MAX_ROWS = 20


class CountedRow(Row):
    """A row that can be seen to be gone.

    `gc.get_objects` would show that too, but whoever asks it makes other threads fail: it shows
    them tuples that they have not finished.
    """

    __slots__ = ("__weakref__",)


class Living:
    """The rows that somebody still holds."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[CountedRow]] = []

    def counted(self, row: Row) -> CountedRow:
        """The same row, counted from now on."""
        made = CountedRow(row.table, row.id, row.version, row.cells)
        self._made.append(weakref.ref(made))
        return made

    def __len__(self) -> int:
        return sum(row() is not None for row in self._made)


class CountingStore:
    """Counts the rows that live at each insert; away for the first `fails` of them. Each insert
    waits for its gate, where there is one."""

    def __init__(self, fails: int = 0, gate: threading.Event | None = None) -> None:
        self.living = Living()
        self.fails = fails
        self.gate = gate
        self.inserted: list[int] = []
        self.tokens: list[str] = []
        self.alive: list[int] = []
        self._types = {
            column.name: column.type
            for table in stored_tables(shipped())
            if table.name == "steps_log"
            for column in table.columns
        }

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Nothing to do."""

    def rows(
        self,
        sql: str,  # noqa: ARG002 - the store's
        parameters: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Sequence[Sequence[Any]]:
        return list(self._types.items())

    def insert(
        self,
        table: str,  # noqa: ARG002 - the store's
        types: Mapping[str, str],  # noqa: ARG002
        rows: Sequence[Sequence[Any]],
        token: str,
    ) -> None:
        self.tokens.append(token)
        if self.gate is not None:
            assert self.gate.wait(10)
        self.alive.append(len(self.living))
        if self.fails:
            self.fails -= 1
            raise TransientError("away", retry_after_seconds=0.01)
        self.inserted.append(len(rows))

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture
def events() -> list[Any]:
    """What Faust hands over: more than two inserts are made of."""
    num_bytes = SinkSettings().max_batch_rows * 7_000  # of a row while it is made
    assert num_bytes < agent.MAX_INSERT_BYTES
    value = encode(step("a"))
    return [
        SimpleNamespace(
            message=SimpleNamespace(
                topic=topics.STEPS, partition=0, offset=offset, key=b"k", value=value, headers=(),
                timestamp=0.0,
            )
        )
        for offset in range(2 * MAX_ROWS + 3)
    ]  # fmt: skip


class CountingLane(SinkLane):
    """Has its rows counted, and counts how often it made those of an insert."""

    def __init__(self, living: Living, **parts: Any) -> None:
        super().__init__(**parts)
        self._living = living
        self.made = 0

    async def prepare(self, records: Sequence[Received]) -> Attempt:
        attempt = await super().prepare(records)
        self.made += bool(records)
        return attempt

    def _row(self, record: Received) -> Row:
        return self._living.counted(super()._row(record))


def make_lane(store: CountingStore, folder: Path, bus: MemoryBus | None = None) -> CountingLane:
    return CountingLane(
        store.living,
        writer=Writer(store, Metrics()),
        producer=(bus or MemoryBus()).producer("g"),
        crashes=CrashLedger(folder / "crashes.json"),
        clock=SystemClock(),
        metrics=Metrics(),
    )


@asynccontextmanager
async def pumping(lane: SinkLane, events: list[Any]) -> AsyncIterator[list[int]]:
    """The offsets acknowledged so far, while these events go through the lane."""
    acknowledged: list[int] = []

    async def acknowledge(event: Any) -> None:
        acknowledged.append(event.message.offset)

    async def lots() -> AsyncIterator[list[Any]]:
        yield events
        await asyncio.Event().wait()

    pump = Pump(
        group="g", lane=lane, acknowledge=acknowledge, metrics=Metrics(), max_batch=MAX_ROWS,
        linger_seconds=0.05,
    )  # fmt: skip
    tasks = [asyncio.create_task(pump.run()), asyncio.create_task(pump.feed(lots()))]
    try:
        yield acknowledged
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), f"the pump stopped: {ended!r}"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads set no event of this loop
            await asyncio.sleep(0.02)


async def test_rows_of_two_inserts_live_at_a_time(tmp_path: Path, events: list[Any]) -> None:
    gate = threading.Event()
    store = CountingStore(gate=gate)
    lane = make_lane(store, tmp_path)
    async with pumping(lane, events) as acknowledged:
        # the second ones are made while the first ones wait for the store
        await until(lambda: (lane.made, len(store.tokens)) == (2, 1))
        assert (len(store.living), acknowledged) == (2 * MAX_ROWS, [])
        gate.set()
        await until(lambda: len(acknowledged) == len(events))
    assert acknowledged == list(range(len(events)))
    assert store.inserted == [MAX_ROWS, MAX_ROWS, 3]
    assert max(store.alive) <= 2 * MAX_ROWS, "those of the insert before are gone"


async def test_a_store_that_is_away_gets_the_same_insert_again_and_no_other(
    tmp_path: Path, events: list[Any]
) -> None:
    store = CountingStore(fails=3)
    async with pumping(make_lane(store, tmp_path), events) as acknowledged:
        await until(lambda: len(acknowledged) == len(events))
    assert store.inserted == [MAX_ROWS, MAX_ROWS, 3]
    assert [store.tokens.index(token) for token in store.tokens] == [0, 0, 0, 0, 4, 5]
    assert max(store.alive) <= 2 * MAX_ROWS
    gc.collect()
    assert len(store.living) == 0, "nothing is left behind"


async def test_a_refused_record_is_dead_lettered_in_its_place(tmp_path: Path) -> None:
    value = encode(step("a"))
    good, bad = (
        Received(topics.STEPS, 0, offset, b"k", given, (), 0)
        for offset, given in enumerate((value, b"\x00no avro"))
    )
    bus = MemoryBus()
    letters = topics.dead_letter_topic(topics.STEPS)
    bus.admin().create_topics(topics.all_topics(), 1, 1)
    lane = make_lane(CountingStore(), tmp_path, bus)
    attempt = await lane.prepare([bad, good])
    assert await attempt([good]) == [good]  # the bad one belongs to another worker now
    assert bus.partitions(letters)[0].end == 0
    assert await attempt([bad, good]) == [bad, good]
    assert bus.partitions(letters)[0].end == 1


def test_an_insert_loads_no_data_frames() -> None:
    subprocess.run([sys.executable, "-c", _NO_DATA_FRAMES], check=True, timeout=60)
