"""What a child process is, when it counts as ready, and how long to wait before another try.

All of it is data: the supervisor knows nothing of Kafka or ClickHouse.
"""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from infra.local.kafka import is_ready

_PROBE_SECONDS = 2.0
#: Beyond any limit of a wait, and within the range of numbers.
_MAX_DOUBLINGS = 30
#: Exit code of a process that cannot start as configured: trying again cannot help.
EXIT_CONFIG = 2


class Probe(Protocol):
    """Says whether a started child does its work."""

    async def is_ready(self, running_seconds: float) -> bool: ...


@dataclass(frozen=True)
class KafkaProbe:
    """Ready when the broker whose data lies in `log_dir` answers and has a controller."""

    port: int
    log_dir: Path
    host: str = "127.0.0.1"

    async def is_ready(self, running_seconds: float) -> bool:  # noqa: ARG002  # a Probe
        return await asyncio.to_thread(is_ready, self.host, self.port, self.log_dir)


@dataclass(frozen=True)
class HttpProbe:
    """Ready when the URL answers 200."""

    url: str

    async def is_ready(self, running_seconds: float) -> bool:  # noqa: ARG002  # a Probe
        return await asyncio.to_thread(_answers, self.url)


@dataclass(frozen=True)
class FileProbe:
    """Ready when the child has touched the file since it was started.

    Membership in a consumer group would not do: the group remembers a killed member for a while.
    """

    path: Path

    async def is_ready(self, running_seconds: float) -> bool:
        try:
            return self.path.stat().st_mtime >= time.time() - running_seconds
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class AliveProbe:
    """Ready when the child has lived that long."""

    seconds: float

    async def is_ready(self, running_seconds: float) -> bool:
        return running_seconds >= self.seconds


@dataclass(frozen=True)
class Port:
    """A port that a child listens on; `option` is the command-line option that moves it."""

    number: int
    what: str
    option: str


@dataclass(frozen=True)
class ChildSpec:
    """One child. It starts when all of `after` are ready; a `one_shot` is ready when it is done."""

    name: str
    command: Sequence[str]
    probe: Probe = AliveProbe(1.0)
    after: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[Port] = ()
    one_shot: bool = False
    ready_within_seconds: float = 90.0
    stop_grace_seconds: float = 15.0


@dataclass(frozen=True)
class Backoff:
    """How long to wait before a crashed child is started again, and how often to try."""

    first_seconds: float = 0.5
    limit_seconds: float = 30.0
    #: None: a child that was ready once is tried for ever. What it needs may be away for a night,
    #: and nobody would start it again when that is back.
    max_failures: int | None = None
    #: A child that was never ready is more likely wrong than unlucky.
    max_first_failures: int = 5

    def delay_seconds(self, num_failures: int, *, was_ready: bool = True) -> float | None:
        """The wait after the n-th failure in a row, doubling to a limit; None to give up."""
        limit = self.max_failures if was_ready else self.max_first_failures
        if limit is not None and num_failures >= limit:
            return None
        doublings = min(num_failures - 1, _MAX_DOUBLINGS)
        return float(min(self.limit_seconds, self.first_seconds * 2**doublings))


def start_order(children: Sequence[ChildSpec]) -> list[ChildSpec]:
    """Children so that each comes after those it needs. ValueError for a circle or a gap."""
    by_name = {child.name: child for child in children}
    ordered: list[ChildSpec] = []
    pending = list(children)
    while pending:
        placed = {child.name for child in ordered}
        free = [child for child in pending if set(child.after) <= placed]
        if not free:
            missing = {name for child in pending for name in child.after} - set(by_name)
            raise ValueError(f"children wait for each other or for {sorted(missing)}")
        ordered += free
        pending = [child for child in pending if child not in free]
    return ordered


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_SECONDS) as response:  # noqa: S310  # our own URL
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
