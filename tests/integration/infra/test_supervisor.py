"""The supervisor with real processes: order, crashes, kills, signals, one owner, taken ports.

Children are small Python programs, so that a test takes a second; the last one runs the real
broker and store through the command line.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from infra.local.children import AliveProbe, Backoff, ChildSpec, HttpProbe, Port
from infra.local.control import ask
from infra.local.processes import ProcessIdentity, identify, is_alive
from infra.local.state import ChildState, StackState, Status, is_owned, read_state, state_file
from infra.local.supervisor import Plan, Supervisor
from schemas.errors import ConfigError
from tests.ports import free_ports
from tests.services import stop_process

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30.0
SLEEPER = "import signal, sys; print('up', flush=True); signal.pause()"
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
QUICK = Backoff(first_seconds=0.05, limit_seconds=0.1, max_failures=4, max_first_failures=3)


def python(name: str, code: str, *after: str, **options: Any) -> ChildSpec:
    options.setdefault("probe", AliveProbe(0.05))
    return ChildSpec(name, [sys.executable, "-c", code], after=after, **options)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition on the outside world; bounded."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


class Run:
    """A supervisor that runs beside the test."""

    def __init__(self, data_dir: Path, *children: ChildSpec) -> None:
        self.data_dir = data_dir
        self.changes: list[tuple[str, Status]] = []
        self.ready = asyncio.Event()
        plan = Plan(data_dir, children, backoff=QUICK)
        self.supervisor = Supervisor(plan, self._changed)
        self.task = asyncio.create_task(self.supervisor.run(lambda _: self.ready.set()))

    def _changed(self, child: ChildState) -> None:
        self.changes.append((child.name, child.status))

    async def until_ready(self) -> StackState:
        waiting = asyncio.create_task(self.ready.wait())
        await asyncio.wait({self.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            self.task.result()
        return self.state()

    def state(self) -> StackState:
        state = read_state(self.data_dir)
        assert state is not None
        return state

    async def stop(self) -> None:
        self.supervisor.request_stop()
        await self.task


Supervise = Callable[..., Run]


@pytest.fixture
async def supervise() -> AsyncIterator[Supervise]:
    """Starts supervisors, and stops those that the test left running."""
    runs: list[Run] = []

    def start(data_dir: Path, *children: ChildSpec) -> Run:
        runs.append(Run(data_dir, *children))
        return runs[-1]

    yield start
    for run in runs:
        run.supervisor.request_stop()
    await asyncio.gather(*(run.task for run in runs), return_exceptions=True)


def _alive(process: ProcessIdentity | None) -> bool:
    return process is not None and is_alive(process)


async def test_children_start_in_order_and_all_end(tmp_path: Path, supervise: Supervise) -> None:
    run = supervise(
        tmp_path,
        python("third", SLEEPER, "second"),
        python("second", "print('done')", "first", one_shot=True),
        python("first", SLEEPER),
    )
    state = await run.until_ready()
    assert [child.status for child in state.children] == [Status.READY, Status.DONE, Status.READY]
    assert run.changes.index(("first", Status.READY)) < run.changes.index(
        ("second", Status.STARTING)
    )
    assert run.changes.index(("second", Status.DONE)) < run.changes.index(
        ("third", Status.STARTING)
    )
    await run.stop()
    assert not any(_alive(child.process) for child in state.children)
    assert not is_owned(tmp_path)
    assert (tmp_path / "logs" / "first.log").read_text() == "up\n"


async def test_a_crashed_child_is_started_again(tmp_path: Path, supervise: Supervise) -> None:
    run = supervise(tmp_path, python("worker", SLEEPER))
    first = (await run.until_ready()).child("worker")
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: run.state().child("worker").restarts == 1)
    await until(lambda: run.state().child("worker").status is Status.READY)
    second = run.state().child("worker")
    assert second.pid != first.pid
    assert second.last_exit == -signal.SIGKILL
    await run.stop()


async def test_a_state_that_cannot_be_written_ends_nothing(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(tmp_path, python("worker", SLEEPER))
    first = (await run.until_ready()).child("worker")
    assert first.pid is not None
    in_the_way = state_file(tmp_path).with_suffix(".new")
    in_the_way.mkdir()  # refuses the file as a full disk would
    run.changes.clear()
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: ("worker", Status.READY) in run.changes)
    assert run.state().child("worker") == first
    in_the_way.rmdir()
    await run.stop()


async def test_a_child_that_never_starts_fails_the_start_with_its_last_words(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(
        tmp_path,
        python("bystander", SLEEPER),
        python("broken", "raise SystemExit('no disk')", probe=AliveProbe(20)),
    )
    with pytest.raises(ConfigError, match=r"broken does not start.*no disk"):
        await run.until_ready()
    assert run.changes.count(("broken", Status.STARTING)) == 3
    assert not any(_alive(child.process) for child in run.state().children)


async def test_a_wrong_configuration_is_not_tried_again(
    tmp_path: Path, supervise: Supervise
) -> None:
    code = "print('set X to 1'); raise SystemExit(2)"
    run = supervise(tmp_path, python("broken", code, probe=AliveProbe(20)))
    with pytest.raises(ConfigError, match="set X to 1"):
        await run.until_ready()
    assert run.changes.count(("broken", Status.STARTING)) == 1


async def test_a_child_that_is_not_ready_in_time_is_ended(
    tmp_path: Path, supervise: Supervise
) -> None:
    probe = HttpProbe(f"http://127.0.0.1:{free_ports(1)[0]}/")
    run = supervise(tmp_path, python("mute", SLEEPER, probe=probe, ready_within_seconds=0.3))
    with pytest.raises(ConfigError, match="was not ready within"):
        await run.until_ready()


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path, supervise: Supervise) -> None:
    run = supervise(tmp_path, python("stubborn", STUBBORN, stop_grace_seconds=0.2))
    child = (await run.until_ready()).child("stubborn")
    await until(lambda: Path(child.log).read_text().endswith("\n"))  # it ignores from here on
    await run.stop()
    assert not _alive(child.process)
    assert run.state().child("stubborn").last_exit == -signal.SIGKILL


async def test_what_a_child_left_in_its_group_ends_too(
    tmp_path: Path, supervise: Supervise
) -> None:
    code = (
        "import subprocess, sys, signal\n"
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); signal.pause()"
    )
    child = python("parent", code)
    run = supervise(tmp_path, child)
    await run.until_ready()
    log = tmp_path / "logs" / "parent.log"
    await until(lambda: log.read_text().endswith("\n"))
    grandchild = int(log.read_text())
    started = time.monotonic()
    await run.stop()
    await until(lambda: identify(grandchild) is None)
    # Its death does not wait for the grandchild that holds the same output.
    assert time.monotonic() - started < child.stop_grace_seconds


async def test_one_child_is_stopped_and_started_over_the_socket(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(tmp_path, python("a", SLEEPER), python("b", SLEEPER, "a"))
    before = await run.until_ready()
    stopped = await asyncio.to_thread(ask, tmp_path, "stop-child", ["a"])
    assert stopped.child("a").status is Status.STOPPED
    assert not _alive(before.child("a").process)
    assert _alive(before.child("b").process)
    started = await asyncio.to_thread(ask, tmp_path, "start-child", ["a"])
    assert started.child("a").status is Status.READY
    assert _alive(started.child("a").process)
    assert (await asyncio.to_thread(ask, tmp_path, "stop")).children
    await run.task


async def test_the_socket_refuses_what_it_does_not_know(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(tmp_path, python("a", SLEEPER))
    await run.until_ready()
    for command, names, why in (("dance", [], "no command"), ("stop-child", ["z"], "no child z")):
        with pytest.raises(ConfigError, match=why):
            await asyncio.to_thread(ask, tmp_path, command, names)
    assert (tmp_path / "run" / "control.sock").stat().st_mode & 0o077 == 0
    await run.stop()
    with pytest.raises(ConfigError, match="No headrace stack runs"):
        ask(tmp_path, "status")


async def test_a_directory_with_a_long_name_has_a_socket_too(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(tmp_path / ("d" * 120), python("a", SLEEPER))
    await run.until_ready()
    assert (await asyncio.to_thread(ask, run.data_dir, "status")).ready
    await run.stop()


async def test_a_second_supervisor_is_refused(tmp_path: Path, supervise: Supervise) -> None:
    run = supervise(tmp_path, python("a", SLEEPER))
    await run.until_ready()
    with pytest.raises(ConfigError, match="already"):
        await supervise(tmp_path, python("a", SLEEPER)).task
    assert _alive(run.state().child("a").process)
    await run.stop()


async def test_a_taken_port_is_told_before_anything_starts(
    tmp_path: Path, supervise: Supervise
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = Port(listener.getsockname()[1], "the gateway", "--gateway-port")
        run = supervise(tmp_path, python("a", SLEEPER), python("b", SLEEPER, ports=(port,)))
        with pytest.raises(ConfigError, match=r"--gateway-port \d+"):
            await run.until_ready()
    assert run.changes == []


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from infra.local.children import AliveProbe, ChildSpec
from infra.local.supervisor import Plan, Supervisor

SLEEPER = "import signal; signal.pause()"
async def main():
    children = [ChildSpec(n, [sys.executable, "-c", SLEEPER], AliveProbe(0.05)) for n in "abc"]
    await Supervisor(Plan(Path(sys.argv[1]), children), lambda child: None).run(lambda state: None)
asyncio.run(main())
"""


