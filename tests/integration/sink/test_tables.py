"""Migrations, rows and views on a real ClickHouse engine."""

import itertools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas import tables
from schemas.atdp.training import Decision
from schemas.atdp.types import ActionResult, Governance, TokenSpan, Usage
from schemas.clock import SystemClock
from schemas.errors import ConfigError, TransientError
from schemas.ids import uuid7
from schemas.settings import Settings
from schemas.telemetry import Metrics
from streams.redaction import gaps
from streams.sink.migrate import migrate, open_migrated, recorded, shipped
from streams.sink.store import ClickHouseStore
from streams.sink.writer import Writer, token
from tests.integration.sink.conftest import rows_of, write
from tests.sink_events import NOON, day, decision, microbatch, reward, step, summary

pytestmark = pytest.mark.integration


def tenant() -> str:
    return f"tenant-{uuid7()}"


def one(store: ClickHouseStore, sql: str, **parameters: Any) -> Any:
    ((value,),) = store.rows(sql, parameters)
    return value


def count(store: ClickHouseStore, relation: str, owner: str) -> int:
    sql = f"SELECT count() FROM {relation} WHERE tenant_id = {{owner:String}}"
    return int(one(store, sql, owner=owner))


def test_starters_at_the_same_time_make_one_schema(settings: Settings) -> None:
    where = settings.clickhouse.model_copy(update={"database": f"race_{uuid7().replace('-', '')}"})
    fresh = settings.model_copy(update={"clickhouse": where})
    with ThreadPoolExecutor(4) as pool:
        opened = [
            future.result()[0]
            for future in [
                pool.submit(open_migrated, fresh, wait_seconds=5, pause=time.sleep)
                for _ in range(4)
            ]
        ]
    assert recorded(opened[0]) == [(m.number, m.checksum) for m in shipped()]
    names = {name for (name,) in opened[0].rows("SHOW TABLES")}
    assert names >= {t.name for t in tables.TABLES} | {t.log for t in tables.TABLES}
    assert names >= set(tables.VIEWS)
    assert migrate(opened[0], shipped(), SystemClock()) == []
    for store in opened:
        store.close()


def test_a_migration_that_changed_stops_the_start(store: ClickHouseStore) -> None:
    first, *rest = shipped()
    changed = replace(first, sql=first.sql + "\n-- afterthought\n")
    with pytest.raises(ConfigError, match="was changed after it was applied"):
        migrate(store, [changed, *rest], SystemClock())


def test_rows_have_the_columns_of_the_store(store: ClickHouseStore) -> None:
    for row in rows_of(day("columns")):
        declared = {name for name, *_ in store.rows(f"DESCRIBE TABLE {row.table.log}")}
        assert declared == set(row.cells)


def test_every_column_is_described_and_times_are_utc(store: ClickHouseStore) -> None:
    columns = store.rows(
        "SELECT table, name, type, comment FROM system.columns "
        "WHERE database = currentDatabase() AND endsWith(table, '_log')"
    )
    assert len(columns) > 150
    assert [row for row in columns if not row[3]] == []
    times = {kind.removeprefix("Nullable(").rstrip(")") for _, n, kind, _ in columns
             if n.endswith("_at")}  # fmt: skip
    assert times == {"DateTime64(6, 'UTC'"}


