"""headrace query, show, export and migrate against a real store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from schemas.settings import Settings
from streams.sink.store import ClickHouseStore
from tests.integration.sink.conftest import write
from tests.sink_events import PLACEHOLDER, day

pytestmark = pytest.mark.integration


class Cli:
    """Runs the command line against one database."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        where = settings.clickhouse
        self.directory = directory
        self.environment = {
            **os.environ,
            "COLUMNS": "80",
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_CLICKHOUSE__HOST": where.host,
            "HEADRACE_CLICKHOUSE__PORT": str(where.port),
            "HEADRACE_CLICKHOUSE__USER": where.user,
            "HEADRACE_CLICKHOUSE__PASSWORD_FILE": str(where.password_file),
            "HEADRACE_CLICKHOUSE__DATABASE": where.database,
        }

    def run(
        self, *arguments: str, code: int = 0, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-m", "infra.cli.main", *arguments],
            capture_output=True, text=True, timeout=120, check=False, cwd=Path.cwd(),
            env=self.environment | changes,
        )  # fmt: skip
        assert result.returncode == code, result.stderr[-3000:]
        assert "Traceback" not in result.stderr
        return result


@pytest.fixture(scope="module")
def cli(
    store: ClickHouseStore, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Cli:
    assert write(store, day("reader")) == []
    return Cli(settings, tmp_path_factory.mktemp("cli"))


def test_query_prints_a_table(cli: Cli) -> None:
    out = cli.run("query", "SELECT agent_id, count() AS n FROM trajectories GROUP BY 1 ORDER BY 1")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.stdout.splitlines()]
    assert [line for line in lines if line] == [["booking", "3"], ["support", "2"]]


def test_query_prints_json_and_csv(cli: Cli) -> None:
    sql = "SELECT step_id, step_index, gaps FROM steps WHERE trajectory_id = 't-0' ORDER BY step_id"
    rows = json.loads(cli.run("query", sql, "--json").stdout)
    assert len(rows) == 5
    assert rows[0]["gaps"] == [{"field": "token_ids", "reason": "withheld_after_redaction"}]
    text = cli.run("query", sql + ";", "--csv").stdout.splitlines()
    assert text[0] == '"step_id","step_index","gaps"'
    assert len(text) == 6
    assert json.loads(cli.run("query", "SELECT 1 WHERE false", "--json").stdout) == []


def test_query_streams_a_large_result(cli: Cli) -> None:
    out = cli.run("query", "SELECT number AS n FROM numbers(300000)", "--json").stdout
    rows = json.loads(out)
    assert (len(rows), rows[-1]["n"]) == (300_000, 299_999)


def test_a_wrong_query_is_answered_by_clickhouse(cli: Cli) -> None:
    wrong = cli.run("query", "SELECT nope FROM steps", code=2)
    assert "Unknown expression identifier `nope`" in wrong.stderr
    assert "version" not in wrong.stderr


@pytest.mark.parametrize(
    "sql", ["DROP TABLE steps_log", "INSERT INTO steps_log (step_id) VALUES ('x')"]
)
def test_query_changes_nothing(cli: Cli, store: ClickHouseStore, sql: str) -> None:
    before = store.rows("SELECT count() FROM steps_log")
    assert "readonly" in cli.run("query", sql, code=2).stderr
    assert store.rows("SELECT count() FROM steps_log") == before


def test_a_store_that_is_away_is_a_sentence(cli: Cli) -> None:
    away = cli.run("query", "SELECT 1", code=1, HEADRACE_CLICKHOUSE__PORT="1")
    assert "headrace up" in away.stderr


def test_show_fits_eighty_columns_and_tells_everything(cli: Cli) -> None:
    text = cli.run("show", "t-0", "--tenant", "reader").stdout
    assert max(map(len, text.splitlines())) <= 80
    expected = [
        "closed 2026-03-14 12:30:00 by event", "reward", "1 (final, latest_final/1)",
        "EMAIL_ADDRESS 2", "policy versions  3", f"Write to {PLACEHOLDER}, please.",
        f'→ send {{"to": "{PLACEHOLDER}"}}', "gap token_ids: withheld_after_redaction",
        "attempt of ", "resolved = 1  final, the trajectory", "step 3 · complete · small-1",
    ]  # fmt: skip
    assert [piece for piece in expected if piece not in text] == []


def test_show_prints_json(cli: Cli) -> None:
    found = json.loads(cli.run("show", "t-1", "--json").stdout)
    assert found["trajectory"]["reward"] == 0.0
    assert [step["step_index"] for step in found["steps"]] == [0, 1, 2, 3]
    assert {reward["name"] for reward in found["rewards"]} == {"resolved", "polite"}


