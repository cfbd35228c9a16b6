"""Every query of docs/queries.md answers on real rows."""

import re
from pathlib import Path

import pytest

from streams.sink.store import ClickHouseStore
from tests.integration.sink.conftest import write
from tests.sink_events import day

pytestmark = pytest.mark.integration

DOCS = Path(__file__).resolve().parents[3] / "docs"
QUERIES = re.findall(
    r"\n([^\n]+):\n\n```sql\n(.*?)```", (DOCS / "queries.md").read_text(), re.DOTALL
)


@pytest.fixture(scope="module")
def full_store(store: ClickHouseStore) -> ClickHouseStore:
    assert write(store, day("docs")) == []
    return store


def test_there_are_many() -> None:
    assert len(QUERIES) >= 15
    assert (DOCS / "queries.md").read_text().count("```sql") == len(QUERIES)


@pytest.mark.parametrize(("title", "sql"), QUERIES, ids=[title[:40] for title, _ in QUERIES])
def test_it_finds_something(full_store: ClickHouseStore, title: str, sql: str) -> None:
    assert full_store.rows(sql), title


def test_the_messages_of_a_trajectory_stand_in_their_order(full_store: ClickHouseStore) -> None:
    (sql,) = [sql for title, sql in QUERIES if title.startswith("The messages of a trajectory")]
    rows = full_store.rows(sql)
    roles = [(index, role) for index, _, _, role, _ in rows]
    assert roles[:5] == [
        (0, "system"),
        (0, "user"),
        (0, "assistant"),
        (1, "user"),
        (1, "assistant"),
    ]
    assert len(rows) == 9  # the further attempt of step 3 is not told twice


def test_the_line_of_steps_ends_at_the_first(full_store: ClickHouseStore) -> None:
    (sql,) = [sql for title, sql in QUERIES if title.startswith("The line of steps")]
    assert [step for step, _ in full_store.rows(sql)] == [f"t-0-s{i}" for i in range(4)]


def test_success_by_agent_counts_what_was_rewarded(full_store: ClickHouseStore) -> None:
    (sql,) = [sql for title, sql in QUERIES if title.startswith("Success rate by agent")]
    assert full_store.rows(sql) == [
        ("booking", 3, 2 / 3, 2 / 3),
        ("support", 2, 0.5, 0.5),
    ]
