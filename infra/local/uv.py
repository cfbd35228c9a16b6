"""Programs that make things for us: uv, and scripts in the engine's environment."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from schemas.errors import ConfigError

MAX_SECONDS = 1800.0
#: How often somebody who waits is told how far it is.
_TELL_SECONDS = 5.0

Done = subprocess.CompletedProcess[str]


def uv(arguments: list[str], on_wait: Callable[[], None] = lambda: None) -> Done:
    """Run uv. `on_wait` is called every few seconds. ConfigError where there is no uv."""
    beside = Path(sys.executable).with_name("uv")
    if shutil.which("uv") is None and not beside.is_file():
        raise ConfigError(
            "uv is not there, and the engine environment is made with it. Install headrace[local], "
            "or set HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
        )
    program = str(beside) if beside.is_file() else "uv"
    return finished([program, *arguments], {**os.environ, **_indexes()}, on_wait)


def finished(
    command: list[str],
    environment: Mapping[str, str],
    on_wait: Callable[[], None] = lambda: None,
) -> Done:
    """Run to the end, within `MAX_SECONDS`. ConfigError where it does not come to one."""
    deadline = time.monotonic() + MAX_SECONDS
    try:
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                while True:
                    try:
                        output, errors = process.communicate(timeout=_TELL_SECONDS)
                        return Done(command, process.returncode, output, errors)
                    except subprocess.TimeoutExpired:
                        if time.monotonic() > deadline:
                            raise
                        on_wait()
            finally:
                process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"{Path(command[0]).name} did not finish ({type(error).__name__}). Try again, or set "
            "HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
        ) from None


def last_words(done: Done, num_lines: int = 6) -> str:
    """What a program said last, in a few hundred characters."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return " ".join(lines[-num_lines:])[:600] or f"exit code {done.returncode}."


def _indexes() -> dict[str, str]:
    """uv reads none of pip's settings; a mirror that pip is told of counts for uv as well."""
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        return {}
    asked = finished([sys.executable, "-m", "pip", "config", "get", "global.index-url"], os.environ)
    url = os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    return {"UV_DEFAULT_INDEX": url} if url else {}
