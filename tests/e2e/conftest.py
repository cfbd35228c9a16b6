"""A whole stack for a module of tests: real Kafka, Faust, ClickHouse, gateway, recorded model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.demo.phases import Silent
from infra.demo.stage import Stage, staged
from infra.local.stack import Ports
from tests.ports import free_ports, stack_ports


@contextmanager
def stage_with(
    folder: Path,
    upstream_arguments: list[str],
    settings: Mapping[str, str],
    model: str = "infra.demo.upstream",
    ports: Ports | None = None,
) -> Iterator[Stage]:
    """A stage whose processes run with these settings, given as environment variables."""
    with pytest.MonkeyPatch.context() as patch:
        # the stage names its configuration in the environment; both are undone afterwards
        patch.setenv("HEADRACE_CONFIG", "")
        patch.delenv("HEADRACE_CONFIG")
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setattr("infra.demo.stage.free_ports", free_ports)  # the recorded model's
        with staged(
            folder, upstream_arguments, keep=False, progress=Silent(), model=model,
            ports=ports or stack_ports(),
        ) as stage:  # fmt: skip
            yield stage
