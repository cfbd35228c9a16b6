"""One run: a stack of its own, a load, kills on the way, and the verdict at the end."""

import asyncio
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from infra.demo.stage import Stage
from infra.local.ports import alternative_to
from infra.local.stack import Ports
from infra.store import open_reader
from schemas.errors import HeadraceError
from tests.e2e.conftest import stage_with
from tests.soak.kills import Kill, Killer, plan_kills
from tests.soak.load import Load
from tests.soak.stack import Backlog, Victims, Workers
from tests.soak.talks import load_conversations, recordings
from tests.soak.verdict import Verdict, judge, read_evidence

SETTINGS = {
    "HEADRACE_REDACTION__TIER": "regex",
    "HEADRACE_ASSEMBLY__TICK_SECONDS": "1",
    "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "2",
    "HEADRACE_ASSEMBLY__IDLE_SECONDS": "60",
    "HEADRACE_TRAINING_ELIGIBLE_TENANTS": '["demo"]',
}
_FIRST_PORT = 18_000
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 90.0
_SETTLE_SECONDS = 900.0
_SETTLE_LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Order:
    """What to run: at least `num_steps` calls, and as many as it takes until every process was
    killed `kills_each` times."""

    seed: int
    num_steps: int
    kills_each: int
    two_workers: bool = False
    concurrency: int = 24
    pause_seconds: float = 0.1
    #: Records on their way beyond which the load pauses: the machine is small, the log is not.
    allowed_backlog: int = 4_000


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    order: Order
    machine: str
    revision: str
    real_conversations: bool
    steps: int
    attempts_failed: int
    attempts_broken: int
    failures: Mapping[str, int]
    rewards: int
    load_seconds: float
    settle_seconds: float
    max_backlog: int
    kills: tuple[Kill, ...]
    verdict: Verdict

    def plain(self) -> dict[str, Any]:
        """As JSON writes it."""
        return asdict(self)


def revision_of(folder: Path) -> str:
    """The commit of the code that runs, with a plus where files differ from it; else empty."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def describe_machine() -> str:
    """Cores, memory and Python; nothing that names the machine itself."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gib = round(memory_bytes / 1024**3)
    cores = os.cpu_count()
    return f"{cores} {platform.machine()} cores, {gib} GiB, Python {platform.python_version()}"


class Watch:
    """Looks after a running load: second workers live on, the backlog stays bounded."""

    def __init__(
        self, load: Load, victims: Victims, workers: Workers | None, allowed_backlog: int
    ) -> None:
        self._load = load
        self._victims = victims
        self._workers = workers
        self._allowed_backlog = allowed_backlog
        self.max_backlog = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            if self._workers is not None:
                self._workers.keep_running()
            backlog = await asyncio.to_thread(self._victims.backlog)
            if backlog is not None:
                self._pace(backlog)
            await asyncio.sleep(_LOOK_SECONDS)

    def _pace(self, backlog: Backlog) -> None:
        self.max_backlog = max(self.max_backlog, backlog.total)
        if backlog.total > self._allowed_backlog:
            self._load.may_call.clear()
        else:
            self._load.may_call.set()


class Disturbance(Protocol):
    """What happens to the stack while the load runs. The load goes on until it is done."""

    kills: list[Kill]
    is_done: bool

    async def run(self) -> None:
        """All of it, and the recovery."""


Disturb = Callable[[Load, Victims], Disturbance]


def killing(order: Order) -> Disturb:
    """Kills by the plan of the order's seed."""
    plan = plan_kills(order.seed, order.num_steps, order.kills_each, two_workers=order.two_workers)
    return lambda load, victims: Killer(load, victims, plan)


def ports_of_its_own() -> Ports:
    """Not the usual ones: while a process is dead, another stack would find its port free, and
    the two would share a broker."""
    start = _FIRST_PORT + os.getpid() % 100 * 100
    taken: list[int] = []
    for _ in range(4):
        taken.append(alternative_to(taken[-1] if taken else start))
    kafka, controller, clickhouse, gateway = taken
    return Ports(kafka, controller, clickhouse, gateway)


