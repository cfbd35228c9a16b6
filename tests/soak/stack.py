"""The stack under test: its processes, second workers beside it, what is on its way, `kill -9`."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.demo.stage import Stage
from infra.local.processes import ProcessIdentity, is_alive, start_tethered, stop_process
from infra.local.state import Status, is_owned, read_state
from infra.replay.plan import INPUTS
from schemas import topics
from schemas.bus.api import Admin
from schemas.bus.lag import standings
from schemas.errors import HeadraceError
from tests.soak.waiting import until

GROUPS = {
    "redaction": topics.REDACTION,
    "assembly": topics.ASSEMBLY,
    "sink": topics.SINK,
}
SUPERVISOR = "supervisor"
PROCESSES = ("gateway", "redaction", "assembly", "sink", "kafka", "clickhouse", SUPERVISOR)
_ORPHAN_SECONDS = 10.0
_RESTART_SECONDS = 1.0


def num_unread(admin: Admin, group: str) -> int:
    """Records that the group has not committed, ticks aside: those never end."""
    names = [name for name in INPUTS[group] if name != topics.TICKS]
    return sum(standing.behind for standing in standings(admin, group, names).values())


class Workers:
    """A second worker in each group, kept running beside the stack."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._died_at: dict[str, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of them for the length of the block."""
        with ExitStack() as until_the_end:
            for name in GROUPS:
                self._start(name)
            until_the_end.callback(self._stop)
            yield

    def keep_running(self) -> None:
        """Start again what has died; to be called from the main thread, which they die with."""
        for name, process in list(self._running.items()):
            if process.poll() is None:
                continue
            died_at = self._died_at.setdefault(name, time.monotonic())
            if time.monotonic() - died_at > _RESTART_SECONDS:
                del self._died_at[name]
                self._start(name)

    def pid(self, name: str) -> int | None:
        """The second worker of a group, None where there is none."""
        process = self._running.get(name)
        return None if process is None or process.poll() is not None else process.pid

    def _start(self, name: str) -> None:
        directory = self._directory(name)
        with (directory / "worker.log").open("ab") as log:
            self._running[name] = start_tethered(
                [sys.executable, "-m", GROUPS[name]],
                log=log,
                environment={**os.environ, **self._environment(name)},
            )

    def _directory(self, name: str) -> Path:
        directory = self._stage.settings.data_dir.parent / f"second-{name}"
        directory.mkdir(exist_ok=True)
        return directory

    def _environment(self, name: str) -> Mapping[str, str]:
        """As the stack's own, but for the folder of what each process keeps for itself."""
        settings = self._stage.settings
        state = read_state(settings.data_dir)
        assert state is not None
        return {
            **state.endpoints,
            "HEADRACE_DATA_DIR": str(self._directory(name)),
            "HEADRACE_SECRET_FILE": str(settings.root_secret_file),
            "HEADRACE_BLOB_URI": settings.blobs,
            "HEADRACE_CLICKHOUSE__PASSWORD_FILE": str(settings.data_dir / "secrets/clickhouse"),
            "OMP_NUM_THREADS": "1",
        }

    def _stop(self) -> None:
        for process in self._running.values():
            stop_process(process)


@dataclass(frozen=True)
class Backlog:
    """Records that each group has still to process."""

    by_group: Mapping[str, int]

    @property
    def total(self) -> int:
        """Of all groups."""
        return sum(self.by_group.values())


class Victims:
    """Finds the processes of a running stack and kills them."""

    def __init__(self, stage: Stage, workers: Workers | None) -> None:
        self._data_dir = stage.settings.data_dir
        self._admin = stage.bus.admin()
        self._workers = workers

    def backlog(self) -> Backlog | None:
        """What is on its way now; None while the broker does not answer."""
        try:
            return Backlog({name: num_unread(self._admin, group) for name, group in GROUPS.items()})
        except HeadraceError:
            return None

    def pid(self, name: str, *, second: bool = False) -> int | None:
        """The process that works as `name` now, None while there is none."""
        if second:
            return None if self._workers is None else self._workers.pid(name)
        state = read_state(self._data_dir)
        if state is None or not is_owned(self._data_dir):
            return None
        if name == SUPERVISOR:
            return state.supervisor_pid if state.ready else None
        child = state.child(name)
        return child.pid if child.status is Status.READY else None

    def children(self) -> list[ProcessIdentity]:
        """Every process that the supervisor has started and that lives."""
        state = read_state(self._data_dir)
        found = [child.process for child in state.children] if state else []
        return [process for process in found if process is not None and is_alive(process)]

    @staticmethod
    def kill(pid: int) -> None:
        """Without a chance to do anything."""
        os.kill(pid, signal.SIGKILL)

    async def start_again(self, orphans: list[ProcessIdentity]) -> int:
        """What a person does after the supervisor died: `headrace up`, with the same ports.

        Returns how many of the old processes outlived it.
        """
        await until(lambda: not any(map(is_alive, orphans)), _ORPHAN_SECONDS)
        num_orphans = sum(map(is_alive, orphans))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "infra.cli.main", "up", "--detach",
            "--data-dir", str(self._data_dir), *self._ports(),
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        if await process.wait() != 0:
            raise AssertionError("`headrace up` failed after the supervisor was killed")
        return num_orphans

    def _ports(self) -> list[str]:
        state = read_state(self._data_dir)
        assert state is not None
        names = ("kafka", "clickhouse", "gateway")
        return [f"--{name}-port={state.child(name).ports[0]}" for name in names]