def _supervisor_process(data_dir: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(data_dir)], process_group=0)


async def _until_ready(data_dir: Path, pid: int) -> list[ProcessIdentity]:
    def ready() -> bool:
        state = read_state(data_dir)
        return state is not None and state.ready and state.supervisor_pid == pid

    await until(ready)
    state = read_state(data_dir)
    assert state is not None
    found = [child.process for child in state.children if child.process is not None]
    assert len(found) == 3
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_no_orphan_is_left_whatever_ends_the_supervisor(
    tmp_path: Path, number: signal.Signals
) -> None:
    supervisor = _supervisor_process(tmp_path)
    try:
        children = await _until_ready(tmp_path, supervisor.pid)
        supervisor.send_signal(number)
        expected = -signal.SIGKILL if number is signal.SIGKILL else 0
        assert supervisor.wait(WAIT_SECONDS) == expected
        await until(lambda: not any(is_alive(child) for child in children))
    finally:
        stop_process(supervisor)
    again = _supervisor_process(tmp_path)
    try:
        assert set(await _until_ready(tmp_path, again.pid)).isdisjoint(children)
    finally:
        stop_process(again)


def _sleeper() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SLEEPER]
    return subprocess.Popen(command, process_group=0, stdout=subprocess.DEVNULL)


async def test_a_leftover_of_an_earlier_run_is_ended_at_start(
    tmp_path: Path, supervise: Supervise
) -> None:
    run = supervise(tmp_path, python("a", SLEEPER))
    await run.until_ready()
    await run.stop()
    leftover = _sleeper()
    try:
        await until(lambda: identify(leftover.pid) is not None)
        identity = identify(leftover.pid)
        assert identity is not None
        plain = json.loads((tmp_path / "run" / "state.json").read_text())
        plain["children"][0] |= {"pid": identity.pid, "start_ticks": identity.start_ticks}
        (tmp_path / "run" / "state.json").write_text(json.dumps(plain))
        run = supervise(tmp_path, python("a", SLEEPER))
        await run.until_ready()
        assert leftover.wait(WAIT_SECONDS) < 0
        await run.stop()
    finally:
        leftover.kill()
        leftover.wait()


