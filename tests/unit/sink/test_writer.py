"""The writer: one insert a table, refused rows found by halving, all bounded."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, DataError, OperationalError

from schemas import tables
from schemas.atdp.types import Coordinates
from schemas.clock import ManualClock
from schemas.errors import ConfigError, PermanentError, Reason, TransientError
from schemas.telemetry import Metrics
from streams.sink.migrate import migrate, pending, script, shipped
from streams.sink.rows import Row, to_row
from streams.sink.store import translate
from streams.sink.writer import MAX_REFUSED, Writer, token
from tests.sink_events import NOON, reward, step

AT = Coordinates(topic="trajectory.steps.v1", partition=0, offset=0)


class ListStore:
    """Tables as lists. Refuses an insert that holds a row whose `step_id` is in `poison`."""

    def __init__(self, poison: Sequence[str] = (), columns: Sequence[str] | None = None) -> None:
        self.poison = set(poison)
        self.columns = columns
        self.inserts: list[tuple[str, list[str], str]] = []
        self.attempts = 0
        self.statements: list[str] = []
        self.recorded: list[tuple[int, str]] = []

    def command(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,  # noqa: ARG002 - the port's signature
    ) -> None:
        self.statements.append(sql)

    def rows(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,  # noqa: ARG002 - the port's signature
    ) -> Sequence[Sequence[Any]]:
        if "schema_migrations" in sql:
            return list(self.recorded)
        return [(name, "String") for name in self.columns or to_row(step("a"), AT, NOON).cells]

    def insert(
        self, table: str, types: Mapping[str, str], rows: Sequence[Sequence[Any]], token: str
    ) -> None:
        if table == "schema_migrations":
            self.recorded += [(row[0], row[2]) for row in rows]
            return
        self.attempts += 1
        ids = [row[list(types).index("step_id")] for row in rows]
        if self.poison & set(ids):
            raise PermanentError(Reason.STORE_REFUSED)
        self.inserts.append((table, ids, token))

    def close(self) -> None:
        """Nothing to release."""


def rows(number: int) -> list[Row]:
    return [to_row(step("a", "t", index), AT, NOON) for index in range(number)]


def test_one_insert_holds_the_whole_batch_of_a_table() -> None:
    store, metrics = ListStore(), Metrics()
    assert Writer(store, metrics).write(rows(50)) == []
    assert [(table, len(ids)) for table, ids, _ in store.inserts] == [("steps_log", 50)]
    written = metrics.registry.get_sample_value("headrace_sink_rows_total", {"table": "steps"})
    assert written == 50


def test_exactly_the_refused_rows_come_back_and_all_others_are_stored() -> None:
    store = ListStore(poison=["t-s3", "t-s40"])
    refused = Writer(store, Metrics()).write(rows(64))
    assert [row.id for row in refused] == ["t-s3", "t-s40"]
    stored = [name for _, ids, _ in store.inserts for name in ids]
    assert sorted(stored) == sorted({f"t-s{i}" for i in range(64)} - {"t-s3", "t-s40"})
    assert store.attempts < 4 * 7  # two paths down a tree of six levels


def test_a_store_that_refuses_row_after_row_is_a_matter_of_its_schema() -> None:
    store = ListStore(poison=[f"t-s{i}" for i in range(500)])
    with pytest.raises(ConfigError, match="migrate --print"):
        Writer(store, Metrics()).write(rows(500))
    assert store.attempts < 4 * MAX_REFUSED


def test_a_missing_column_is_named() -> None:
    have = [name for name in to_row(step("a"), AT, NOON).cells if name != "raw_digest"]
    with pytest.raises(ConfigError, match=r"steps_log lacks raw_digest.*headrace migrate"):
        Writer(ListStore(columns=have), Metrics()).write(rows(1))


def test_a_token_repeats_for_the_same_rows_of_the_same_processing_and_for_no_others() -> None:
    made = rows(3)
    replayed = [to_row(step("a", "t", i, replay_epoch=1), AT, NOON) for i in range(3)]
    changed = [*made[:2], to_row(step("a", "t", 2, task_key="other"), AT, NOON)]
    elsewhere = Coordinates(topic=AT.topic, partition=0, offset=9)
    moved = [*made[:2], to_row(step("a", "t", 2), elsewhere, NOON)]
    assert token(made, 1) == token(rows(3), 1)
    others = [token(found, 1) for found in (replayed, changed, moved, made[:2])]
    assert len({token(made, 1), token(made, 2), *others}) == 6


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DataError("cannot write"), PermanentError),
        (DatabaseError("Code: 469.", code=469, name="VIOLATED_CONSTRAINT"), PermanentError),
        (DatabaseError("Code: 53.", code=53, name="TYPE_MISMATCH"), PermanentError),
        (DatabaseError("Code: 60.", code=60, name="UNKNOWN_TABLE"), ConfigError),
        (DatabaseError("Code: 516.", code=516, name="AUTHENTICATION_FAILED"), ConfigError),
        (DatabaseError("Code: 252.", code=252, name="TOO_MANY_PARTS"), TransientError),
        (DatabaseError("Code: 241.", code=241, name="MEMORY_LIMIT_EXCEEDED"), TransientError),
        (DatabaseError("Code: 77777.", code=77777), TransientError),
        (OperationalError("connection refused"), TransientError),
    ],
)
def test_each_error_of_the_store_has_one_outcome(
    error: Exception, outcome: type[Exception]
) -> None:
    assert type(translate(error)) is outcome


def test_no_translated_error_quotes_a_row() -> None:
    error = DatabaseError("Code: 241. value 'ada@example.com' is bad", code=241, name="MEMORY")
    assert "ada" not in str(translate(error))


def test_migrations_are_numbered_without_holes() -> None:
    assert [m.number for m in shipped()] == list(range(1, len(shipped()) + 1))


def test_every_statement_may_run_twice() -> None:
    twice = ("CREATE TABLE IF NOT EXISTS", "CREATE VIEW IF NOT EXISTS", "CREATE OR REPLACE VIEW")
    for migration in shipped():
        for statement in migration.statements:
            altered = statement.startswith("ALTER TABLE") and "IF " in statement
            assert statement.startswith(twice) or altered, statement[:80]


def test_no_date_in_a_sorting_key_and_no_partition() -> None:
    for migration in shipped():
        for statement in migration.statements:
            assert "PARTITION BY" not in statement
            for line in statement.splitlines():
                if line.startswith("ORDER BY"):
                    assert "_at" not in line


def test_migrating_twice_applies_once() -> None:
    store, clock = ListStore(), ManualClock(NOON)
    assert migrate(store, shipped(), clock) == list(shipped())
    num_statements = len(store.statements)
    assert migrate(store, shipped(), clock) == []
    assert len(store.statements) == num_statements + 1  # only the table of migrations is ensured


def test_a_changed_migration_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="0001_tables was changed"):
        pending(shipped(), [(1, "another checksum")])


def test_a_store_of_a_newer_headrace_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="newer headrace"):
        pending(shipped(), [(9999, "x")])


def test_the_script_holds_every_statement() -> None:
    text = script(shipped(), "headrace")
    assert text.startswith("CREATE DATABASE IF NOT EXISTS headrace;")
    for table in tables.TABLES:
        assert f"CREATE TABLE IF NOT EXISTS {table.log}" in text


def test_rewards_and_steps_of_one_batch_go_to_their_tables() -> None:
    columns = {**to_row(step("a"), AT, NOON).cells, **to_row(reward("a"), AT, NOON).cells}
    store = ListStore(columns=list(columns))
    Writer(store, Metrics()).write([*rows(2), to_row(reward("a", step_id="x"), AT, NOON)])
    assert [(table, len(ids)) for table, ids, _ in store.inserts] == [
        ("steps_log", 2), ("rewards_log", 1),
    ]  # fmt: skip
