"""What a replay that was cut short leaves, who says so, and what finishes it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli.main import make_app
from infra.replay.plan import Start
from infra.replay.unfinished import (
    Order,
    exclusive,
    is_replaying,
    read_note,
    remove_note,
    sentence,
    settled,
    write_note,
)
from schemas.errors import ConfigError
from schemas.topics import ASSEMBLY, RAW_EVENTS, SINK

AT = Start(at=datetime(2026, 1, 31, 8, tzinfo=UTC))
OFFSETS = Start(offsets={(RAW_EVENTS, 0): 7, (RAW_EVENTS, 2): 9})
ORDERS = [Order(), Order((SINK,), AT), Order(start=OFFSETS, keep_tables=True)]


@pytest.mark.parametrize("order", ORDERS)
def test_a_note_says_the_same_when_it_is_read(tmp_path: Path, order: Order) -> None:
    assert read_note(tmp_path) is None
    with exclusive(tmp_path):
        write_note(tmp_path, Order((ASSEMBLY,)))
        write_note(tmp_path, order)
    assert read_note(tmp_path) == order
    remove_note(tmp_path)
    assert read_note(tmp_path) is None


def test_only_one_replay_runs_at_a_time_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    assert not is_replaying(tmp_path)
    with exclusive(tmp_path):
        assert is_replaying(tmp_path)
        with pytest.raises(ConfigError, match="Another replay is running"), exclusive(tmp_path):
            pass
    assert not is_replaying(tmp_path)
    with exclusive(tmp_path):
        pass


def test_the_sentence_tells_a_running_replay_from_one_that_was_cut_short(tmp_path: Path) -> None:
    assert sentence(tmp_path) is None
    with exclusive(tmp_path):
        assert sentence(tmp_path) is None
        write_note(tmp_path, Order())
        assert "is running" in str(sentence(tmp_path))
    assert "cut short" in str(sentence(tmp_path))
    assert "`headrace replay -d here`" in str(sentence(tmp_path, " -d here"))


@pytest.mark.parametrize("unfinished", ORDERS)
def test_without_options_the_unfinished_replay_is_finished(unfinished: Order) -> None:
    assert settled(Order(), unfinished) == unfinished
    assert settled(unfinished, unfinished) == unfinished


@pytest.mark.parametrize("asked", ORDERS)
def test_where_nothing_is_unfinished_what_is_asked_is_done(asked: Order) -> None:
    assert settled(asked, None) == asked


def test_another_replay_waits_for_the_unfinished_one() -> None:
    for asked, unfinished, options in (
        (Order((SINK,)), Order(), "earlier replay was"),
        (Order((ASSEMBLY,)), Order((SINK,), AT), "sink --from-time 2026-01-31T08:00:00"),
        (Order(start=AT), Order(start=OFFSETS), f"--from-offset {RAW_EVENTS}:0:7 --from-offset"),
    ):
        with pytest.raises(ConfigError, match="without options to finish it") as error:
            settled(asked, unfinished)
        assert options in str(error.value)


def test_where_the_log_was_cut_meanwhile_keeping_the_tables_is_the_way_out() -> None:
    kept = Order(keep_tables=True)
    assert settled(kept, Order()) == kept
    assert settled(kept, Order((SINK,), AT)) == kept


def test_a_damaged_note_is_answered_with_what_to_do(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        write_note(tmp_path, Order())
    note = tmp_path / "run" / "replay.json"
    note.write_text(note.read_text()[:-5])
    with pytest.raises(ConfigError, match="Remove it"):
        read_note(tmp_path)


def test_the_status_says_it_also_where_no_stack_runs(tmp_path: Path) -> None:
    def status() -> Any:
        arguments = ["status", "--json", "--data-dir", str(tmp_path)]
        answer = CliRunner().invoke(make_app(), arguments)
        assert answer.exit_code == 1
        return json.loads(answer.stdout)

    assert status()["replay"] is None
    with exclusive(tmp_path):
        write_note(tmp_path, Order())
    assert f"`headrace replay -d {tmp_path}`" in status()["replay"]
