"""The help of every command teaches by an example that the command takes."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from infra.cli.main import make_app


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for part, inner in getattr(command, "commands", {}).items():
        path = f"{name} {part}".strip()
        if hasattr(inner, "commands"):
            yield from leaves(inner, path)
        else:
            yield path, inner


COMMANDS = dict(leaves(get_command(make_app())))


def examples_of(command: Any) -> list[str]:
    lines = (line.strip() for line in (command.help or "").splitlines())
    return [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_takes(name: str) -> None:
    examples = examples_of(COMMANDS[name])
    assert examples
    for example in examples:
        words = shlex.split(example)
        path = ["headrace", *name.split()]
        assert words[: len(path)] == path
        COMMANDS[name].make_context(name, words[len(path) :]).close()


def test_an_example_with_an_option_that_is_gone_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        COMMANDS["status"].make_context("status", ["--gone"])