def test_show_of_nothing_says_how_to_find_something(cli: Cli) -> None:
    assert "ORDER BY started_at DESC" in cli.run("show", "nope", code=2).stderr


def test_show_asks_for_the_tenant_where_two_have_the_id(cli: Cli, store: ClickHouseStore) -> None:
    write(store, day("other"))
    assert "give --tenant" in cli.run("show", "t-0", code=2).stderr
    assert json.loads(cli.run("show", "t-0", "--tenant", "other", "--json").stdout)["steps"]


def test_export_writes_conversations(cli: Cli, tmp_path: Path) -> None:
    where = ("--where", "tenant_id = 'reader'")
    lines = cli.run("export", *where).stdout.splitlines()
    exported = {row["trajectory_id"]: row for row in map(json.loads, lines)}
    assert len(exported) == 5
    roles = [message["role"] for message in exported["t-0"]["messages"]]
    assert roles == ["system", "user", *["assistant", "user"] * 3, "assistant"]
    assert exported["t-0"]["rewards"][0]["value"] == 1.0
    out = tmp_path / "t.parquet"
    cli.run("export", "trajectories", "--format", "parquet", "--out", str(out), *where)
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 5
    messages = {row["trajectory_id"]: row["messages"] for row in table.to_pylist()}
    assert messages["t-0"] == exported["t-0"]["messages"]


def test_export_of_nothing_is_a_file_that_opens(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "none.parquet"
    cli.run("export", "steps", "--format", "parquet", "--out", str(out), "--where", "false")
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 0
    assert "step_id" in table.column_names


def test_export_sums_up_for_other_programs_and_keeps_data_and_summary_apart(
    cli: Cli, tmp_path: Path
) -> None:
    for file_format in ("jsonl", "parquet"):
        out = tmp_path / f"t.{file_format}"
        where = ("--format", file_format, "--out", str(out), "--where", "tenant_id = 'reader'")
        assert json.loads(cli.run("export", "trajectories", "--json", *where).stdout) == {
            "exported": "trajectories", "format": file_format, "rows": 5, "out": str(out),
        }  # fmt: skip
        assert out.stat().st_size > 0
    assert "--out" in cli.run("export", "--json", code=2).stderr


def test_export_writes_files_for_training(cli: Cli, tmp_path: Path) -> None:
    where = ("--where", "tenant_id = 'reader'", "--json")
    rows = {}
    for name in ("openai-jsonl", "trl", "verl"):
        out = tmp_path / name
        told = json.loads(cli.run("export", "--format", name, "--out", str(out), *where).stdout)
        rows[name] = told["rows"]
    assert len({*rows.values()}) == 1
    assert rows["trl"] >= 4
    lines = (tmp_path / "openai-jsonl").read_text().splitlines()
    table = pyarrow.parquet.read_table(tmp_path / "trl")
    assert len(lines) == table.num_rows == rows["trl"]
    [row] = [row for row in table.to_pylist() if row["trajectory_id"] == "t-0"]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert row["completion"][0]["role"] == row["completion"][-1]["role"] == "assistant"
    assert (row["label"], row["reward"]) == (True, 1.0)
    assert "trajectories" in cli.run("export", "steps", "--format", "trl", code=2).stderr
    assert "--out" in cli.run("export", "--format", "verl", code=2).stderr


def test_export_since_leaves_out_what_is_older(cli: Cli) -> None:
    where = ("--where", "tenant_id = 'reader'")
    assert cli.run("export", "steps", "--since", "2026-03-14T12:03:00", *where).stdout.count(
        "\n"
    ) == 8  # fmt: skip
    assert "90m" in cli.run("export", "--since", "yesterday", code=2).stderr


def test_export_leaves_no_half_file(cli: Cli, tmp_path: Path) -> None:
    cli.run("export", "steps", "--out", str(tmp_path / "x.jsonl"), "--where", "nope = 1", code=2)
    assert list(tmp_path.iterdir()) == []


def test_migrate_is_idempotent_and_prints_its_ddl(cli: Cli, settings: Settings) -> None:
    assert "up to date" in cli.run("migrate").stdout
    made = json.loads(cli.run("migrate", "--json").stdout)
    assert made == {"applied": [], "database": settings.clickhouse.database}
    ddl = cli.run("migrate", "--print").stdout
    assert "CREATE TABLE IF NOT EXISTS steps_log" in ddl
    shown = json.loads(cli.run("migrate", "--print", "--json").stdout)
    assert shown == {"ddl": ddl, "database": settings.clickhouse.database}
