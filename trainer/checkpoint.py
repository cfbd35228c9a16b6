"""Checkpoints: all that a trainer is, in one file, complete or not there.

    <data dir>/trainer/<policy>/step-00000042.pt

Written to a temporary name, synced, renamed, folder synced. It holds the offset of the next
micro-batch, so weights and what they have seen never come apart, and the version that these
weights are or will be.
"""

import contextlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from schemas.errors import ConfigError, TransientError
from schemas.store import sync_path

_FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})\.pt\Z")
#: One to go on from, and the one before it.
_NUM_KEPT = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state between two steps.

    `version` and `root` are those of the weights as they are published; `base_version` is the one
    that its delta starts from, None for the first. `next_offset` is that of the next micro-batch,
    None before the first. `sequence` is the last assignment of the ring that was acted upon.
    `learned` is what the learner remembers, as plain values and tensors.
    """

    policy: str
    num_steps: int
    next_offset: int | None
    version: int
    root: str
    base_version: int | None
    sequence: int
    statistics: Mapping[str, float]
    learned: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one policy in one folder. One process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for half in folder.glob(".step-*"):
            half.unlink()

    def save(self, checkpoint: Checkpoint) -> Path:
        """Durable when this returns. TransientError when the disk refuses it."""
        path = self._folder / f"step-{checkpoint.num_steps:08d}.pt"
        temporary = path.with_name(f".{path.name}")
        content = {"format": _FORMAT, **{n: getattr(checkpoint, n) for n in Checkpoint.__slots__}}
        try:
            torch.save(content, temporary)
            sync_path(str(temporary))
            temporary.rename(path)
            sync_path(str(self._folder))
            for _, old in self._found()[:-_NUM_KEPT]:
                old.unlink()
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise TransientError(
                f"A checkpoint could not be written to {self._folder} ({type(error).__name__}). "
                "Make room there.",
                retry_after_seconds=10.0,
            ) from error
        return path

    def latest(self) -> Checkpoint | None:
        """The newest one; None before the first. ConfigError when it cannot be read."""
        found = self._found()
        if not found:
            return None
        _, path = found[-1]
        try:
            content = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
            raise ConfigError(
                f"{path} cannot be read. Remove it: the trainer goes on from the one before."
            ) from None
        if content.pop("format", None) != _FORMAT:
            raise ConfigError(f"{path} is of another version of headrace. Move the folder away.")
        return Checkpoint(**content)

    def _found(self) -> list[tuple[int, Path]]:
        """Step and file, in order."""
        matches = ((_NAME.match(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match[1]), path) for match, path in matches if match is not None)
