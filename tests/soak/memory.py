"""What each process of a stack takes while much is posted, and how long that is on its way."""

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from infra.demo.stage import Stage
from infra.local.state import read_state
from tests.soak.outages import resident_bytes
from tests.soak.stack import Victims

#: The store merges parts and caches pages as it likes, the broker maps its logs.
OUR_OWN = ("gateway", "redaction", "assembly", "sink")
MAX_DESCRIPTORS_MORE = 64
_LOOK_SECONDS = 5.0
_REST_SECONDS = 3600.0


@dataclass
class Process:
    """What one process took: after a warm-up, at most, and in the end."""

    bytes_before: int
    descriptors_before: int
    most_bytes: int = 0
    most_descriptors: int = 0


@dataclass
class Watched:
    """The processes of a stack, looked at again and again."""

    data_dir: Path
    processes: dict[str, Process] = field(default_factory=dict)

    def look(self) -> None:
        """Note what each takes now."""
        state = read_state(self.data_dir)
        for child in state.children if state else ():
            if child.pid is None:
                continue
            now = resident_bytes(child.pid), num_descriptors(child.pid)
            process = self.processes.setdefault(child.name, Process(*now))
            process.most_bytes = max(process.most_bytes, now[0])
            process.most_descriptors = max(process.most_descriptors, now[1])

    def told(self) -> str:
        """As JSON: each process before and at most."""
        return json.dumps({
            name: {
                "mb": [process.bytes_before // 10**6, process.most_bytes // 10**6],
                "descriptors": [process.descriptors_before, process.most_descriptors],
            }
            for name, process in self.processes.items()
        }, indent=1)  # fmt: skip


def num_descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names alone are asked for
    except FileNotFoundError:
        return 0


async def room(victims: Victims, watched: Watched, allowed: int) -> None:
    """Wait until no more than so much is on its way."""
    began = time.monotonic()
    while time.monotonic() - began < _REST_SECONDS:
        backlog = await asyncio.to_thread(victims.backlog)
        watched.look()
        if backlog is not None and backlog.total <= allowed:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError("the events are not processed in time")


async def warm_up(stage: Stage, key: str) -> None:
    """Until the gateway knows the key; an empty list is refused without a trace."""
    headers = {"x-headrace-key": key, "content-type": "application/json"}
    deadline = time.monotonic() + 60.0
    async with aiohttp.ClientSession(headers=headers) as http:
        while time.monotonic() < deadline:
            async with http.post(f"{stage.target.gateway_url}/v1/events", data=b"[]") as answer:
                if answer.status == 422:
                    return
            await asyncio.sleep(0.1)
    raise AssertionError("the gateway does not know the key")
