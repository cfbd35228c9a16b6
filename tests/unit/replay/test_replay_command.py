"""Options that would be ignored in silence are refused, before anything is looked at."""

import pytest
from typer.testing import CliRunner

from infra.cli.main import make_app
from schemas.errors import ConfigError


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tenant", "acme"],
        ["--trajectory", "t-1"],
        ["--trajectory", "t-1", "--tenant", "acme", "--dry-run"],
        ["--trajectory", "t-1", "--tenant", "acme", "--keep-tables"],
        ["sink", "--trajectory", "t-1", "--tenant", "acme"],
        ["--trajectory", "t-1", "--tenant", "acme", "--from-time", "2026-01-01"],
    ],
)
def test_one_trajectory_takes_no_other_option(arguments: list[str]) -> None:
    answer = CliRunner().invoke(make_app(), ["replay", *arguments])
    assert isinstance(answer.exception, ConfigError)
    assert "--trajectory" in str(answer.exception)
