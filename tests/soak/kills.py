"""When to kill what: a plan drawn from a seed, and its execution while a load runs."""

import asyncio
import functools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.soak.load import Load
from tests.soak.stack import GROUPS, PROCESSES, SUPERVISOR, Victims
from tests.soak.waiting import until

_POLL_SECONDS = 0.1
#: A process that is not back by then has a fault of its own.
_RECOVERY_SECONDS = 180.0
_IN_FLIGHT_SECONDS = 600.0  # the load stands still while what an outage left is worked off
#: No load lasts longer; the load itself gives up before.
_LOAD_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """Kill `process` once the load has made `at_step` calls."""

    at_step: int
    process: str
    second: bool


@dataclass(slots=True)
class Kill:
    """A kill that happened. `in_flight` is what the victim had on its hands at that moment."""

    process: str
    point: str
    at_step: int
    at: float
    in_flight: int
    open_calls: int
    backlog: int
    num_orphans: int = 0
    back_after_seconds: float | None = None


def plan_kills(
    seed: int, num_steps: int, kills_each: int, *, two_workers: bool
) -> list[PlannedKill]:
    """`kills_each` kills of every process at random moments of the load, in random order."""
    rng = random.Random(seed)
    planned = []
    for process in PROCESSES:
        for number in range(kills_each):
            at_step = rng.randint(num_steps // 20, num_steps * 9 // 10)
            second = two_workers and process in GROUPS and number % 2 == 1
            planned.append(PlannedKill(at_step, process, second))
    return sorted(planned, key=lambda kill: (kill.at_step, kill.process, kill.second))


class Killer:
    """Executes a plan. A process is killed only with work of its own in flight."""

    def __init__(self, load: Load, victims: Victims, plan: Sequence[PlannedKill]) -> None:
        self._load = load
        self._victims = victims
        self._plan = plan
        self._recovering: dict[asyncio.Task[None], str] = {}
        self.kills: list[Kill] = []
        self.is_done = False

    async def run(self) -> None:
        """All kills, and every recovery after them."""
        for planned in self._plan:
            await until(functools.partial(self._has_played, planned.at_step), _LOAD_SECONDS)
            await self._execute(planned)
        for task in list(self._recovering):
            await task
        self.is_done = True

    def _has_played(self, num_steps: int) -> bool:
        return self._load.num_steps >= num_steps

    async def _execute(self, planned: PlannedKill) -> None:
        kill, pid = await self._wait_for_work(planned)
        children = self._victims.children() if planned.process == SUPERVISOR else []
        self._victims.kill(pid)
        kill.at = time.time()
        self.kills.append(kill)
        if planned.process == SUPERVISOR:
            kill.num_orphans = await self._victims.start_again(children)
        task = asyncio.create_task(self._until_back(planned, pid, kill))
        self._recovering[task] = planned.process
        task.add_done_callback(lambda done: self._recovering.pop(done, None))

    async def _wait_for_work(self, planned: PlannedKill) -> tuple[Kill, int]:
        """The moment at which the victim works: its process runs and something is in flight."""
        deadline = time.monotonic() + _RECOVERY_SECONDS + _IN_FLIGHT_SECONDS
        while time.monotonic() < deadline:
            backlog = await asyncio.to_thread(self._victims.backlog)
            pid = self._victims.pid(planned.process, second=planned.second)
            if pid is not None and backlog is not None:
                in_flight = self._in_flight(planned.process, backlog.by_group)
                if in_flight > 0:
                    point = self._point(planned)
                    return Kill(
                        planned.process, point, self._load.num_steps, time.time(),
                        in_flight, self._load.num_open, backlog.total,
                    ), pid  # fmt: skip
            await asyncio.sleep(_POLL_SECONDS)
        raise AssertionError(f"{planned.process} had no work to be killed in")

    def _in_flight(self, process: str, backlog: Mapping[str, int]) -> int:
        if process in GROUPS:
            return backlog[process]
        if process == "clickhouse":
            return backlog["sink"]
        if process == "gateway":
            return self._load.num_open
        return self._load.num_open + sum(backlog.values())

    def _point(self, planned: PlannedKill) -> str:
        worker = "second worker, " if planned.second else ""
        others = bool(self._recovering)
        return worker + ("while another comes back" if others else "under load")

    async def _until_back(self, planned: PlannedKill, old_pid: int, kill: Kill) -> None:
        def is_back() -> bool:
            pid = self._victims.pid(planned.process, second=planned.second)
            return pid is not None and pid != old_pid

        if await until(is_back, _RECOVERY_SECONDS):
            kill.back_after_seconds = round(time.time() - kill.at, 1)
