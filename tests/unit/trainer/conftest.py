"""Lets these tests import torch, which is no dependency of ours: it lies in the engine's
environment. Everything of it but vLLM is put behind our own packages on the path."""

import sys
import tempfile
from pathlib import Path

from infra.local.engine import ensure_engine


def _reach_torch() -> None:
    python = ensure_engine(None, print)
    [theirs] = (python.parent.parent / "lib").glob("python3*/site-packages")
    links = Path(tempfile.mkdtemp(prefix="headrace-torch-"))
    for entry in theirs.iterdir():
        if not entry.name.startswith(("vllm", "_", "__")) and entry.suffix != ".pth":
            (links / entry.name).symlink_to(entry)
    sys.path.append(str(links))


_reach_torch()

import torch  # noqa: E402

torch.set_num_threads(1)
