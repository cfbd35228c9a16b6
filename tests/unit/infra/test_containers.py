"""What the container files name exists: modules, extras, and a service for every processor."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from schemas import topics
from schemas.settings import load_settings

ROOT = Path(__file__).resolve().parents[3]
BUILD = (ROOT / "infra/docker/build").read_text()


def _services() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = {}
    for name in ("infra/compose.yaml", "infra/docker/compose.bare.yaml"):
        for service, said in yaml.safe_load((ROOT / name).read_text())["services"].items():
            services.setdefault(service, {}).update(said)
    return services


def _module(command: list[str] | str) -> str:
    return command.split()[0] if isinstance(command, str) else command[0]


def test_every_command_is_a_module_of_ours() -> None:
    modules = {_module(said["command"]) for said in _services().values() if "command" in said}
    assert {"inference.gateway", *topics.GROUPS} <= modules
    assert all(importlib.util.find_spec(name) for name in modules)


def test_every_image_installs_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    images = dict(re.findall(r"^  \[(\w+)\]=(\S+)$", BUILD, re.MULTILINE))
    named = {m for said in _services().values()
             for m in re.findall(r"headrace/(\w+):", said.get("image", ""))}  # fmt: skip
    assert named <= set(images)
    for extras in images.values():
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_default_tag_is_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tags = {
        tag
        for said in _services().values()
        for tag in re.findall(r"TAG:-([^}]+)\}", said.get("image", ""))
    }
    assert tags == {version}


def test_every_variable_of_ours_is_a_setting(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        name
        for said in _services().values()
        for name in said.get("environment", {})
        if name.startswith("HEADRACE_")
    }
    assert "HEADRACE_GATEWAY__UPSTREAM__URL" in names
    for service in _services().values():
        for name, value in service.get("environment", {}).items():
            if name.startswith("HEADRACE_"):
                monkeypatch.setenv(name, "8" if "$" in str(value) else str(value))
    load_settings()