def test_a_whole_day_is_stored_as_it_was(store: ClickHouseStore) -> None:
    owner = tenant()
    assert write(store, day(owner)) == []
    ((redactions, gaps, logprobs, roles, output, raw_offset, started),) = store.rows(
        "SELECT redactions, gaps, logprobs, new_message_roles, output, raw_offset, "
        "toUnixTimestamp64Micro(started_at) FROM steps "
        "WHERE tenant_id = {owner:String} AND step_id = 't-0-s0'",
        {"owner": owner},
    )
    assert [(r["kind"], r["start"], r["end"]) for r in redactions] == [
        ("EMAIL_ADDRESS", 9, 26), ("EMAIL_ADDRESS", 0, 17),
    ]  # fmt: skip
    assert gaps == [{"field": "token_ids", "reason": "withheld_after_redaction"}]
    assert logprobs == [-0.5, -0.25, -0.125]
    assert roles == ["system", "user"]
    assert json.loads(output[0])["tool_calls"][0]["function"]["name"] == "send"
    assert (raw_offset, started) == (0, int(NOON.timestamp()) * 1_000_000 + 250_001)
    assert count(store, "trajectories", owner) == 5
    assert count(store, "unmatched_rewards", owner) == 1


def test_the_same_step_either_side_of_midnight_is_one_row(store: ClickHouseStore) -> None:
    owner = tenant()
    before = datetime(2026, 3, 14, 23, 59, 59, 999_000, tzinfo=UTC)
    write(store, [step(owner, started_at=before)])
    write(store, [step(owner, started_at=before + timedelta(milliseconds=2))], 1)
    assert count(store, "steps", owner) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_same_winner_in_every_order(store: ClickHouseStore, order: tuple[int, ...]) -> None:
    owner = tenant()
    versions = [
        reward(owner, value=0.1),
        reward(owner, value=0.2, revision=2),
        reward(owner, value=0.3, revision=2, occurred_at=NOON + timedelta(days=1)),
        reward(owner, value=0.4, revision=2, replay_epoch=1),
    ]
    for position in order:
        write(store, [versions[position]])
    sql = "SELECT value FROM rewards WHERE tenant_id = {owner:String}"
    assert store.rows(sql, {"owner": owner}) == [(0.4,)]


def test_versions_within_one_batch_are_one_row(store: ClickHouseStore) -> None:
    owner = tenant()
    steps = [summary(owner, "t", number) for number in range(1, 20)]
    assert write(store, steps) == []
    sql = "SELECT num_steps FROM trajectories WHERE tenant_id = {owner:String}"
    assert store.rows(sql, {"owner": owner}) == [(19,)]


def test_a_batch_written_again_leaves_one_copy_even_in_the_log(store: ClickHouseStore) -> None:
    owner = tenant()
    events = [step(owner, "t", index) for index in range(100)]
    write(store, events)
    write(store, events)
    assert count(store, "steps_log", owner) == 100
    write(store, [replace(event, replay_epoch=1) for event in events])
    assert count(store, "steps_log", owner) >= 100  # merges run when the engine likes
    assert one(
        store, "SELECT min(replay_epoch) FROM steps WHERE tenant_id = {o:String}", o=owner
    ) == 1  # fmt: skip


def test_after_wiping_a_table_the_same_batch_is_stored_again(settings: Settings) -> None:
    where = settings.clickhouse.model_copy(update={"database": f"wipe_{uuid7().replace('-', '')}"})
    fresh = settings.model_copy(update={"clickhouse": where})
    store, _ = open_migrated(fresh, wait_seconds=5, pause=time.sleep)
    events = [step("a", "t", index) for index in range(10)]
    write(store, events)
    store.command("TRUNCATE TABLE steps_log")
    write(store, events)
    assert count(store, "steps", "a") == 10
    store.close()


def test_a_row_that_the_engine_refuses_is_found_and_the_rest_is_stored(
    settings: Settings,
) -> None:
    where = settings.clickhouse.model_copy(update={"database": f"poor_{uuid7().replace('-', '')}"})
    fresh = settings.model_copy(update={"clickhouse": where})
    store, _ = open_migrated(fresh, wait_seconds=5, pause=time.sleep)
    # A column that cannot be computed from one of the rows: CANNOT_PARSE_TEXT, by the engine.
    guard = "toUInt8(if(step_id = 't-s5', 'not a number', '1'))"
    store.command(f"ALTER TABLE steps_log ADD COLUMN guard UInt8 MATERIALIZED {guard}")
    refused = write(store, [step("a", "t", index) for index in range(20)])
    assert [row.id for row in refused] == ["t-s5"]
    assert count(store, "steps", "a") == 19
    store.close()


