"""A part of the stack is away for a while. It is stopped, not killed, and started again."""

import asyncio
import json
import sys
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
    #: What `headrace status --json` says before it and at its end.
    status_before: dict[str, Any] = field(default_factory=dict)
    status_within: dict[str, Any] = field(default_factory=dict)
    #: Most resident bytes of each process: before the outage, and from then on.
    bytes_before: dict[str, int] = field(default_factory=dict)
    bytes_within: dict[str, int] = field(default_factory=dict)
    steps_within: int = 0

    async def run(self) -> None:
        """The outage, from its beginning to the part being ready again."""
        await until(lambda: self.load.num_steps >= self.at_step, _LOAD_SECONDS)
        self.status_before = await self._status()
        self.bytes_before = self._memory()
        await asyncio.to_thread(ask, self.data_dir, "stop-child", [self.child])
        steps_before = self.load.num_steps
        for _ in range(_LOOKS):
            await asyncio.sleep(self.seconds / _LOOKS)
            for name, num_bytes in self._memory().items():
                self.bytes_within[name] = max(num_bytes, self.bytes_within.get(name, 0))
        self.status_within = await self._status()
        self.steps_within = self.load.num_steps - steps_before
        await asyncio.to_thread(ask, self.data_dir, "start-child", [self.child])
        self.is_done = True

    def _memory(self) -> dict[str, int]:
        state = read_state(self.data_dir)
        found = {}
        for child in state.children if state else ():
            if child.pid is not None:
                found[child.name] = resident_bytes(child.pid)
        return found

    async def _status(self) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "infra.cli.main", "status", "--json",
            "--data-dir", str(self.data_dir), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await process.communicate()
        answer: dict[str, Any] = json.loads(said)
        return answer


def resident_bytes(pid: int) -> int:
    """Memory of a process, 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) * 1024 if lines else 0
