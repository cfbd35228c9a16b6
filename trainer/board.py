"""Where the figures of each step go beside metrics: one small port, and what implements it."""

import json
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import structlog

from schemas.errors import ConfigError
from schemas.settings import TrainerSettings

_log = structlog.get_logger("trainer")
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


class MlflowBoard:
    """A run of MLflow's experiment `headrace`, a metric for each figure.

    A restart goes on with the run.
    """

    def __init__(self, address: str, policy: str, folder: Path) -> None:
        """ConfigError where the package is not installed, or the server refuses."""
        try:
            self._mlflow: Any = import_module("mlflow")
        except ImportError:
            raise ConfigError(
                "trainer.mlflow is set, but there is no package mlflow. Install "
                "`headrace[mlflow]`, or unset it."
            ) from None
        self._policy, self._file = policy, folder / "mlflow-run"
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=address)
            self._run = self._run_id()
        except (self._mlflow.MlflowException, OSError) as error:
            raise ConfigError(
                f"trainer.mlflow is set, but MLflow does not answer there "
                f"({type(error).__name__}). "
                "Set it to the address of its tracking server, or unset it."
            ) from None

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Log them together. A server that is away costs the points of this step, and a warning."""
        now_ms = int(time.time() * 1000)
        metric = self._mlflow.entities.Metric
        points = [metric(name, value, now_ms, step) for name, value in figures.items()]
        try:
            self._client.log_batch(self._run, metrics=points)
        except (self._mlflow.MlflowException, OSError) as error:
            _log.warning(
                "figures_not_shown", step=step, board="mlflow", reason=type(error).__name__
            )

    def close(self) -> None:
        """The run stays open: a restart goes on with it."""

    def _run_id(self) -> str:
        if self._file.is_file():
            return self._file.read_text()
        found = self._client.get_experiment_by_name("headrace")
        experiment = found.experiment_id if found else self._client.create_experiment("headrace")
        run: str = self._client.create_run(experiment, run_name=self._policy).info.run_id
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file.write_text(run)
        return run


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
    """The lines, and TensorBoard's files and an MLflow run where the settings ask for them."""
    others: list[Board] = [TensorBoard(folder / "tensorboard")] if own.tensorboard else []
    if own.mlflow is not None:
        others.append(MlflowBoard(own.mlflow, own.policy, folder))
    return Boards([*others, LinesBoard(folder / "steps.jsonl")])
