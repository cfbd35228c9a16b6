"""CPU seconds and memory of a process, from /proc."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_KIB = 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far; 0 for a process that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory that the process holds; 0 for a process that is gone."""
    return _status(pid, "VmRSS:")


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever held; 0 for a process that is gone."""
    return _status(pid, "VmHWM:")


def _status(pid: int, name: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in status.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * _KIB
    return 0


def family(pid: int) -> list[int]:
    """The process, its children and theirs; an engine's memory is in its children."""
    found = [pid]
    for parent in found:  # it grows while it is read
        for listed in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, listed.read_text().split())
    return found


class CpuMeter:
    """How much CPU time named processes used since it was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}

    def used(self) -> dict[str, float]:
        """Seconds by name."""
        return {name: now - self._before[name] for name, now in self._now().items()}