def test_fifty_tenants_in_a_batch_make_one_part(settings: Settings) -> None:
    """Parts follow batches, never tenants or days: that is what keeps a busy store healthy."""
    where = settings.clickhouse.model_copy(update={"database": f"part_{uuid7().replace('-', '')}"})
    fresh = settings.model_copy(update={"clickhouse": where})
    store, _ = open_migrated(fresh, wait_seconds=5, pause=time.sleep)
    days = [NOON + timedelta(days=number) for number in range(50)]
    write(store, [step(f"tenant-{n}", started_at=day_) for n, day_ in enumerate(days)])
    parts = "SELECT count() FROM system.parts WHERE active AND database = currentDatabase()"
    assert one(store, f"{parts} AND table = 'steps_log'") == 1
    store.close()


def test_deleted_rows_come_back_with_a_replay_of_the_sink_or_of_the_trajectory(
    store: ClickHouseStore,
) -> None:
    """The engine drops an insert whose token it knows, also when the rows are gone meanwhile."""
    owner = tenant()
    rows = rows_of([step(owner, "t", index) for index in range(3)])
    moved = rows_of([step(owner, "t", index) for index in range(3)], first_offset=50)
    for epoch, written in ((0, rows), (1, rows), (1, moved)):
        Writer(store, Metrics(), epoch).write(written)
        assert count(store, "steps", owner) == 3
        delete = f"ALTER TABLE steps_log DELETE WHERE tenant_id = '{owner}'"
        store.command(f"{delete} SETTINGS mutations_sync = 2")
        assert count(store, "steps", owner) == 0
    assert token(rows, 0) != token(rows, 1) != token(moved, 1)


def test_a_reward_matches_once_its_step_arrives(store: ClickHouseStore) -> None:
    owner = tenant()
    write(store, [reward(owner, step_id="t-0-s0"), reward(owner, "t-7")])
    assert count(store, "unmatched_rewards", owner) == 2
    write(store, [step(owner)])
    assert count(store, "unmatched_rewards", owner) == 1
    write(store, [step(owner, "t-7")])
    assert count(store, "unmatched_rewards", owner) == 0


def test_an_absent_store_is_a_sentence(settings: Settings) -> None:
    where = settings.clickhouse.model_copy(update={"port": 1})
    paused: list[float] = []
    with pytest.raises(ConfigError, match="headrace up"):
        open_migrated(
            settings.model_copy(update={"clickhouse": where}), wait_seconds=3, pause=paused.append
        )
    assert 3 <= sum(paused) < 5


def test_a_wrong_password_is_a_sentence(settings: Settings) -> None:
    wrong = settings.data_dir / "wrong"
    wrong.write_text("not it")
    where = settings.clickhouse.model_copy(update={"password_file": wrong})
    with pytest.raises(ConfigError, match="password"):
        open_migrated(
            settings.model_copy(update={"clickhouse": where}), wait_seconds=3, pause=time.sleep
        )


def test_a_store_that_goes_away_is_transient(store: ClickHouseStore) -> None:
    class Unreachable:
        """A client whose server is gone, as the library reports it."""

        def command(self, *_: Any, **__: Any) -> None:
            from clickhouse_connect.driver.exceptions import OperationalError

            raise OperationalError("Error executing HTTP request")

    with pytest.raises(TransientError):
        ClickHouseStore(Unreachable()).command("SELECT 1")  # type: ignore[arg-type]


