"""The life of one child: start, become ready, crash, wait, start again, stop."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from infra.local.children import EXIT_CONFIG, Backoff, ChildSpec
from infra.local.processes import identify, signal_group
from infra.local.rotating_log import RotatingLog, last_lines
from infra.local.state import ChildState, Status
from schemas.tether import tethered

_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 2.0
_CHUNK_BYTES = 65_536
#: A child that was ready for so long starts counting its failures anew.
_HEALTHY_SECONDS = 60.0


class ChildRunner:
    """Keeps one child running until told to stop. `on_change` hears of every new state."""

    def __init__(
        self,
        spec: ChildSpec,
        log_file: Path,
        on_change: Callable[[ChildState], None],
        backoff: Backoff,
    ) -> None:
        self.spec = spec
        self.state = ChildState(
            spec.name, ports=tuple(port.number for port in spec.ports), log=str(log_file)
        )
        self._log_file = log_file
        self._on_change = on_change
        self._backoff = backoff
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._num_failures = 0
        self._was_ready = False

    def start(self) -> None:
        """Begin to keep the child running; nothing happens when that is so already."""
        if self._task is not None and not self._task.done():
            return
        self._settled.clear()
        self._num_failures = 0
        self._task = asyncio.create_task(self._keep_running(), name=self.spec.name)

    async def settled(self) -> ChildState:
        """Wait until the child is ready, done, failed or stopped."""
        await self._settled.wait()
        return self.state

    async def stop(self) -> None:
        """End the child and its group: SIGTERM, after the grace SIGKILL."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.state.status not in {Status.DONE, Status.FAILED}:
            self._change(Status.STOPPED)
        self._settled.set()

    async def _keep_running(self) -> None:
        while True:
            exit_code = await self._run_once()
            if self.spec.one_shot and exit_code == 0:
                self._change(Status.DONE)
                self._settled.set()
                return
            self._num_failures += 1
            delay_seconds = self._backoff.delay_seconds(
                self._num_failures, was_ready=self._was_ready
            )
            if exit_code == EXIT_CONFIG or delay_seconds is None:
                self._change(Status.FAILED, reason=self._why(exit_code))
                self._settled.set()
                return
            reason = f"{self._why(exit_code)}; next try in {delay_seconds:g} s"
            self._change(Status.BACKOFF, reason=reason)
            await asyncio.sleep(delay_seconds)
            self.state = replace(self.state, restarts=self.state.restarts + 1)

    async def _run_once(self) -> int | None:
        """One process from start to end; it is ended when this is cancelled.

        Returns its exit code, or None when it was ended for not being ready in time.
        """
        log = RotatingLog(self._log_file)
        # A pipe of our own: asyncio's would put off the news of a death for as long as any
        # grandchild holds the other end.
        output, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *tethered(self.spec.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **self.spec.environment},
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        pump = asyncio.create_task(_pump(output, log))
        try:
            identity = identify(process.pid)
            start_ticks = identity.start_ticks if identity else None
            self.state = replace(self.state, pid=process.pid, start_ticks=start_ticks)
            self._change(Status.STARTING)
            return await self._watch(process)
        finally:
            await asyncio.shield(_end(process, self.spec.stop_grace_seconds))
            await asyncio.wait({pump}, timeout=_DRAIN_SECONDS)
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            log.close()
            self.state = replace(
                self.state, pid=None, start_ticks=None, last_exit=process.returncode
            )

    async def _watch(self, process: asyncio.subprocess.Process) -> int | None:
        exited = asyncio.create_task(process.wait())
        started = time.monotonic()
        try:
            if not self.spec.one_shot and await self._becomes_ready(exited, started):
                self._was_ready = True
                self._change(Status.READY)
                self._settled.set()
                ready_at = time.monotonic()
                await exited
                if time.monotonic() - ready_at >= _HEALTHY_SECONDS:
                    self._num_failures = 0
            elif self.spec.one_shot:
                await asyncio.wait({exited}, timeout=self.spec.ready_within_seconds)
        finally:
            exited.cancel()
        return process.returncode

    async def _becomes_ready(self, exited: "asyncio.Task[int]", started: float) -> bool:
        while not exited.done():
            running_seconds = time.monotonic() - started
            if running_seconds > self.spec.ready_within_seconds:
                return False
            if await self.spec.probe.is_ready(running_seconds):
                return not exited.done()
            await asyncio.wait({exited}, timeout=_POLL_SECONDS)
        return False

    def _why(self, exit_code: int | None) -> str:
        if exit_code is None:
            how = f"was not ready within {self.spec.ready_within_seconds:g} s"
        elif exit_code < 0:
            how = f"ended with signal {-exit_code}"
        else:
            how = f"ended with exit code {exit_code}"
        said = [line for line in last_lines(self._log_file, 20) if line.strip()]
        return how + (f": {said[-1][:500]}" if said else "")

    def _change(self, status: Status, reason: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.state = replace(self.state, status=status, reason=reason, since=now)
        self._on_change(self.state)


async def _pump(output: int, log: RotatingLog) -> None:
    """Copy what comes out of the pipe into the log until all writers are gone."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb")
    )
    try:
        while data := await reader.read(_CHUNK_BYTES):
            log.write(data)
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """The process and whatever it left in its group are gone when this returns."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace_seconds)
        except TimeoutError:
            signal_group(process.pid, signal.SIGKILL)
            await process.wait()
    signal_group(process.pid, signal.SIGKILL)
