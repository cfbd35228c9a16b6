"""A database of its own for each module, made by the real migrations."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas.atdp.types import Coordinates
from schemas.ids import uuid7
from schemas.settings import ClickHouseSettings, Settings
from schemas.telemetry import Metrics
from streams.sink.migrate import open_migrated
from streams.sink.rows import Row, to_row
from streams.sink.store import ClickHouseStore
from streams.sink.writer import Writer
from tests.services import ClickHouseEndpoint


@pytest.fixture(scope="module")
def settings(clickhouse: ClickHouseEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    directory = tmp_path_factory.mktemp("sink")
    return store_settings(clickhouse, directory)


def store_settings(endpoint: ClickHouseEndpoint, directory: Path) -> Settings:
    password = directory / "clickhouse-password"
    password.write_text(endpoint.password)
    return Settings(
        data_dir=directory,
        clickhouse=ClickHouseSettings(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password_file=password,
            database=f"sink_{uuid7().replace('-', '')}",
        ),
    )


@pytest.fixture(scope="module")
def store(settings: Settings) -> Iterator[ClickHouseStore]:
    opened, _ = open_migrated(settings, wait_seconds=5, pause=time.sleep)
    yield opened
    opened.close()


def rows_of(events: Sequence[Any], first_offset: int = 0) -> list[Row]:
    return [
        to_row(event, Coordinates(topic="t", partition=0, offset=first_offset + i), now())
        for i, event in enumerate(events)
    ]


def write(store: ClickHouseStore, events: Sequence[Any], first_offset: int = 0) -> list[Row]:
    """Insert events as one batch; the refused rows."""
    return Writer(store, Metrics()).write(rows_of(events, first_offset))


def now() -> datetime:
    return datetime.now(UTC)
