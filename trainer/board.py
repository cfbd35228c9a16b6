"""Where the figures of each step go beside metrics: one small port, and what implements it."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from schemas.errors import ConfigError
from schemas.settings import TrainerSettings

_MAX_BYTES = 50 * 1024**2


class Board(Protocol):
    """Takes the figures of a step: names and finite numbers."""

    def show(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class LinesBoard:
    """A JSON line for each step. At 50 MB the file is put aside as `.1`, replacing the last."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = file
        self._file = file.open("a")

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the line through, so that whoever follows the file sees it."""
        if self._file.tell() > _MAX_BYTES:
            self._file.close()
            self._path.replace(self._path.with_suffix(self._path.suffix + ".1"))
            self._file = self._path.open("a")
        self._file.write(json.dumps({"step": step, **figures}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Event files for TensorBoard, a curve for each figure."""

    def __init__(self, folder: Path) -> None:
        """ConfigError where the package is not installed."""
        try:
            self._writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
        except ImportError:
            raise ConfigError(
                "trainer.tensorboard is set, but there is no package tensorboard. Install "
                "`headrace[tensorboard]`, or unset it."
            ) from None

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Write out the rest."""
        self._writer.close()


class Boards:
    """Several at once."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self._boards = boards

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Show it on each."""
        for board in self._boards:
            board.show(step, figures)

    def close(self) -> None:
        """Close each."""
        for board in self._boards:
            board.close()


def board_of(own: TrainerSettings, folder: Path) -> Board:
    """The lines, and TensorBoard's files where the setting asks for them."""
    others = [TensorBoard(folder / "tensorboard")] if own.tensorboard else []
    return Boards([*others, LinesBoard(folder / "steps.jsonl")])
