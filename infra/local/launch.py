"""Start a stack in the background, find a running one, and end it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from infra.local.control import ask, not_running
from infra.local.processes import ProcessIdentity, identify, is_alive
from infra.local.rotating_log import last_lines
from infra.local.serving import Served
from infra.local.stack import Ports, prepare_data_dir
from infra.local.state import ChildState, StackState, is_owned, read_state
from schemas.errors import ConfigError
from schemas.settings import Settings, load_settings

_POLL_SECONDS = 0.1
_START_SECONDS = 1200.0
_STOP_SECONDS = 120.0
_SECTIONS = ("kafka", "clickhouse", "gateway", "worker")


def launch(
    settings: Settings,
    ports: Ports,
    on_change: Callable[[ChildState], None],
    only: Collection[str] = (),
    served: Served | None = None,
) -> StackState:
    """Start the stack in a process of its own and return when all of it is ready.

    ConfigError when it ends before that; nothing is left running then.
    """
    data_dir = settings.data_dir.absolute()
    if is_owned(data_dir):
        raise ConfigError(f"A headrace stack runs in {data_dir} already. `headrace down` stops it.")
    prepare_data_dir(settings)
    log = data_dir / "logs" / "supervisor.log"
    log.parent.mkdir(exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "infra.local", *ports.as_options()]
    command += ["--data-dir", str(data_dir), *(f"--only={name}" for name in only)]
    if served is not None:
        command.append("--with=learning" if served.learns else "--with=model")
    environment = {**os.environ, **(served.settings() if served is not None else {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    # The supervisor outlives this call; whoever stays around reaps it when it ends.
    threading.Thread(target=process.wait, name="supervisor-reaper", daemon=True).start()
    return _wait_until_ready(data_dir, process, log, on_change)


def _wait_until_ready(
    data_dir: Path,
    process: subprocess.Popen[bytes],
    log: Path,
    on_change: Callable[[ChildState], None],
) -> StackState:
    seen: dict[str, ChildState] = {}
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = last_lines(log, 1)
            raise ConfigError(said[0] if said else f"The supervisor ended. Its log: {log}")
        state = read_state(data_dir)
        if state is not None and state.supervisor_pid == process.pid:
            for child in state.children:
                if seen.get(child.name) != child:
                    seen[child.name] = child
                    on_change(child)
            if state.ready:
                return state
        time.sleep(_POLL_SECONDS)
    process.terminate()
    raise ConfigError(f"The stack was not ready after {_START_SECONDS:.0f} s. Its log: {log}")


def shut_down(data_dir: Path) -> bool:
    """End a running stack and wait until all of it is gone. False when none runs."""
    if not is_owned(data_dir):
        return False
    supervisor = _supervisor(data_dir)
    ask(data_dir, "stop")
    deadline = time.monotonic() + _STOP_SECONDS
    while is_owned(data_dir) or (supervisor is not None and is_alive(supervisor)):
        if time.monotonic() > deadline:
            raise ConfigError(f"The stack in {data_dir} did not end within {_STOP_SECONDS:.0f} s.")
        time.sleep(_POLL_SECONDS)
    return True


def _supervisor(data_dir: Path) -> ProcessIdentity | None:
    state = read_state(data_dir)
    # A child that we started and do not wait for would stay a zombie; that counts as ended.
    return identify(state.supervisor_pid) if state and state.supervisor_pid != os.getpid() else None


def running_state(data_dir: Path) -> StackState:
    """The state of the stack that runs there now. ConfigError when none does."""
    if not is_owned(data_dir):
        raise not_running(data_dir)
    return ask(data_dir, "status")


def find_settings(data_dir: Path | None = None) -> Settings:
    """Settings for a client: file and environment, and for what they leave open, the endpoints
    of the stack in the data directory."""
    settings = load_settings(**({"data_dir": data_dir} if data_dir is not None else {}))
    state = read_state(settings.data_dir)
    if state is None:
        return settings
    update = {"data_dir": settings.data_dir.absolute()} | {
        name: _completed(getattr(settings, name), name, state) for name in _SECTIONS
    }
    return settings.model_copy(update=update)


def _completed(section: object, name: str, state: StackState) -> object:
    prefix = f"HEADRACE_{name.upper()}__"
    known = {
        key.removeprefix(prefix).lower(): value
        for key, value in state.endpoints.items()
        if key.startswith(prefix)
    }
    given = section.model_dump(include=section.model_fields_set)  # type: ignore[attr-defined]
    return type(section)(**{**known, **given})
