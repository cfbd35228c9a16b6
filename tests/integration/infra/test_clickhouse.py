"""The ClickHouse front, used by the real client library and by plain HTTP.

The suite runs against any ClickHouse that the fixture gives; what only the front can do
(its second user, its owner lock, its death) starts one of its own.
"""

import asyncio
import json
import math
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

from tests.services import ClickHouseEndpoint

pytestmark = pytest.mark.integration

COLUMNS = ["id", "text", "at", "value", "tags"]
#: The client returns times of UTC without their zone.
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
NOW_AS_RETURNED = NOW.replace(tzinfo=None)


def connect(endpoint: ClickHouseEndpoint, **options: Any) -> Client:
    return clickhouse_connect.get_client(
        host=endpoint.host,
        port=endpoint.port,
        username=endpoint.user,
        password=endpoint.password,
        **options,
    )


@pytest.fixture
def client(clickhouse: ClickHouseEndpoint) -> Iterator[Client]:
    client = connect(clickhouse)
    yield client
    client.close()


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    database = f"test_{uuid.uuid4().hex}"
    client.command(f"CREATE DATABASE {database}")
    client.command(
        f"CREATE TABLE {database}.rows (id UInt64, text String, at DateTime64(6, 'UTC'), "
        "value Nullable(Float64), tags Array(String)) ENGINE = MergeTree ORDER BY id"
    )
    yield f"{database}.rows"
    client.command(f"DROP DATABASE {database}")


def _rows(number: int) -> list[list[object]]:
    return [
        [
            n,
            f"text {n} äöü \n\t'",
            NOW + timedelta(microseconds=n),
            None if n % 3 else n / 7,
            ["a", str(n)],
        ]
        for n in range(number)
    ]


def _as_returned(row: list[Any]) -> tuple[Any, ...]:
    return tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "gzip", "br"])
def test_every_row_arrives_in_every_compression(
    clickhouse: ClickHouseEndpoint, table: str, compression: str | None
) -> None:
    client = connect(clickhouse, compress=compression or False)
    rows = _rows(50_000)
    summary = client.insert(table, rows, column_names=COLUMNS)
    assert summary.written_rows == 50_000
    found = client.query(f"SELECT count(), uniqExact(id), sum(id), sum(length(text)) FROM {table}")
    characters = sum(len(str(row[1]).encode()) for row in rows)
    assert found.result_rows == [(50_000, 50_000, sum(range(50_000)), characters)]
    assert client.query(
        f"SELECT * FROM {table} WHERE id IN (0, 7, 49999) ORDER BY id"
    ).result_rows == [_as_returned(rows[n]) for n in (0, 7, 49_999)]
    client.close()


def test_parameters_keep_every_character(client: Client) -> None:
    values = {
        "text": "a'b\"c\\d\n\t\r;-- ü \U0001f600",
        "numbers": [1, -2],
        "at": NOW,
        "none": None,
    }
    row = client.query(
        "SELECT {text:String}, {numbers:Array(Int64)}, {at:DateTime64(6, 'UTC')}, "
        "{none:Nullable(String)}",
        parameters=values,
    ).first_row
    assert row == (values["text"], [1, -2], NOW_AS_RETURNED, None)


def test_long_parameters_travel_as_a_form(client: Client) -> None:
    text = "ä'" * 100_000
    assert client.query("SELECT {text:String}", parameters={"text": text}).first_row == (text,)


def test_settings_hold_for_one_query(client: Client) -> None:
    get = "SELECT getSetting('max_block_size')"
    assert client.query(get, settings={"max_block_size": 1234}).first_row == (1234,)
    assert client.query(get).first_row != (1234,)
    client.command("SET max_block_size = 1234")
    assert client.query(get, settings={"max_block_size": 99}).first_row == (99,)
    assert client.query(get).first_row == (1234,)


def test_a_session_keeps_its_temporary_table(
    client: Client, clickhouse: ClickHouseEndpoint
) -> None:
    client.command("CREATE TEMPORARY TABLE mine (a Int8)")
    client.command("INSERT INTO mine VALUES (3)")
    assert client.query("SELECT a FROM mine").first_row == (3,)
    with pytest.raises(DatabaseError, match="UNKNOWN_TABLE"):
        connect(clickhouse).query("SELECT a FROM mine")


def test_a_large_result_is_streamed(client: Client) -> None:
    num_rows = 0
    query = "SELECT number, toString(number) FROM numbers(2000000)"
    with client.query_row_block_stream(query) as blocks:
        for block in blocks:
            num_rows += len(block)
    assert num_rows == 2_000_000


def test_a_reader_that_leaves_does_not_harm_the_next(client: Client, table: str) -> None:
    for _ in range(3):
        with client.query_row_block_stream("SELECT number FROM numbers(50000000)") as blocks:
            next(iter(blocks))
    assert client.query(f"SELECT count() FROM {table}").first_row == (0,)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELEC 1", "SYNTAX_ERROR"),
        ("SELECT absent", "UNKNOWN_IDENTIFIER"),
        ("SELECT * FROM absent", "UNKNOWN_TABLE"),
        ("SELECT throwIf(number = 3) FROM numbers(10)", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
    ],
)
def test_the_client_shows_the_engine_s_sentence(client: Client, query: str, name: str) -> None:
    with pytest.raises(DatabaseError, match=name):
        client.query(query)


