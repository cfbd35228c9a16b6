"""What the supervisor knows, in a file that other processes read. Written whole, by rename."""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from infra.local.locks import is_locked, locked
from infra.local.processes import ProcessIdentity


class Status(StrEnum):
    """Where a child stands."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    BACKOFF = "backoff"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class ChildState:
    """One child as of now. `reason` says why it is not ready, in words for a person."""

    name: str
    status: Status = Status.WAITING
    pid: int | None = None
    start_ticks: int | None = None
    ports: tuple[int, ...] = ()
    restarts: int = 0
    last_exit: int | None = None
    since: str = ""
    reason: str = ""
    log: str = ""

    @property
    def process(self) -> ProcessIdentity | None:
        """The running process, if any."""
        if self.pid is None or self.start_ticks is None:
            return None
        return ProcessIdentity(self.pid, self.start_ticks)


@dataclass(frozen=True)
class StackState:
    """The whole stack. `endpoints` are the settings by which clients find it."""

    data_dir: str
    supervisor_pid: int
    started_at: str
    endpoints: Mapping[str, str]
    children: tuple[ChildState, ...] = ()
    ready: bool = False
    urls: Mapping[str, str] = field(default_factory=dict)

    def child(self, name: str) -> ChildState:
        """The child of that name. KeyError lists the names."""
        for child in self.children:
            if child.name == name:
                return child
        raise KeyError(f"no child {name}; there are {', '.join(c.name for c in self.children)}")


def run_dir(data_dir: Path) -> Path:
    """Where state, lock and control socket live."""
    return data_dir / "run"


def state_file(data_dir: Path) -> Path:
    """The file that holds the state."""
    return run_dir(data_dir) / "state.json"


def write_state(state: StackState) -> None:
    """Replace the file in one step, readable by its owner only."""
    path = state_file(Path(state.data_dir))
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(state), file, indent=1)
    fresh.replace(path)


def read_state(data_dir: Path) -> StackState | None:
    """The last state written, or None. It may be that of a stack that runs no more."""
    try:
        return parse_state(json.loads(state_file(data_dir).read_text()))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def parse_state(plain: Mapping[str, Any]) -> StackState:
    """The state from its JSON form."""
    children = tuple(
        ChildState(**{**child, "status": Status(child["status"]), "ports": tuple(child["ports"])})
        for child in plain["children"]
    )
    return StackState(**{**plain, "children": children})


def owned(data_dir: Path) -> AbstractContextManager[None]:
    """Own the data directory for the length of the block. ConfigError when another does."""
    return locked(
        _lock_file(data_dir),
        f"A headrace stack runs in {data_dir} already. `headrace status` shows it, "
        "`headrace down` stops it; --data-dir starts another one elsewhere.",
    )


def is_owned(data_dir: Path) -> bool:
    """True while a supervisor runs on this data directory."""
    return is_locked(_lock_file(data_dir))


def _lock_file(data_dir: Path) -> Path:
    return run_dir(data_dir) / "lock"
