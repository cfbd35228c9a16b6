"""One running redaction processor for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.publishing.deployment import Deployment


@pytest.fixture(scope="module")
def deployment(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment with redaction running, its environment set for this module."""
    directory: Path = tmp_path_factory.mktemp("publishing")
    made = Deployment(kafka, directory)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        with made.redaction():
            yield made
