"""A cluster of three loses one broker after the other while a load runs."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.store import open_reader
from schemas import topics
from tests.soak.cluster import NUM_BROKERS, Cluster, running_cluster
from tests.soak.kills import Kill
from tests.soak.load import Load
from tests.soak.outages import ask_status, part
from tests.soak.stack import Victims
from tests.soak.trial import SETTINGS, Disturbance, Order, run_trial
from tests.soak.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2400)]

ORDER = Order(
    seed=1, num_steps=100, kills_each=0, concurrency=4, pause_seconds=0.3, allowed_backlog=10**9
)
AWAY_SECONDS = 60.0
#: A dead broker is missed after nine seconds; then leaders, coordinators and clients have to find
#: each other anew, on a machine that has two cores for all of it.
MAX_STANDSTILL_SECONDS = 50.0
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0


@dataclass
class LosingBrokers:
    """Each broker once: killed, away for a while, back until all copies are whole again."""

    load: Load
    data_dir: Path
    cluster: Cluster
    kills: list[Kill] = field(default_factory=list)
    is_done: bool = False
    #: For each loss: the longest time in which no call became visible, and how many did.
    standstills: list[float] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)
    #: Partitions of raw events that the broker led.
    led: list[int] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)

    async def run(self) -> None:
        """All of it."""
        await until(lambda: self.load.num_steps >= 50, _PATIENCE_SECONDS)
        for number in range(1, NUM_BROKERS + 1):
            leads = await asyncio.to_thread(self.cluster.leads, topics.RAW_EVENTS)
            self.led.append(leads[number])
            self.cluster.kill(number)
            await self._watch()
            self.statuses.append(await ask_status(self.data_dir))
            self.cluster.start(number)
            await asyncio.to_thread(self.cluster.wait, number)
            whole = await self._until_whole()
            assert whole, f"broker {number} did not catch up"
        self.is_done = True

    async def _watch(self) -> None:
        """What becomes visible while the broker is away."""
        began = moved_at = time.monotonic()
        first = most = await asyncio.to_thread(self._num_visible)
        longest = 0.0
        while (now := time.monotonic()) < began + AWAY_SECONDS:
            number = await asyncio.to_thread(self._num_visible)
            longest = max(longest, now - moved_at)
            if number > most:
                most, moved_at = number, now
            await asyncio.sleep(_LOOK_SECONDS)
        self.standstills.append(round(longest, 1))
        self.visible.append(most - first)

    def _num_visible(self) -> int:
        with open_reader(self.data_dir) as reader:
            (row,) = reader.rows("SELECT count() AS number FROM steps")
        return int(row["number"])

    async def _until_whole(self) -> bool:
        began = time.monotonic()
        while time.monotonic() < began + _PATIENCE_SECONDS:
            if await asyncio.to_thread(self.cluster.num_in_sync) == NUM_BROKERS:
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False


def test_losing_each_of_three_brokers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    losses: list[LosingBrokers] = []
    with running_cluster(tmp_path) as cluster:
        settings = {
            **SETTINGS,
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "HEADRACE_KAFKA__REPLICATION_FACTOR": str(NUM_BROKERS),
        }

        def disturb(load: Load, _victims: Victims) -> Disturbance:
            losses.append(LosingBrokers(load, tmp_path / "stack", cluster))
            return losses[0]

        outcome = run_trial(ORDER, tmp_path, print, disturb, settings)
    loss = losses[0]
    told = {
        "calls": outcome.steps, "standstills": loss.standstills, "led": loss.led,
        "visible meanwhile": loss.visible, "waits": [one["waits"] for one in loss.statuses],
        "settled after": outcome.settle_seconds,
        "verdict": {k: v for k, v in outcome.plain()["verdict"].items() if v},
    }  # fmt: skip
    sys.stdout.write(json.dumps(told, default=str) + "\n")
    assert outcome.verdict.is_right, outcome.plain()
    assert outcome.attempts_failed == 0
    assert sum(loss.led) > 0
    assert all(part(status, "kafka")["healthy"] for status in loss.statuses)
    assert min(loss.visible) > 0
    assert max(loss.standstills) < MAX_STANDSTILL_SECONDS
