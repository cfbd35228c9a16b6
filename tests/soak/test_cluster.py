"""A cluster of three loses one broker after the other while a load runs."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schemas import topics
from tests.soak.cluster import NUM_BROKERS, Cluster, running_cluster
from tests.soak.kills import Kill
from tests.soak.load import Load
from tests.soak.stack import Victims
from tests.soak.trial import SETTINGS, Disturbance, Order, run_trial
from tests.soak.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2400)]

ORDER = Order(
    seed=1, num_steps=100, kills_each=0, concurrency=4, pause_seconds=0.3, allowed_backlog=10**9
)
AWAY_SECONDS = 40.0
#: A dead broker is missed after nine seconds; clients and groups find the others after that.
MAX_STANDSTILL_SECONDS = 35.0
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0


@dataclass
class LosingBrokers:
    """Each broker once: killed, away for a while, back until all copies are whole again."""

    load: Load
    victims: Victims
    cluster: Cluster
    kills: list[Kill] = field(default_factory=list)
    is_done: bool = False
    #: For each loss: the longest time in which no group committed anything.
    standstills: list[float] = field(default_factory=list)
    led: list[int] = field(default_factory=list)

    async def run(self) -> None:
        """All of it."""
        await until(lambda: self.load.num_steps >= 50, _PATIENCE_SECONDS)
        for number in range(1, NUM_BROKERS + 1):
            leads = await asyncio.to_thread(self.cluster.leads, topics.RAW_EVENTS)
            self.led.append(leads[number])
            self.cluster.kill(number)
            self.standstills.append(await self._longest_standstill())
            self.cluster.start(number)
            await asyncio.to_thread(self.cluster.wait, number)
            whole = await self._until_whole()
            assert whole, f"broker {number} did not catch up"
        self.is_done = True

    async def _longest_standstill(self) -> float:
        """While a broker is away: how long calls waited at most before the groups went on."""
        began = moved_at = time.monotonic()
        longest, before = 0.0, -1
        while (now := time.monotonic()) < began + AWAY_SECONDS:
            backlog = await asyncio.to_thread(self.victims.backlog)
            done = -1 if backlog is None else self.load.num_steps - backlog.by_group["redaction"]
            if done > before or (backlog is not None and backlog.by_group["redaction"] == 0):
                before, moved_at = max(done, before), now
            longest = max(longest, now - moved_at)
            await asyncio.sleep(_LOOK_SECONDS)
        return longest

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

        def disturb(load: Load, victims: Victims) -> Disturbance:
            losses.append(LosingBrokers(load, victims, cluster))
            return losses[0]

        outcome = run_trial(ORDER, tmp_path, print, disturb, settings)
    loss = losses[0]
    told = {
        "calls": outcome.steps, "standstills": loss.standstills, "led": loss.led,
        "settled after": outcome.settle_seconds,
        "verdict": {k: v for k, v in outcome.plain()["verdict"].items() if v},
    }  # fmt: skip
    sys.stdout.write(json.dumps(told, default=str) + "\n")
    assert outcome.verdict.is_right, outcome.plain()
    assert outcome.attempts_failed == 0
    assert sum(loss.led) > 0
    assert max(loss.standstills) < MAX_STANDSTILL_SECONDS
