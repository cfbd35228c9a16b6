"""What a sink holds at a time is bounded in rows, whatever waits."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.bus import Received
from schemas.bus.memory import MemoryBus
from schemas.clock import SystemClock
from schemas.codec import encode
from schemas.errors import TransientError
from schemas.telemetry import Metrics
from streams.runtime.crashes import CrashLedger
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
assert "pandas" not in sys.modules
"""


MAX_ROWS = 20
#: Rows of other tests may live as long as they like.
TRAJECTORY = "of-no-other-test"
STEP = f"{TRAJECTORY}-s0"


def living() -> int:
    """How many rows of that step there are. `isinstance` would ask foreign objects for their class,
    and one of torch's warns when it is asked."""
    return sum(type(found) is Row and found.id == STEP for found in gc.get_objects())


class CountingStore:
    """Counts the rows that live at each insert; away for the first `fails` of them."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.inserted: list[int] = []
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
        token: str,  # noqa: ARG002
    ) -> None:
        self.alive.append(living())
        if self.fails:
            self.fails -= 1
            raise TransientError("away")
        self.inserted.append(len(rows))

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Received]:
    """More than two inserts are made of."""
    assert agent.MAX_INSERT_ROWS * 7_000 < agent.MAX_INSERT_BYTES, "7 kB a row while it is made"
    monkeypatch.setattr(agent, "MAX_INSERT_ROWS", MAX_ROWS)
    value = encode(step("a", TRAJECTORY))
    return [
        Received(topics.STEPS, 0, offset, b"k", value, (), 0) for offset in range(2 * MAX_ROWS + 3)
    ]


def make_lane(store: CountingStore, folder: Path) -> SinkLane:
    return SinkLane(
        writer=Writer(store, Metrics()),
        producer=MemoryBus().producer("g"),
        crashes=CrashLedger(folder / "crashes.json"),
        clock=SystemClock(),
        metrics=Metrics(),
    )


async def test_rows_are_made_for_one_insert_at_a_time(
    tmp_path: Path, records: list[Received]
) -> None:
    store = CountingStore()
    finished = await make_lane(store, tmp_path).process(records)
    assert len(finished) == len(records)
    assert store.inserted == [MAX_ROWS, MAX_ROWS, 3]
    assert 0 < max(store.alive) <= MAX_ROWS, "those of the insert before are gone"


async def test_a_store_that_is_away_leaves_no_rows_behind(
    tmp_path: Path, records: list[Received]
) -> None:
    store = CountingStore(fails=3)
    lane = make_lane(store, tmp_path)
    for _ in range(3):
        with pytest.raises(TransientError):
            await lane.process(records)
    await asyncio.sleep(0)
    gc.collect()
    assert living() == 0
    assert len(await lane.process(records)) == len(records)
    assert 0 < max(store.alive) <= MAX_ROWS


def test_an_insert_loads_no_data_frames() -> None:
    subprocess.run([sys.executable, "-c", _NO_DATA_FRAMES], check=True, timeout=60)