def run_trial(
    order: Order,
    folder: Path,
    say: Callable[[str], None],
    disturb: Disturb | None = None,
    settings: Mapping[str, str] = SETTINGS,
) -> Outcome:
    """Start a stack in `folder`, play, kill or `disturb`, settle, judge, end the stack."""
    file = recordings()
    arguments = [] if file is None else ["--trajectories", str(file)]
    stack = stage_with(
        folder / "stack", arguments, settings, "tests.soak.model", ports_of_its_own()
    )
    with stack as stage:
        workers = Workers(stage) if order.two_workers else None
        with workers.running() if workers is not None else nullcontext():
            return asyncio.run(_run(order, stage, workers, say, disturb or killing(order)))


async def _run(
    order: Order,
    stage: Stage,
    workers: Workers | None,
    say: Callable[[str], None],
    disturb: Disturb,
) -> Outcome:
    file = recordings()
    conversations = load_conversations(file)
    load = Load(
        stage.target, conversations, seed=order.seed,
        concurrency=order.concurrency, pause_seconds=order.pause_seconds,
    )  # fmt: skip
    victims = Victims(stage, workers)
    disturbance = disturb(load, victims)
    watch = Watch(load, victims, workers, order.allowed_backlog)
    watching = asyncio.create_task(watch.run())
    began = time.monotonic()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                load.play(lambda: disturbance.is_done and load.num_steps >= order.num_steps)
            )
            tasks.create_task(disturbance.run())
            tasks.create_task(_report(load, disturbance, watch, say))
        played = time.monotonic()
        say(f"played {load.num_steps} steps in {played - began:.0f} s; settling")
        verdict = await _settle(stage, load, disturbance, victims)
    finally:
        watching.cancel()
    failures: dict[str, int] = {}
    for attempt in load.ledger.failed:
        failures[attempt.why] = failures.get(attempt.why, 0) + 1
    return Outcome(
        order=order,
        machine=describe_machine(),
        revision=revision_of(Path(__file__).parent),
        real_conversations=file is not None,
        steps=len(load.ledger.completed),
        attempts_failed=len(load.ledger.failed),
        attempts_broken=len(load.ledger.broken),
        failures=failures,
        rewards=len({sent.feedback_id for sent in load.ledger.rewards}),
        load_seconds=round(played - began, 1),
        settle_seconds=round(time.monotonic() - played, 1),
        max_backlog=watch.max_backlog,
        kills=tuple(disturbance.kills),
        verdict=verdict,
    )


async def _report(
    load: Load, disturbance: Disturbance, watch: Watch, say: Callable[[str], None]
) -> None:
    """A line every ten seconds while the load runs."""
    while not load.is_done:
        say(
            f"{load.num_steps} steps, {len(load.ledger.failed)} attempts failed, "
            f"{len(disturbance.kills)} kills, backlog at most {watch.max_backlog}"
        )
        await asyncio.sleep(10.0)


async def _settle(stage: Stage, load: Load, disturbance: Disturbance, victims: Victims) -> Verdict:
    """Wait until nothing is on its way and the verdict is right, or nothing changes any more."""
    kills = [(kill.at, f"{kill.process}/{kill.point}") for kill in disturbance.kills]
    started = last_change = time.monotonic()
    before: tuple[int, Verdict] | None = None
    while True:
        backlog = await asyncio.to_thread(victims.backlog)
        unread = -1 if backlog is None else backlog.total
        verdict = await asyncio.to_thread(_look, stage, load, kills)
        now = time.monotonic()
        if verdict is not None and (unread, verdict) != before:
            before, last_change = (unread, verdict), now
        elif verdict is not None and _is_final(unread, verdict, now - last_change):
            return verdict
        assert now - started < _SETTLE_SECONDS, f"{unread} records are still on their way"
        await asyncio.sleep(_SETTLE_LOOK_SECONDS)


def _is_final(unread: int, verdict: Verdict, unchanged_seconds: float) -> bool:
    """Called for what was seen twice in a row."""
    return (unread == 0 and verdict.is_right) or unchanged_seconds > _PATIENCE_SECONDS


def _look(stage: Stage, load: Load, kills: list[tuple[float, str]]) -> Verdict | None:
    try:
        with open_reader(stage.settings.data_dir) as reader:
            return judge(load.ledger, read_evidence(reader, stage.bus), kills)
    except HeadraceError:
        return None
