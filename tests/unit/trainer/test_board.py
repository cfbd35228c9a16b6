"""Figures reach each board, and a board that is away stops no training."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import TrainerSettings
from trainer import board as boards
from trainer.board import MlflowBoard, board_of

FIGURES: Mapping[str, float] = {"reward": 0.5, "loss": -0.25}


def test_the_lines_hold_every_step(tmp_path: Path) -> None:
    board = board_of(TrainerSettings(), tmp_path)
    board.show(1, FIGURES)
    board.show(2, FIGURES)
    board.close()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, **FIGURES}, {"step": 2, **FIGURES}]


class RefusedError(Exception):
    """As MLflow's own."""


class Tracking:
    """A tracking server and its package, as far as the board uses them."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, list[tuple[str, float, int]]] = {}
        self.is_away = False

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return None if found is None else SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, "7")

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        run = f"{experiment_id}-{run_name}-{len(self.runs)}"
        self.runs[run] = []
        return SimpleNamespace(info=SimpleNamespace(run_id=run))

    def log_batch(self, run: str, metrics: list[Any]) -> None:
        if self.is_away:
            raise RefusedError
        self.runs[run] += [(m[0], m[1], m[3]) for m in metrics]

    @property
    def package(self) -> Any:
        return SimpleNamespace(
            MlflowClient=lambda **_: self,
            MlflowException=RefusedError,
            entities=SimpleNamespace(Metric=lambda *values: values),
        )


@pytest.fixture
def tracking(monkeypatch: pytest.MonkeyPatch) -> Tracking:
    made = Tracking()
    monkeypatch.setattr(boards, "import_module", lambda _: made.package)
    return made


def test_mlflow_gets_the_figures_and_a_restart_goes_on_with_the_run(
    tmp_path: Path, tracking: Tracking
) -> None:
    for step in (1, 2):
        board = MlflowBoard("http://127.0.0.1:1", "main", tmp_path)
        board.show(step, FIGURES)
        board.close()
    [points] = tracking.runs.values()
    assert points == [(name, FIGURES[name], step) for step in (1, 2) for name in FIGURES]


def test_a_server_that_is_away_stops_nothing(tmp_path: Path, tracking: Tracking) -> None:
    board = MlflowBoard("http://127.0.0.1:1", "main", tmp_path)
    tracking.is_away = True
    board.show(1, FIGURES)
    tracking.is_away = False
    board.show(2, FIGURES)
    [points] = tracking.runs.values()
    assert {step for _, _, step in points} == {2}


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boards, "import_module", missing)
        with pytest.raises(ConfigError, match=r"headrace\[mlflow\]"):
            MlflowBoard("http://127.0.0.1:1", "main", tmp_path)


def test_the_real_package_keeps_the_figures(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    address = f"sqlite:///{tmp_path}/mlflow.db"
    try:
        board = MlflowBoard(address, "main", tmp_path)
    except ConfigError:
        pytest.skip("the small package of MLflow has no store of its own")
    board.show(3, FIGURES)
    board.close()
    run = (tmp_path / "mlflow-run").read_text()
    kept = mlflow.MlflowClient(tracking_uri=address).get_metric_history(run, "reward")
    assert [(point.value, point.step) for point in kept] == [(0.5, 3)]