_IN_ANOTHER_ZONE = """
import sys, time
from pathlib import Path
from schemas.settings import ClickHouseSettings, Settings
from streams.sink.store import ClickHouseStore, open_client
from tests.integration.sink.conftest import write
from tests.sink_events import step, reward
host, port, user, password, database, owner = sys.argv[1:]
settings = Settings(clickhouse=ClickHouseSettings(
    host=host, port=port, user=user, password_file=Path(password), database=database))
assert time.timezone == 5 * 3600, time.timezone
store = ClickHouseStore(open_client(settings, database=database))
write(store, [step(owner), reward(owner)])
"""


def test_a_host_in_new_york_writes_the_same_epochs(
    settings: Settings, store: ClickHouseStore
) -> None:
    where, owner, here = settings.clickhouse, tenant(), tenant()
    arguments = [where.host, str(where.port), where.user, str(where.password_file)]
    subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_ZONE, *arguments, where.database, owner],
        check=True,
        env={**os.environ, "TZ": "America/New_York"},
        timeout=120,
    )
    write(store, [step(here), reward(here)])
    sql = (
        "SELECT s.started_at, s.ended_at, r.occurred_at, r.received_at FROM steps AS s "
        "INNER JOIN rewards AS r USING (tenant_id) WHERE tenant_id = {owner:String}"
    )
    there = store.rows(sql, {"owner": owner})
    assert len(there) == 1
    assert there == store.rows(sql, {"owner": here})


def test_samples_show_what_became_of_them(store: ClickHouseStore) -> None:
    owner = tenant()
    waits = decision(owner, "t-0", decision=Decision.HELD, decision_reason="tenant_share")
    stale = decision(owner, "t-1", decision=Decision.DROPPED, decision_reason="stale")
    assert not write(store, [*day(owner), waits, stale, decision(owner, "t-0"), microbatch(owner)])
    found = store.rows(
        "SELECT trajectory_id, decision, decision_reason FROM samples "
        "WHERE tenant_id = {owner:String} AND trajectory_id < 't-3' ORDER BY trajectory_id",
        {"owner": owner},
    )
    assert [tuple(row) for row in found] == [
        ("t-0", "trained", None), ("t-1", "dropped", "stale"), ("t-2", None, None),
    ]  # fmt: skip
    sql = "SELECT num_trained_tokens FROM microbatches WHERE has(tenant_ids, {owner:String})"
    assert one(store, sql, owner=owner) == 2


def test_what_share_of_the_tokens_can_be_trained_and_why_the_rest_cannot(
    store: ClickHouseStore,
) -> None:
    owner = tenant()
    whole = ActionResult(
        prompt_token_ids=(1, 2), token_ids=(11, 12, 13, 14, 15), logprobs=(-0.1, -0.2),
        changed_tokens=(TokenSpan(start=0, end=1), TokenSpan(start=2, end=4)), approximate_from=1,
    )  # fmt: skip
    promptless = ActionResult(token_ids=(11, 12, 13), logprobs=(-0.1, -0.2, -0.3))
    withheld = ActionResult(usage=Usage(completion_tokens=7))
    permitted = Governance(training_eligible=True)
    write(store, [
        step(owner, "t-0", 0, action_and_result=whole, governance=permitted),
        step(owner, "t-0", 1, action_and_result=promptless, governance=permitted),
        step(owner, "t-0", 2, action_and_result=withheld, governance=permitted,
             gaps=(gaps.TOKENS_SHOWN, gaps.TOKENS_WITHHELD)),
        step(owner, "t-0", 3, action_and_result=whole),
    ])  # fmt: skip
    ((sampled, trainable, approximate, lost),) = store.rows(
        "SELECT sampled_tokens, trainable_tokens, approximate_tokens, lost_tokens "
        "FROM trainable_shares WHERE tenant_id = {owner:String}",
        {"owner": owner},
    )
    assert (sampled, trainable, approximate) == (20, 2, 2)
    assert lost == {
        "changed_by_redaction": 3, "prompt_not_said": 3, "withheld_by_redaction": 7,
        "not_permitted": 5,
    }  # fmt: skip