def _headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_up_status_down_with_the_real_broker_and_store(tmp_path: Path) -> None:
    kafka, clickhouse, gateway = free_ports(3)
    where = ["--data-dir", str(tmp_path / "stack")]
    ports = [
        f"--kafka-port={kafka}",
        f"--clickhouse-port={clickhouse}",
        f"--gateway-port={gateway}",
    ]
    only = ["--only=kafka", "--only=clickhouse", "--only=topics"]
    up = _headrace("up", "--detach", *where, *ports, *only)
    try:
        assert up.returncode == 0, up.stderr
        assert f"127.0.0.1:{kafka}" in up.stdout
        assert "headrace down" in up.stdout
        status = json.loads(_headrace("status", "--json", *where).stdout)
        assert status["healthy"], status
        assert {child["name"] for child in status["children"]} == {"kafka", "clickhouse", "topics"}
        again = _headrace("up", "--detach", *where, *ports, *only)
        assert again.returncode == 2
        assert "headrace down" in again.stderr
        logs = _headrace("logs", "kafka", "-n", "500", *where)
        assert "Kafka Server started" in logs.stdout
    finally:
        down = _headrace("down", *where)
    assert down.returncode == 0
    assert not any(
        is_alive(ProcessIdentity(child["pid"], child["start_ticks"]))
        for child in status["children"]
        if child["pid"]
    )
    assert _headrace("status", *where).returncode == 2
