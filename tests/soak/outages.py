"""A part of the stack is away for a while. It is stopped, not killed, and started again."""

import asyncio
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.local.control import ask
from infra.local.state import read_state
from tests.soak.kills import Kill
from tests.soak.load import Load
from tests.soak.waiting import until

_LOAD_SECONDS = 600.0
_LOOKS = 10
#: Records that are always on their way: seven calls a second make some seventy in all groups, and
#: a contended machine takes seconds.
_FEW = 250
_HTTP_SECONDS = 10.0


@dataclass
class Outage:
    """`child` is away for `seconds`, once the load has made `at_step` calls."""

    load: Load
    data_dir: Path
    child: str
    seconds: float
    at_step: int
    kills: list[Kill] = field(default_factory=list)
    is_done: bool = False
    #: What `headrace status --json` says before it and at its end, and while it is caught up.
    status_before: dict[str, Any] = field(default_factory=dict)
    status_within: dict[str, Any] = field(default_factory=dict)
    catching_up: list[dict[str, Any]] = field(default_factory=list)
    #: Most resident bytes of each process: before the outage, and from then on.
    bytes_before: dict[str, int] = field(default_factory=dict)
    bytes_within: dict[str, int] = field(default_factory=dict)
    #: Calls made when the status at its end was asked for, and until it had come.
    steps_within: int = 0
    began_at: float = 0.0
    caught_up_seconds: float = 0.0
    #: The gateway's metrics when nothing waited any more.
    metrics: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """The outage, from its beginning to all of it being caught up."""
        await until(lambda: self.load.num_steps >= self.at_step, _LOAD_SECONDS)
        self.status_before = await ask_status(self.data_dir)
        self._note_memory(self.bytes_before)
        self.began_at = time.time()
        await asyncio.to_thread(ask, self.data_dir, "stop-child", [self.child])
        steps_before = self.load.num_steps
        for _ in range(_LOOKS):
            await asyncio.sleep(self.seconds / _LOOKS)
            self._note_memory(self.bytes_within)
        self.steps_within = self.load.num_steps - steps_before
        self.status_within = await ask_status(self.data_dir)
        await asyncio.to_thread(ask, self.data_dir, "start-child", [self.child])
        await self._catch_up()
        self.metrics = await asyncio.to_thread(read_metrics, f"{self.load.gateway_url}/metrics")
        self.is_done = True

    async def _catch_up(self) -> None:
        """Until status says that hardly anything waits and all is well; each part looks at itself
        every few seconds. The test decides whether that took long."""
        began = time.monotonic()
        while time.monotonic() - began < _LOAD_SECONDS:
            self.catching_up.append(await ask_status(self.data_dir))
            self._note_memory(self.bytes_within)
            self.caught_up_seconds = time.monotonic() - began
            if num_behind(self.catching_up[-1]) <= _FEW and self.catching_up[-1]["healthy"]:
                return

    def _note_memory(self, most: dict[str, int]) -> None:
        state = read_state(self.data_dir)
        for child in state.children if state else ():
            if child.pid is not None:
                most[child.name] = max(resident_bytes(child.pid), most.get(child.name, 0))


async def ask_status(data_dir: Path) -> dict[str, Any]:
    """What `headrace status --json` says now."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "infra.cli.main", "status", "--json", "--sample", "1",
        "--data-dir", str(data_dir), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    answer: dict[str, Any] = json.loads(said)
    return answer


def part(status: dict[str, Any], name: str) -> dict[str, Any]:
    """What a status says of one part."""
    (found,) = [one for one in status["parts"] if one["name"] == name]
    return dict(found)


def num_behind(status: dict[str, Any]) -> float:
    """Everything that waits anywhere; infinite while that cannot be known."""
    gateway = part(status, "gateway")["answer"]
    if not part(status, "kafka")["healthy"] or gateway is None:
        return float("inf")
    behind = sum(group["behind"] for group in status["groups"])
    return float(behind + gateway["spool_events_waiting"])


def read_metrics(url: str) -> dict[str, float]:
    """Name and labels → value, as Prometheus reads them."""
    with urllib.request.urlopen(url, timeout=_HTTP_SECONDS) as answer:  # noqa: S310 - our own
        lines = answer.read().decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def resident_bytes(pid: int) -> int:
    """Memory of a process, 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) * 1024 if lines else 0
