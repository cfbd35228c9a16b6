"""Where torch is: here, or in another environment that this process then becomes.

torch and transformers take 6 GB with what they need, so they are no dependency of ours. The
environment that serves models has them. Its interpreter runs the trainer with three things on its
path, in this order: a folder with links to our own two packages, its own packages, and last the
packages of the environment we were started in, for what the other lacks (the Kafka client).
"""

import os
import site
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from schemas.errors import ConfigError

_PACKAGES = ("schemas", "trainer")
#: Set in the process that we became, so that it does not look once more.
MARKER = "TRAINER_RELAUNCHED"
_RUN = (
    "import runpy, sys; sys.path.extend(sys.argv[2].split({separator!r})); module = sys.argv[1]; "
    "del sys.argv[1:3]; runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def has_torch() -> bool:
    """Whether this interpreter can train."""
    return find_spec("torch") is not None and find_spec("transformers") is not None


def command(
    python: Path, folder: Path, module: str, arguments: list[str], num_processes: int = 1
) -> list[str]:
    """The command line that runs one of our modules with another interpreter, in one process or by
    `torchrun` in several.

    `folder` gets the links. Use it with `environment`.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError(f"The package {package} is not installed whole. Install headrace.")
        link, target = folder / package, Path(spec.submodule_search_locations[0]).absolute()
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    ours = os.pathsep.join(site.getsitepackages())
    script = _RUN.format(separator=os.pathsep)
    alone = [str(python), "-c", script, module, ours, *arguments]
    return alone if num_processes == 1 else [*_torchrun(python, num_processes), *alone]


def _torchrun(python: Path, num_processes: int) -> list[str]:
    """It ends all processes where one fails; whoever supervises us starts them again."""
    return [
        str(python), "-m", "torch.distributed.run", "--standalone", "--no-python",
        f"--nproc-per-node={num_processes}",
    ]  # fmt: skip


def environment(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of that command: nothing is fetched or reported, compiled code is kept."""
    kept = {
        name: value
        for name, value in base.items()
        if name not in {"PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
    }
    return {
        **kept,
        "PYTHONPATH": str(folder),
        "PYTHONSAFEPATH": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def require_torch(python: Path | None, folder: Path, module: str, num_processes: int = 1) -> None:
    """Return where torch is here; else become `python` running the same module, and not return.
    With several processes become `torchrun`, unless it started this one.

    ConfigError where neither has it.
    """
    is_started = num_processes == 1 or "TORCHELASTIC_RUN_ID" in os.environ
    if has_torch():
        if is_started:
            return
        python = Path(sys.executable)
    if python is None or not python.is_file():
        raise ConfigError(
            "There is no torch here. Set HEADRACE_TRAINER__PYTHON to the python of an environment "
            "with torch and transformers; `python -m infra.local.engine` makes one and prints "
            "where it is."
        )
    if MARKER in os.environ:
        raise ConfigError(f"{python} has no torch or no transformers. Install both there.")
    made = command(python.absolute(), folder, module, sys.argv[1:], num_processes)
    os.execve(made[0], made, {**environment(os.environ, folder), MARKER: "1"})  # noqa: S606
