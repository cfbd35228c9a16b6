"""Where the engine's environment is found, and what is said when it cannot be made."""

from pathlib import Path

import pytest

from infra.local.engine import ensure_engine, environment_path, find_engine
from schemas.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    return path


def test_a_configured_python_comes_first(tmp_path: Path) -> None:
    program(environment_path() / "bin" / "python")
    mine = program(tmp_path / "mine" / "bin" / "python")
    assert ensure_engine(mine) == mine
    assert find_engine(mine) == mine


def test_a_configured_python_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"worker\.python is .*absent.*unset it"):
        ensure_engine(tmp_path / "absent")


def test_the_cached_environment_is_used_without_a_word(empty_cache: Path) -> None:
    assert find_engine() is None
    cached = program(environment_path() / "bin" / "python")
    assert empty_cache in cached.parents
    said: list[str] = []
    assert ensure_engine(None, said.append) == cached == find_engine()
    assert said == []


def test_without_an_index_nothing_is_left_behind(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    said: list[str] = []
    with pytest.raises(ConfigError, match="HEADRACE_WORKER__PYTHON"):
        ensure_engine(None, said.append)
    assert said == ["making the engine environment with vLLM and torch (once, up to 6 GB)"]
    assert [p.suffix for p in (empty_cache / "headrace").iterdir()] == [".lock"]
    assert find_engine() is None
