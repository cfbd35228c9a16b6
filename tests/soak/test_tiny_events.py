"""A million tiny events through the gateway's door and everything behind it.

Of ten events of a trajectory one is a step, one a rating and eight are ends. It prints memory and
descriptors of each process. `HEADRACE_TEST_TINY_EVENTS` makes it fewer.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from infra.cli.keys import make_key, publish_key
from infra.demo.stage import TENANT, Stage
from infra.store import open_reader
from tests.e2e.conftest import stage_with
from tests.soak.memory import MAX_DESCRIPTORS_MORE, OUR_OWN, Watched, room, warm_up
from tests.soak.stack import Victims
from tests.soak.trial import SETTINGS, ports_of_its_own
from tests.soak.verdict import num_set_aside

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

NUM_EVENTS = int(os.environ.get("HEADRACE_TEST_TINY_EVENTS", "1000000"))
EVENTS_EACH = 10
#: As many as the door takes at once.
BATCH = 1_000
#: The load pauses while more is on its way: the disk of the log is not what is tested.
MAX_BACKLOG = 50_000
#: Of a process beyond what its state needs: queues, batches and the heap's own fragments.
MAX_GROWTH_BYTES = 150 * 1024**2
#: State of 100,000 open trajectories in assembly, and what redaction keeps of their steps.
STATE_BYTES = {"assembly": 2_500, "redaction": 1_500}
TIME = "2026-01-01T00:00:00Z"


def tiny(number: int) -> dict[str, Any]:
    """The event of that number."""
    trajectory = {"trajectory_id": f"t{number // EVENTS_EACH}"}
    kind = number % EVENTS_EACH
    if kind == 0:
        step = {"type": "step", "step_id": f"s{number}", "event_id": f"e{number}"}
        return {**step, **trajectory, "started_at": TIME}
    if kind == 1:
        rating = {"type": "feedback", "reward_id": f"r{number}", "target": trajectory}
        return {**rating, "name": "n", "value": 1.0, "occurred_at": TIME, "received_at": TIME}
    return {"type": "trajectory_end", "event_id": f"e{number}", **trajectory, "occurred_at": TIME}


async def post_all(stage: Stage, key: str, watched: Watched, victims: Victims) -> None:
    headers = {"x-headrace-key": key, "content-type": "application/json"}
    url = f"{stage.target.gateway_url}/v1/events"
    async with aiohttp.ClientSession(headers=headers) as http:
        for first in range(0, NUM_EVENTS, BATCH):
            body = json.dumps([tiny(first + i) for i in range(BATCH)]).encode()
            async with http.post(url, data=body) as answer:
                assert answer.status == 202, await answer.text()
            if first % (20 * BATCH) == 0:
                await room(victims, watched, MAX_BACKLOG)
                sys.stdout.write(f"{first + BATCH:,} posted\n")
                sys.stdout.flush()
    await room(victims, watched, 0)


def test_a_million_tiny_events_take_bounded_memory_and_no_descriptors(tmp_path: Path) -> None:
    with stage_with(
        tmp_path / "stack", [], SETTINGS, "tests.soak.model", ports_of_its_own()
    ) as stage:
        key, record = make_key(TENANT, ("events:write", "feedback:write"), rater_id="tiny")
        publish_key(stage.bus, record)
        watched, victims = Watched(stage.settings.data_dir), Victims(stage, None)
        began = time.monotonic()
        asyncio.run(warm_up(stage, key))
        asyncio.run(post_all(stage, key, watched, victims))
        seconds = time.monotonic() - began
        with open_reader(stage.settings.data_dir) as reader:
            (row,) = reader.rows(
                "SELECT (SELECT count() FROM steps) AS steps, (SELECT count() FROM rewards) AS"
                " rewards, (SELECT countIf(reward = 1) FROM trajectories) AS rewarded"
            )
        set_aside = num_set_aside(stage.bus)
        logs = sum(file.stat().st_size for file in (tmp_path / "stack" / "logs").iterdir())
    told = {"events": NUM_EVENTS, "seconds": round(seconds), "log bytes": logs}
    sys.stdout.write(f"{json.dumps(told)}\n{watched.told()}\n")
    number = NUM_EVENTS // EVENTS_EACH
    assert (row["steps"], row["rewards"], row["rewarded"]) == (number, number, number)
    assert set_aside == 0
    for name in OUR_OWN:
        process = watched.processes[name]
        allowed = MAX_GROWTH_BYTES + STATE_BYTES.get(name, 0) * number
        assert process.most_bytes - process.bytes_before < allowed, name
        more = process.most_descriptors - process.descriptors_before
        assert more <= MAX_DESCRIPTORS_MORE, name
