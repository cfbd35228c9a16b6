"""`read_trajectory` against the real store, with its real tables."""

import time
from pathlib import Path

import orjson
import pytest

from inference.trajectories import read_trajectory
from schemas.settings import Settings
from schemas.telemetry import Metrics
from streams.sink.migrate import open_migrated
from streams.sink.writer import Writer
from tests.integration.sink.conftest import rows_of, store_settings
from tests.services import ClickHouseEndpoint
from tests.sink_events import day

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(clickhouse: ClickHouseEndpoint, tmp_path: Path) -> Settings:
    settings = store_settings(clickhouse, tmp_path)
    opened, _ = open_migrated(settings, wait_seconds=5, pause=time.sleep)
    assert Writer(opened, Metrics()).write(rows_of(day("gateway"))) == []
    opened.close()
    return settings


async def test_a_tenant_reads_its_own_trajectories_only(filled: Settings) -> None:
    steps = [e for e in day("gateway") if type(e).__name__ == "Step"]
    first = steps[0]
    found = await read_trajectory(filled, first.tenant_id, first.trajectory_id)
    assert found is not None
    wanted = {s.step_id for s in steps if s.trajectory_id == first.trajectory_id}
    assert {s["step_id"] for s in found["steps"]} == wanted
    assert orjson.loads(orjson.dumps(found))["trajectory_id"] == first.trajectory_id
    assert await read_trajectory(filled, "another-tenant", first.trajectory_id) is None
    assert await read_trajectory(filled, first.tenant_id, "no-such-trajectory") is None
