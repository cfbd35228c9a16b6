"""`headrace demo --then-learn`: the data path, then learning, where a model can be served."""

import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infra.cli.demo as command
from infra.cli.main import make_app
from schemas.errors import ConfigError


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; every part does nothing but that."""
    done: list[str] = []

    def note(what: str) -> Any:
        return lambda *_arguments, **_options: done.append(what)

    def learn(_console: Any, data_dir: Path, *_: Any, updates: bool, keep: bool, as_json: bool
              ) -> None:  # fmt: skip
        assert updates
        assert not as_json
        done.append(f"learn in {data_dir.name}" + ("" if keep else ", and stop"))

    monkeypatch.setattr(command, "_play", note("play"))
    monkeypatch.setattr(command, "_learn", learn)
    monkeypatch.setattr("infra.local.launch.shut_down", note("stop"))
    monkeypatch.setattr("infra.local.engine.ensure_engine", note("engine"))
    return done


def run(tmp_path: Path, *arguments: str) -> Any:
    given = ["demo", "--then-learn", "-d", str(tmp_path / "demo"), *arguments]
    return CliRunner().invoke(make_app(), given)


def test_the_stack_of_the_first_part_stops_before_the_second(
    tmp_path: Path, shown: list[str]
) -> None:
    assert run(tmp_path).exit_code == 0
    assert shown == ["play", "stop", "engine", "learn in demo-learning"]


def test_an_ephemeral_demo_leaves_no_stack(tmp_path: Path, shown: list[str]) -> None:
    assert run(tmp_path, "--ephemeral").exit_code == 0
    assert shown == ["play", "stop", "engine", "learn in demo-learning, and stop"]


def test_signals_mean_afterwards_what_they_meant_before(tmp_path: Path, shown: list[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run(tmp_path).exit_code == 0
    assert shown
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_without_an_engine_the_first_part_is_shown_and_a_sentence_says_why(
    tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: Any) -> None:
        raise ConfigError("Allow the package index.")

    monkeypatch.setattr("infra.local.engine.ensure_engine", absent)
    result = run(tmp_path)
    assert result.exit_code == 0
    assert shown == ["play", "stop"]
    assert "left out, since no model can be served here. Allow the package index." in result.output


def test_figures_are_those_of_one_part(tmp_path: Path, shown: list[str]) -> None:
    result = run(tmp_path, "--json")
    assert isinstance(result.exception, ConfigError)
    assert shown == []


def test_another_model_may_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, Any] = {}
    monkeypatch.setattr(command, "_learn", lambda *_arguments, **options: said.update(options))
    given = ["demo", "-d", str(tmp_path / "demo"), "--model", "one"]
    assert isinstance(CliRunner().invoke(make_app(), given).exception, ConfigError)
    assert not said
    assert CliRunner().invoke(make_app(), [*given, "--learn"]).exit_code == 0
    assert said["model"] == "one"
