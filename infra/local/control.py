"""The supervisor's control socket: one JSON object a line in, one out.

    {"command": "status"}
    {"command": "stop"}                                    answers, then everything ends
    {"command": "stop-child",  "names": ["redaction"]}     answers when it has ended
    {"command": "start-child", "names": ["redaction"]}     answers when it is ready

An answer is {"ok": true, "state": …} or {"ok": false, "error": "…"}. Only the owner of the data
directory can connect (mode 0600).
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.local.state import StackState, parse_state, run_dir
from schemas.errors import ConfigError

Handler = Callable[[str, Sequence[str]], Awaitable[Mapping[str, Any]]]

_SOCKET_NAME = "control.sock"
_MAX_LINE_BYTES = 65_536
#: Longer than any child may take to stop or to become ready.
DEFAULT_TIMEOUT_SECONDS = 180.0


@asynccontextmanager
async def serve_control(data_dir: Path, handle: Handler) -> AsyncIterator[None]:
    """Answer commands for the length of the block."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await _reply(line, handle))
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client left, or sent a line longer than any command
        finally:
            writer.close()

    with _short_path(data_dir) as path:
        Path(path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Made private before anybody can connect.
        old_mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(old_mask)
        server = await asyncio.start_unix_server(answer, sock=listener, limit=_MAX_LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            Path(path).unlink(missing_ok=True)


async def _reply(line: bytes, handle: Handler) -> bytes:
    try:
        request = json.loads(line)
        answer = dict(await handle(str(request["command"]), list(request.get("names", ()))))
    except (ConfigError, KeyError, TypeError, json.JSONDecodeError) as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        return json.dumps({"ok": False, "error": text}).encode() + b"\n"
    state = answer.get("state")
    if isinstance(state, StackState):
        answer["state"] = asdict(state)
    return json.dumps({"ok": True, **answer}).encode() + b"\n"


def ask(
    data_dir: Path,
    command: str,
    names: Sequence[str] = (),
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> StackState:
    """Send one command and wait for its answer. ConfigError when no stack runs or it refuses."""
    request = json.dumps({"command": command, "names": list(names)}).encode() + b"\n"
    try:
        with _short_path(data_dir) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(path)
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except TimeoutError:
        raise ConfigError(f"The stack did not answer within {timeout_seconds:.0f} s.") from None
    except OSError:
        raise not_running(data_dir) from None
    if not line:
        raise not_running(data_dir)
    answer = json.loads(line)
    if not answer["ok"]:
        raise ConfigError(answer["error"])
    return parse_state(answer["state"])


def not_running(data_dir: Path) -> ConfigError:
    """The error for a data directory without a running stack."""
    return ConfigError(
        f"No headrace stack runs in {data_dir}. Start one with `headrace up`, or name the "
        "directory of a running one with --data-dir."
    )


@contextmanager
def _short_path(data_dir: Path) -> Iterator[str]:
    """A path to the socket that fits into the 108 bytes which the kernel allows."""
    handle = os.open(run_dir(data_dir), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{_SOCKET_NAME}"
    finally:
        os.close(handle)
