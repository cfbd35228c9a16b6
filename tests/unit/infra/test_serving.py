"""What a model adds to the stack, and which models there are."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from infra.local.model import ensure_model
from infra.local.serving import Served, ensure_served
from infra.local.stack import Ports, make_plan
from schemas.errors import ConfigError
from schemas.settings import Settings

SERVED = Served(Path("/models/small"), "small", Path("/engine/bin/python"))


def plan(served: Served | None, **settings: object) -> dict[str, object]:
    made = make_plan(Settings.model_validate(settings), Ports(worker=23_500), (), served)
    return {"children": {c.name: c for c in made.children}, **made.endpoints, **made.urls}


def test_without_a_model_there_is_no_worker_and_no_ring() -> None:
    made = plan(None)
    assert "worker" not in made["children"]  # type: ignore[operator]
    assert "promotion" not in made["children"]  # type: ignore[operator]
    assert "HEADRACE_GATEWAY__RING" not in made


def test_a_ring_whose_workers_run_elsewhere_brings_who_decides_for_it() -> None:
    children = plan(None, gateway={"ring": "blue"})["children"]
    assert "promotion" in children  # type: ignore[operator]
    assert "worker" not in children  # type: ignore[operator]


def test_a_model_brings_a_worker_and_a_gateway_that_routes_to_it() -> None:
    made = plan(SERVED, worker={"rings": ["blue", "green"], "policy": "mine"})
    children = made["children"]
    assert {"worker", "promotion", "gateway"} <= children.keys()  # type: ignore[attr-defined]
    environment = children["worker"].environment  # type: ignore[index]
    assert environment["HEADRACE_WORKER__MODEL"] == "/models/small"
    assert environment["HEADRACE_WORKER__PORT"] == "23500"
    for child in ("gateway", "worker"):
        assert children[child].environment["HEADRACE_GATEWAY__RING"] == "blue"  # type: ignore[index]
        assert children[child].environment["HEADRACE_WORKER__POLICY"] == "mine"  # type: ignore[index]
    assert made["model"] == "small"


def test_learning_brings_batching_and_a_trainer_of_the_served_policy() -> None:
    learning = replace(SERVED, learns=True)
    children = plan(learning, worker={"policy": "mine", "rings": ["blue"]})["children"]
    assert {"worker", "batching", "trainer"} <= children.keys()  # type: ignore[attr-defined]
    environment = children["trainer"].environment  # type: ignore[index]
    assert environment["HEADRACE_TRAINER__MODEL"] == "/models/small"
    assert environment["HEADRACE_TRAINER__PYTHON"] == "/engine/bin/python"
    assert environment["HEADRACE_TRAINER__POLICY"] == "mine"
    assert environment["HEADRACE_TRAINER__RING"] == "blue"
    assert "trainer" not in plan(SERVED)["children"]  # type: ignore[operator]


def test_a_trainer_of_adapters_needs_a_worker_that_takes_them() -> None:
    learning = replace(SERVED, learns=True)
    with pytest.raises(ConfigError, match="MAX_LORA_RANK"):
        plan(learning, trainer={"lora_rank": 8}, worker={"max_lora_rank": 4})
    assert (
        "trainer"
        in plan(learning, trainer={"lora_rank": 8}, worker={"max_lora_rank": 8})["children"]
    )  # type: ignore[operator]


def test_ports_travel_as_options() -> None:
    assert "--worker-port=23500" in Ports(worker=23_500).as_options()
    assert Ports.from_settings(Settings(), worker=23_501).worker == 23_501


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def python_that(tmp_path: Path, does: str) -> Path:
    """A program in the place of the engine's python. Its arguments: -c, script, and ours."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o700)
    return file


def test_a_gguf_file_becomes_a_checkpoint_once(cache: Path, tmp_path: Path) -> None:
    python = python_that(tmp_path, 'mkdir "$5" && echo {} > "$5/config.json"')
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    said: list[str] = []
    first = ensure_model(str(tmp_path / "small.gguf"), python, said.append)
    assert (first.name, first.folder.is_relative_to(cache)) == ("small", True)
    assert (first.folder / "config.json").is_file()
    assert any("checkpoint" in line for line in said)
    said.clear()
    assert ensure_model(str(tmp_path / "small.gguf"), python, said.append) == first
    assert said == []


def test_a_conversion_that_fails_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    python = python_that(tmp_path, 'mkdir "$5"; echo "no such format" >&2; exit 1')
    (tmp_path / "odd.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"no such format.*--model"):
        ensure_model(str(tmp_path / "odd.gguf"), python, print)
    assert [file.suffix for file in (cache / "headrace").iterdir()] == [".lock"]


def test_a_folder_is_served_as_it_is_under_a_name_that_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    python = python_that(tmp_path, "exit 1")
    with pytest.raises(ConfigError, match=r"config\.json"):
        ensure_model(str(tmp_path / "mine"), python, print)
    (tmp_path / "mine" / "config.json").write_text("{}")
    named = Settings.model_validate(
        {"worker": {"python": python, "served_model_name": "other", "model": str(tmp_path)}}
    )
    served = ensure_served(named, str(tmp_path / "mine"), print)
    assert served == Served((tmp_path / "mine").absolute(), "other", python)


@pytest.mark.parametrize("wanted", ["absent", "/absent/model", "./a", "a/b/c"])
def test_what_is_no_model_is_said(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a folder, nor a GGUF file"):
        ensure_model(wanted, python_that(tmp_path, "exit 1"), print)


def test_a_model_of_the_hub_lies_where_the_engine_says(tmp_path: Path) -> None:
    python = python_that(tmp_path, 'echo noise; echo "/hub/$3"')
    found = ensure_model("owner/small", python, print)
    assert (found.folder, found.name) == (Path("/hub/owner/small"), "small")


def test_the_command_line_says_what_goes_together(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("headrace")),
        "up",
        "--model",
        "owner/small",
        "-d",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Add --with model" in done.stderr
