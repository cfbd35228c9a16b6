"""Runs children in the order of their needs, and ends all of them when it ends.

    waits for                           what unblocks it
    ---------------------------------   ------------------------------------------------
    a child's needs to be ready         the child becomes ready, or fails: start-up fails
    a crashed child's back-off          its delay (0.5 s, doubling, at most 30 s)
    a stop                              SIGINT, SIGTERM, or `stop` on the control socket
    children to end                     their exit, or SIGKILL after their grace

Each child is bound to this process by the kernel (see `tether`), so that SIGKILL leaves no
orphan either; what might still be left is found at the next start by pid and start time.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from infra.local.child import ChildRunner
from infra.local.children import Backoff, ChildSpec, start_order
from infra.local.control import serve_control
from infra.local.ports import require_free
from infra.local.processes import reap
from infra.local.state import ChildState, StackState, Status, owned, read_state, write_state
from schemas.errors import ConfigError

log = structlog.get_logger()


@dataclass(frozen=True)
class Plan:
    """What to run and where. `endpoints` and `urls` are passed on to whoever asks."""

    data_dir: Path
    children: Sequence[ChildSpec]
    endpoints: Mapping[str, str] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """One run of a plan. Build it inside the event loop that runs it."""

    def __init__(self, plan: Plan, on_change: Callable[[ChildState], None]) -> None:
        self._plan = plan
        self._on_change = on_change
        self._stopped = asyncio.Event()
        self._order = start_order(plan.children)
        self._runners = {
            spec.name: ChildRunner(
                spec,
                plan.data_dir / "logs" / f"{spec.name}.log",
                self._child_changed,
                plan.backoff,
            )
            for spec in self._order
        }
        self._state = StackState(
            data_dir=str(plan.data_dir),
            supervisor_pid=os.getpid(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            endpoints=dict(plan.endpoints),
            urls=dict(plan.urls),
        )

    async def run(self, on_ready: Callable[[StackState], None]) -> None:
        """Start all, call `on_ready`, run until stopped, end all. ConfigError if start-up fails."""
        with owned(self._plan.data_dir):
            self._reap_leftovers()
            self._require_ports()
            self._write()  # from here on the file speaks of this run
            self._catch_signals()
            async with serve_control(self._plan.data_dir, self.handle):
                try:
                    await self._start_or_stop(on_ready)
                    await self._stopped.wait()
                finally:
                    await self._stop_all()

    def request_stop(self) -> None:
        """Make `run` end all children and return."""
        self._stopped.set()

    async def handle(self, command: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Answer one command of the control socket. KeyError for an unknown child."""
        for name in names:
            self._snapshot().child(name)
        if command == "stop":
            self.request_stop()
        elif command == "stop-child":
            await asyncio.gather(*(self._runners[name].stop() for name in names))
        elif command == "start-child":
            await asyncio.gather(*(self._start_child(name) for name in names))
        elif command != "status":
            raise KeyError(f"no command {command}; there are status, stop, stop-child, start-child")
        return {"state": self._snapshot()}

    def _snapshot(self) -> StackState:
        children = tuple(self._runners[spec.name].state for spec in self._order)
        return replace(self._state, children=children)

    async def _start_child(self, name: str) -> None:
        self._runners[name].start()
        state = await self._runners[name].settled()
        if state.status is Status.FAILED:
            raise ConfigError(f"{name} does not start: {state.reason}. Its log: {state.log}")

    async def _start_or_stop(self, on_ready: Callable[[StackState], None]) -> None:
        starting = asyncio.create_task(self._start_all())
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self._state = replace(self._state, ready=True)
                self._write()
                on_ready(self._snapshot())
        finally:
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)

    async def _start_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for spec in self._order:
                    group.create_task(self._start_after_needs(spec))
        except ExceptionGroup as failures:
            # The first one is the cause; the group has cancelled the others.
            raise failures.exceptions[0] from None

    async def _start_after_needs(self, spec: ChildSpec) -> None:
        for need in spec.after:
            state = await self._runners[need].settled()
            if state.status not in {Status.READY, Status.DONE}:
                return  # the need's own task reports why
        await self._start_child(spec.name)

    async def _stop_all(self) -> None:
        """Those that nobody needs end first."""
        remaining = {spec.name: set(spec.after) for spec in self._order}
        while remaining:
            needed = set().union(*remaining.values())
            free = [name for name in remaining if name not in needed]
            await asyncio.gather(*(self._runners[name].stop() for name in free))
            remaining = {name: needs for name, needs in remaining.items() if name not in free}
        self._state = replace(self._state, ready=False)
        self._write()

    def _child_changed(self, state: ChildState) -> None:
        try:
            self._write()
        except OSError as error:  # a full disk makes the file late; the children go on
            log.warning("state_not_written", why=str(error))
        self._on_change(state)

    def _write(self) -> None:
        write_state(self._snapshot())

    def _reap_leftovers(self) -> None:
        previous = read_state(self._plan.data_dir)
        for child in previous.children if previous else ():
            if child.process is not None:
                reap(child.process)

    def _require_ports(self) -> None:
        ports = [port for spec in self._order for port in spec.ports]
        numbers = frozenset(port.number for port in ports)
        for port in ports:
            require_free(port.number, what=port.what, option=port.option, avoid=numbers)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.request_stop)