def test_an_error_in_the_middle_of_a_result_is_an_error(client: Client) -> None:
    result = client.query("SELECT throwIf(number = 3000000) FROM numbers(4000000)")
    with pytest.raises(StreamFailureError, match="throwIf"):
        _ = result.result_rows  # read from the wire only now


def test_a_row_that_cannot_be_read_inserts_nothing(client: Client, table: str) -> None:
    with pytest.raises(DatabaseError, match="CANNOT_PARSE"):
        client.raw_insert(table, ["id", "text"], b"1,one\nx,two\n", fmt="CSV")
    assert client.query(f"SELECT count() FROM {table}").first_row == (0,)


def test_inserts_by_statement_and_by_select(client: Client, table: str) -> None:
    client.command(f"INSERT INTO {table} (id, text) VALUES (1, 'a'), (2, 'b')")
    client.command(
        f"INSERT INTO {table} (id, text) VALUES ({{id:UInt64}}, 'c')", parameters={"id": 3}
    )
    client.command(f"INSERT INTO {table} (id) SELECT number FROM numbers(10, 5)")
    assert client.query(f"SELECT count(), sum(id) FROM {table}").first_row == (8, 6 + 60)


def test_final_shows_the_highest_version_only(client: Client, table: str) -> None:
    name = table.replace(".rows", ".versions")
    client.command(
        f"CREATE TABLE {name} (id UInt64, v UInt64) ENGINE = ReplacingMergeTree(v) ORDER BY id"
    )
    for version in (2, 3, 1):
        client.insert(name, [[1, version]], column_names=["id", "v"])
    assert client.query(f"SELECT v FROM {name} FINAL").result_rows == [(3,)]


def test_eight_clients_at_once(clickhouse: ClickHouseEndpoint, table: str) -> None:
    start = threading.Barrier(8)

    def work(worker: int) -> int:
        client = connect(clickhouse)
        start.wait(30)
        for batch in range(5):
            first = (worker * 5 + batch) * 1000
            rows = [[first + n, f"w{worker}"] for n in range(1000)]
            assert client.insert(table, rows, column_names=["id", "text"]).written_rows == 1000
            own = client.query(f"SELECT count() FROM {table} WHERE text = 'w{worker}'").first_row
            assert own == ((batch + 1) * 1000,)
        client.close()
        return 5000

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 40_000
    client = connect(clickhouse)
    assert client.query(f"SELECT count(), uniqExact(id) FROM {table}").first_row == (40_000, 40_000)


async def test_a_long_query_holds_nobody_up(clickhouse: ClickHouseEndpoint) -> None:
    client = await clickhouse_connect.get_async_client(
        host=clickhouse.host, port=clickhouse.port, username=clickhouse.user,
        password=clickhouse.password, autogenerate_session_id=False,
    )  # fmt: skip
    slow = asyncio.create_task(client.query("SELECT sleep(2)"))
    fast = await client.query("SELECT 1")
    assert fast.first_row == (1,)
    assert not slow.done()
    assert (await slow).first_row == (0,)
    await client.close()


def get(
    endpoint: ClickHouseEndpoint, query: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, Any]:
    credentials = b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
    url = f"{endpoint.url}/?{urllib.parse.urlencode({'query': query})}"
    request = urllib.request.Request(  # noqa: S310  # our own URL
        url, headers={"Authorization": f"Basic {credentials}", **headers}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own URL
            return response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_curl_with_format(clickhouse: ClickHouseEndpoint) -> None:
    status, body, headers = get(clickhouse, "SELECT 1 AS one FORMAT JSON")
    assert status == 200
    assert json.loads(body)["data"] == [{"one": 1}]
    assert headers["Content-Type"].startswith("application/json")
    assert get(clickhouse, "SELECT 1, 'a'")[1] == b"1\ta\n"


def test_plain_http_gets_code_and_status(clickhouse: ClickHouseEndpoint) -> None:
    status, body, headers = get(clickhouse, "SELECT * FROM absent")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "60")
    assert b"UNKNOWN_TABLE" in body


def test_get_does_not_write(clickhouse: ClickHouseEndpoint, table: str) -> None:
    status, body, _ = get(clickhouse, f"TRUNCATE TABLE {table}")
    assert status == 500
    assert b"READONLY" in body


def test_an_answer_as_large_as_json_of_many_rows(clickhouse: ClickHouseEndpoint) -> None:
    _, body, _ = get(clickhouse, "SELECT number FROM numbers(200000) FORMAT JSON")
    assert json.loads(body)["rows"] == 200_000


@pytest.mark.parametrize("path", ["/ping", "/replicas_status", "/"])
def test_liveness_needs_no_password(clickhouse: ClickHouseEndpoint, path: str) -> None:
    with urllib.request.urlopen(f"{clickhouse.url}{path}", timeout=10) as response:  # noqa: S310
        assert response.read() == b"Ok.\n"


def test_a_wrong_password_is_refused(clickhouse: ClickHouseEndpoint) -> None:
    with pytest.raises(DatabaseError, match="AUTHENTICATION_FAILED"):
        clickhouse_connect.get_client(
            host=clickhouse.host, port=clickhouse.port, username=clickhouse.user, password="wrong"
        )


def test_special_values_survive(client: Client) -> None:
    row = client.query(
        "SELECT inf, -inf, nan, toUInt128('340282366920938463463374607431768211455')"
    ).first_row
    assert row[:2] == (math.inf, -math.inf)
    assert math.isnan(row[2])
    assert row[3] == 2**128 - 1
