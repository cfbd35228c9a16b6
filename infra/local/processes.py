"""Child processes that leave no orphan, and the proof that a pid is still the process we mean."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from schemas.tether import tethered

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessIdentity:
    """A pid and when it started (clock ticks since boot), so that a reused pid is not mistaken."""

    pid: int
    start_ticks: int


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a live process, or None when there is none (a zombie counts as none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses; the fields after the last one are safe to split.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else ProcessIdentity(pid, int(fields[19]))


def is_alive(process: ProcessIdentity) -> bool:
    """True while that very process runs."""
    return identify(process.pid) == process


def start_tethered(
    arguments: Sequence[str], *, log: IO[bytes], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C reaches it only through us."""
    return subprocess.Popen(
        tethered(arguments),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the process group led by `pid`; nothing happens when it is gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def stop_process(process: subprocess.Popen[bytes], grace_seconds: float = 10.0) -> int:
    """End a child and its group: first SIGTERM, after the grace SIGKILL. Returns its exit code."""
    if process.poll() is None:
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
    code = process.wait(grace_seconds)
    signal_group(process.pid, signal.SIGKILL)  # whatever the leader left behind in its group
    return code


def reap(leftover: ProcessIdentity, grace_seconds: float = 5.0) -> bool:
    """End a process left by an earlier run. True when it was alive, and now is not."""
    if not is_alive(leftover):
        return False
    signal_group(leftover.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while is_alive(leftover) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    signal_group(leftover.pid, signal.SIGKILL)
    deadline = time.monotonic() + grace_seconds
    while is_alive(leftover) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return not is_alive(leftover)
