"""Where torch is: here, or in an environment that the process becomes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from trainer import relaunch

_SHOW = (
    "import sys, schemas.bus.kafka, trainer.objective, torch, transformers, confluent_kafka; "
    "print(torch.__file__, transformers.__file__, confluent_kafka.__file__, sys.argv[1:])"
)


def test_the_other_interpreter_sees_torch_and_our_client(
    engine_python: Path, tmp_path: Path
) -> None:
    """A module of ours runs there, its own packages first, ours for what it lacks."""
    command = relaunch.command(engine_python, tmp_path / "site", "probe", ["one", "two"])
    (tmp_path / "site" / "probe.py").write_text(_SHOW)
    environment = relaunch.environment(os.environ, tmp_path / "site")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    torch, transformers, client, *arguments = done.stdout.split()
    theirs = str(engine_python.parent.parent)
    assert torch.startswith(theirs)
    assert transformers.startswith(theirs)
    assert not client.startswith(theirs)
    assert arguments == ["['one',", "'two']"]


def test_the_folder_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "trainer").symlink_to(tmp_path / "elsewhere")
    relaunch.command(Path(sys.executable), tmp_path, "trainer", [])
    assert (tmp_path / "trainer" / "loop.py").is_file()
    assert (tmp_path / "schemas" / "topics.py").is_file()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaunch, "has_torch", lambda: False)


@pytest.mark.usefixtures("no_torch")
def test_without_torch_anywhere_it_says_what_to_set(tmp_path: Path) -> None:
    for python in (None, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="HEADRACE_TRAINER__PYTHON"):
            relaunch.require_torch(python, tmp_path, "trainer")


@pytest.mark.usefixtures("no_torch")
def test_an_environment_without_torch_is_not_started_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(relaunch.MARKER, "1")
    with pytest.raises(ConfigError, match="has no torch"):
        relaunch.require_torch(Path(sys.executable), tmp_path, "trainer")
