"""One stack for all tests of replays; each leaves the tables as they must be."""

import os
from collections.abc import Iterator

import pytest

from infra.local.launch import launch, shut_down
from schemas.settings import load_settings
from tests.integration.replay.stack import PARTS, SETTINGS, Stack
from tests.ports import stack_ports


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data_dir = tmp_path_factory.mktemp("replay") / "stack"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
            patch.delenv(name)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        launch(load_settings(data_dir=data_dir), stack_ports(), lambda _: None, PARTS)
        try:
            made = Stack(data_dir)
            made.send(range(20))
            made.settle(20)
            yield made
        finally:
            shut_down(data_dir)
