"""Steps with large texts that come faster than they are processed.

They lie compressed in the log, where a fetch holds hundreds of them; each process takes a bounded
part of them into memory. `HEADRACE_TEST_LARGE_EVENTS` makes it more or fewer.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from infra.cli.keys import make_key, publish_key
from infra.demo.stage import TENANT, Stage
from infra.store import open_reader
from tests.e2e.conftest import stage_with
from tests.soak.memory import OUR_OWN, Watched, room, warm_up
from tests.soak.stack import Victims
from tests.soak.trial import SETTINGS, ports_of_its_own
from tests.soak.verdict import num_set_aside

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3600)]

NUM_EVENTS = int(os.environ.get("HEADRACE_TEST_LARGE_EVENTS", "600"))
#: All of them differ, and little of each.
SENTENCE = "The warehouse in the north has no room for pallets before Monday. "
NUM_SENTENCES = 8_000
MAX_GROWTH_BYTES = 400 * 1024**2
TIME = "2026-01-01T00:00:00Z"


def large(number: int) -> dict[str, Any]:
    """A step whose one message is half a megabyte of text."""
    message = {"role": "user", "content": f"case {number}: " + NUM_SENTENCES * SENTENCE}
    return {
        "type": "step", "step_id": f"s{number}", "event_id": f"e{number}",
        "trajectory_id": f"t{number}", "started_at": TIME,
        "observation": {"new_messages": [{"role": "user", "body": json.dumps(message)}]},
    }  # fmt: skip


async def post_all(stage: Stage, key: str, watched: Watched) -> None:
    headers = {"x-headrace-key": key, "content-type": "application/json"}
    url = f"{stage.target.gateway_url}/v1/events"
    await warm_up(stage, key)
    watched.look()
    async with aiohttp.ClientSession(headers=headers) as http:
        for number in range(NUM_EVENTS):
            async with http.post(url, data=json.dumps([large(number)]).encode()) as answer:
                assert answer.status == 202, await answer.text()
            watched.look()
            if number % 100 == 0:
                sys.stdout.write(f"{number + 1:,} posted\n")
                sys.stdout.flush()
    await room(Victims(stage, None), watched, 0)


def test_large_calls_that_wait_take_bounded_memory(tmp_path: Path) -> None:
    with stage_with(
        tmp_path / "stack", [], SETTINGS, "tests.soak.model", ports_of_its_own()
    ) as stage:
        key, record = make_key(TENANT, ("events:write",))
        publish_key(stage.bus, record)
        watched = Watched(stage.settings.data_dir)
        asyncio.run(post_all(stage, key, watched))
        with open_reader(stage.settings.data_dir) as reader:
            (row,) = reader.rows("SELECT count() AS steps FROM steps")
        set_aside = num_set_aside(stage.bus)
    sys.stdout.write(watched.told() + "\n")
    assert (row["steps"], set_aside) == (NUM_EVENTS, 0)
    for name in OUR_OWN:
        process = watched.processes[name]
        assert process.most_bytes - process.bytes_before < MAX_GROWTH_BYTES, name
