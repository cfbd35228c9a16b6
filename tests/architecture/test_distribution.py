"""The list of what shares an engine or a stack is true."""

from pathlib import Path

import pytest

from tests.distribution import GROUPS, group_of

ROOT = Path(__file__).resolve().parents[2]


def files_with(*words: str) -> list[str]:
    """Test files of servers that hold one of the words."""
    folders = (ROOT / "tests" / name for name in ("integration", "e2e"))
    files = (file for folder in folders for file in sorted(folder.rglob("test_*.py")))
    return [
        file.relative_to(ROOT).as_posix()
        for file in files
        if any(word in file.read_text() for word in words)
    ]


@pytest.mark.parametrize("beginning", [b for known in GROUPS.values() for b in known])
def test_what_is_listed_is_there(beginning: str) -> None:
    assert (ROOT / beginning).exists()


def test_who_uses_an_engine_is_in_its_group() -> None:
    files = files_with("engine_python:", "live_engine:")
    assert len(files) > 8
    assert {group_of(f"{file}::test") for file in files} == {"engines"}


def test_who_starts_a_whole_stack_is_in_its_group() -> None:
    files = files_with("stage_with(", "run_trial(", "run_demo(")
    assert len(files) > 4
    assert {group_of(f"{file}::test") for file in files} == {"stacks"}


def test_a_file_is_not_split() -> None:
    assert group_of("tests/unit/a/test_b.py::test_c[x::y]") == "tests/unit/a/test_b.py"
