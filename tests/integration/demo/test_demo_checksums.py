"""Checksums over the real engine: any value of any row counts, the way it came about does not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import clickhouse_connect
import pytest

from infra.demo.checksums import CHECKED_TABLES, checksum, checksums
from infra.store import Reader
from schemas.tables import PROCESSING_COLUMNS
from tests.services import ClickHouseEndpoint

pytestmark = pytest.mark.integration


@pytest.fixture
def store(
    clickhouse: ClickHouseEndpoint,
) -> Iterator[tuple[Reader, clickhouse_connect.driver.Client]]:
    name = f"demo_{uuid.uuid4().hex[:12]}"
    access = {
        "host": clickhouse.host,
        "port": clickhouse.port,
        "username": clickhouse.user,
        "password": clickhouse.password,
    }
    with clickhouse_connect.get_client(**access) as admin:
        admin.command(f"CREATE DATABASE {name}")
        with clickhouse_connect.get_client(**access, database=name) as client:
            for table in CHECKED_TABLES:
                client.command(
                    f"CREATE TABLE {table} (id String, value Nullable(Float64), "
                    "texts Array(String), spans Array(Tuple(kind String, start UInt32)), "
                    "kafka_offset Int64, replay_epoch Int64, recorded_at DateTime64(6, 'UTC')) "
                    "ENGINE = MergeTree ORDER BY id"
                )
            yield Reader(client, "test"), client
        admin.command(f"DROP DATABASE {name}")


def fill(
    client: clickhouse_connect.driver.Client, table: str, changed: str = "", offset: int = 0
) -> None:
    client.command(f"TRUNCATE TABLE {table}")
    client.command(
        f"INSERT INTO {table} SELECT toString(number), if(number % 3 = 0, NULL, number), "
        f"['text', toString(number)], [('EMAIL_ADDRESS', toUInt32(number))], number + {offset}, "
        f"{offset}, now64(6) FROM numbers(50)"
    )
    if changed:
        client.command(
            f"INSERT INTO {table} SELECT * REPLACE ({changed}) FROM {table} WHERE id = '7'"
        )
        client.command(
            f"DELETE FROM {table} WHERE id = '7' AND NOT ({changed.replace(' AS ', ' = ')})"
        )


@pytest.mark.parametrize("table", CHECKED_TABLES)
@pytest.mark.parametrize(
    "changed",
    ["7.5 AS value", "['text', '8'] AS texts", "[('PERSON', toUInt32(7))] AS spans"],
)
def test_one_changed_row_changes_the_checksum(store, table: str, changed: str) -> None:  # type: ignore[no-untyped-def]
    reader, client = store
    fill(client, table)
    before = checksum(reader, table)
    fill(client, table, changed)
    after = checksum(reader, table)
    assert before.num_rows == after.num_rows == 50
    assert before.total != after.total


def test_another_processing_of_the_same_rows_has_the_same_checksum(store) -> None:  # type: ignore[no-untyped-def]
    reader, client = store
    for table in CHECKED_TABLES:
        fill(client, table)
    before = checksums(reader)
    for table in CHECKED_TABLES:
        fill(client, table, offset=1000)
    assert checksums(reader) == before
    assert {"replay_epoch", "recorded_at", "kafka_offset"} <= set(PROCESSING_COLUMNS)


def test_a_doubled_or_missing_row_changes_it(store) -> None:  # type: ignore[no-untyped-def]
    reader, client = store
    fill(client, "steps")
    before = checksum(reader, "steps")
    client.command("INSERT INTO steps SELECT * FROM steps WHERE id IN ('1', '1', '2')")
    doubled = checksum(reader, "steps")
    client.command("DELETE FROM steps WHERE id IN ('1', '2')")
    missing = checksum(reader, "steps")
    assert len({before.total, doubled.total, missing.total}) == 3
