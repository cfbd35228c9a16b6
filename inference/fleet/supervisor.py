"""Starts the gateway's processes on one port and keeps them running.

    waits for                      what unblocks it
    ----------------------------   --------------------------------------------------
    a process that ended           its pause (0.5 s, doubling, at most 30 s)
    SIGTERM, SIGINT                all processes end their calls, at most for the grace

Each process listens on the port by itself (SO_REUSEPORT), has a spool of its own, and is bound to
the life of this one by the kernel. This one listens nowhere and touches no call. SIGHUP is passed
on: every process reads its settings anew.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

import structlog

from schemas.errors import ConfigError
from schemas.tether import tethered

_log = structlog.get_logger("gateway")

EXIT_CONFIG = 2
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0
#: A process that ran for so long starts counting its failures anew.
_HEALTHY_SECONDS = 60.0


def hold_port(host: str, port: int) -> socket.socket:
    """A socket that holds the port for our processes and accepts nothing.

    ConfigError where somebody listens there: with SO_REUSEPORT the system would not tell.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            number = probe.getsockname()[1]
        held = socket.socket(family, kind, protocol)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((address[0], number, *address[2:]))
    except OSError as error:
        raise ConfigError(
            f"The gateway cannot listen on {host}:{port} ({error.strerror}). "
            "Set HEADRACE_GATEWAY__PORT to a free port."
        ) from error
    return held


def worker_command(number: int) -> Sequence[str]:
    """What runs as process `number`."""
    return [sys.executable, "-m", "inference.gateway", "--worker", str(number)]


class Fleet:
    """`run` starts all and returns when all have ended. Build it inside its event loop."""

    def __init__(
        self, num_workers: int, port: int, grace_seconds: float,
        command: Callable[[int], Sequence[str]] = worker_command,
    ) -> None:  # fmt: skip
        self._command = command
        self._num_workers = num_workers
        self._grace_seconds = grace_seconds
        self._environment = {
            **os.environ,
            "HEADRACE_GATEWAY__PORT": str(port),
            "HEADRACE_GATEWAY__WORKERS": str(num_workers),
        }
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """The exit code: 2 where the processes cannot start as configured."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP)
        keepers = [asyncio.create_task(self._keep(number)) for number in range(self._num_workers)]
        await self._stopping.wait()
        self._signal(signal.SIGTERM)
        _, late = await asyncio.wait(keepers, timeout=self._grace_seconds)
        if late:
            _log.warning("workers_killed", number=len(late))
            self._signal(signal.SIGKILL)
        await asyncio.gather(*keepers)
        return self._exit_code

    async def _keep(self, number: int) -> None:
        num_failures, is_first = 0, True
        while not self._stopping.is_set():
            started_at = time.monotonic()
            exit_code = await self._run_once(number)
            if self._stopping.is_set():
                return
            if exit_code == EXIT_CONFIG and is_first:
                self._exit_code = EXIT_CONFIG
                self._stopping.set()
                return
            # From here on a file that is being edited, or a full disk, ends no other process.
            is_first = False
            if time.monotonic() - started_at > _HEALTHY_SECONDS:
                num_failures = 0
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**num_failures)
            num_failures = min(num_failures + 1, 10)
            _log.warning("worker_ended", worker=number, exit_code=exit_code, pause_seconds=pause)
            await self._pause(pause)

    async def _run_once(self, number: int) -> int:
        process = await asyncio.create_subprocess_exec(
            *tethered(self._command(number)), env=self._environment
        )
        self._processes[number] = process
        if self._stopping.is_set():  # the signal came while it was being started
            process.terminate()
        try:
            return await process.wait()
        finally:
            del self._processes[number]

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            process.send_signal(number)
