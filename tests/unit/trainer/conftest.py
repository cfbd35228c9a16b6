"""Lets these tests import torch, which is no dependency of ours: it lies in the engine's
environment. What it has and we have not comes last on the path. Of the packages that both have,
transformers needs its own `huggingface_hub`; it sees that one while it is imported, and nobody else
ever does."""

import atexit
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from infra.local.engine import ensure_engine

_ITS_OWN = "huggingface_hub"


def _links(theirs: Path, wanted: Callable[[str], bool]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="headrace-torch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for entry in theirs.iterdir():
        if wanted(entry.name):
            (folder / entry.name).symlink_to(entry)
    return str(folder)


def _is_lacking(name: str) -> bool:
    return not name.startswith(("vllm", "_", _ITS_OWN)) and not name.endswith(".pth")


@contextmanager
def _seeing(theirs: Path) -> Iterator[None]:
    first = _links(theirs, lambda name: name.startswith(_ITS_OWN))
    ours = _taken_out()
    sys.path.insert(0, first)
    try:
        yield
    finally:
        sys.path.remove(first)
        _taken_out()
        sys.modules.update(ours)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _ITS_OWN]
    return {name: sys.modules.pop(name) for name in names}


def _reach_torch() -> None:
    python = ensure_engine(None, print)
    [theirs] = (python.parent.parent / "lib").glob("python3*/site-packages")
    sys.path.append(_links(theirs, _is_lacking))
    with _seeing(theirs):
        importlib.import_module("torch").set_num_threads(1)
        transformers = importlib.import_module("transformers")
        for name in ("AutoModelForCausalLM", "LlamaForCausalLM", "PreTrainedTokenizerFast"):
            getattr(transformers, name)


_reach_torch()
