"""What the front on chDB promises beyond ClickHouse's own interface: it starts its own server."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, Error

from tests import services
from tests.ports import free_ports

pytestmark = pytest.mark.integration

NUM_BATCHES = 200
ROWS_IN_BATCH = 500


def _connect(directory: Path, port: int, user: str = "headrace") -> Client:
    name = "password" if user == "headrace" else "password-ro"
    password = (directory / "clickhouse" / name).read_text().strip()
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=port, username=user, password=password
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    directory = tmp_path_factory.mktemp("front")
    with services.running_clickhouse(directory) as endpoint:
        client = _connect(directory, endpoint.port)
        client.command("CREATE DATABASE d")
        client.command("CREATE TABLE d.t (a UInt64) ENGINE = MergeTree ORDER BY a")
        client.command("INSERT INTO d.t VALUES (1), (2)")
        yield directory, endpoint.port


def test_the_second_user_reads(own: tuple[Path, int]) -> None:
    client = _connect(*own, "headrace_ro")
    assert client.query("SELECT sum(a) FROM d.t").first_row == (3,)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO d.t VALUES (9)",
        "DROP TABLE d.t",
        "TRUNCATE TABLE d.t",
        "CREATE TABLE d.u (a Int8) ENGINE = Memory",
        "SET readonly = 0",
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
    ],
)
def test_the_second_user_does_nothing_else(own: tuple[Path, int], statement: str) -> None:
    with pytest.raises(DatabaseError, match="READONLY"):
        _connect(*own, "headrace_ro").command(statement)
    assert _connect(*own).query("SELECT sum(a) FROM d.t").first_row == (3,)


def test_the_second_user_cannot_talk_itself_free(own: tuple[Path, int]) -> None:
    client = _connect(*own, "headrace_ro")
    with pytest.raises(Error):
        client.command("INSERT INTO d.t VALUES (9)", settings={"readonly": 0})
    assert _connect(*own).query("SELECT sum(a) FROM d.t").first_row == (3,)


@pytest.mark.parametrize(
    "statement", ["SELECT 1 INTO OUTFILE '/tmp/headrace-out'", "SELECT 1; SELECT 2"]
)
def test_files_and_second_statements_are_refused(own: tuple[Path, int], statement: str) -> None:
    with pytest.raises(DatabaseError, match="not allowed"):
        _connect(*own).command(statement)


def _start(directory: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "infra.local.clickhouse", "--port", str(port)]
    command += ["--data-dir", str(directory / "clickhouse")]
    with (directory / "log").open("ab") as log:
        return services.start_tethered(command, log=log)


def test_a_second_owner_of_the_directory_is_refused(own: tuple[Path, int]) -> None:
    directory, _ = own
    process = _start(directory, free_ports(1)[0])
    assert process.wait(30) == 2
    assert "serves" in (directory / "log").read_text()


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    process = _start(tmp_path, port)
    try:
        services.wait_for(
            lambda: services.answers(f"http://127.0.0.1:{port}/ping"), process, tmp_path / "log"
        )
        acknowledged = _insert_until_killed(_connect(tmp_path, port), process)
        assert process.wait(10) == -signal.SIGKILL
        process = _start(tmp_path, port)
        services.wait_for(
            lambda: services.answers(f"http://127.0.0.1:{port}/ping"), process, tmp_path / "log"
        )
        client = _connect(tmp_path, port)
        found = {row[0] for row in client.query("SELECT DISTINCT batch FROM d.t").result_rows}
        sizes = client.query("SELECT batch, count() FROM d.t GROUP BY batch").result_rows
    finally:
        services.stop_process(process)
    assert acknowledged
    assert acknowledged <= found
    # A batch that was not acknowledged may be there as well, but only whole.
    assert {count for _, count in sizes} == {ROWS_IN_BATCH}


def _insert_until_killed(client: Client, process: subprocess.Popen[bytes]) -> set[int]:
    """Insert batches and kill the server half way; returns those it has acknowledged."""
    client.command("CREATE DATABASE d")
    client.command(
        "CREATE TABLE d.t (batch UInt64, n UInt64) ENGINE = MergeTree ORDER BY (batch, n)"
    )
    acknowledged: set[int] = set()
    for batch in range(NUM_BATCHES):
        if batch == NUM_BATCHES // 2:
            process.kill()
        rows = [[batch, n] for n in range(ROWS_IN_BATCH)]
        try:
            summary = client.insert("d.t", rows, column_names=["batch", "n"])
        except Error:
            return acknowledged
        if summary.written_rows == ROWS_IN_BATCH:
            acknowledged.add(batch)
    return acknowledged
