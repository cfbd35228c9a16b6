"""What a replay will do is decided, and refused, before anything is touched."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli.main import make_app
from infra.replay.plan import FED_BY, INPUTS, WIPED_TABLES, Log, Start, handled_before, make_plan
from schemas import topics
from schemas.atdp.internal import PartitionOffset, Replay
from schemas.bus import Position
from schemas.errors import ConfigError
from schemas.log_gaps import LogGap, Why
from schemas.topics import ASSEMBLY, GROUPS, REDACTION, SINK

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = range(2)
BEGINNING = Start()
ALL_INPUTS = sorted({topic for group in GROUPS for topic in INPUTS[group]})
COMMITTED, END = 60, 100


def log(first: int = 0, committed: int | None = COMMITTED, **at: int) -> Log:
    """Every topic from `first` to 100, every group at 60, every topic's time at offset `at`."""
    positions = [(topic, p) for topic in ALL_INPUTS for p in PARTITIONS]
    return Log(
        watermarks={topic: dict.fromkeys(PARTITIONS, (first, END)) for topic in ALL_INPUTS},
        offsets_at={t: {p: at.get("at", 0) for p in PARTITIONS} for t in ALL_INPUTS},
        committed={
            g: {} if committed is None else dict.fromkeys(positions, committed) for g in GROUPS
        },
    )


def offsets(group: str, start: Start = BEGINNING, found: Log | None = None,
            groups: Any = GROUPS) -> Mapping[Position, int]:  # fmt: skip
    plan = make_plan(groups, start, found or log(), keep_tables=True)
    return next(g.offsets for g in plan.groups if g.group == group)


def test_everything_starts_with_the_raw_log_and_what_it_feeds_starts_where_it_ends() -> None:
    plan = make_plan(GROUPS, Start(), log(), keep_tables=False)
    assert [g.group for g in plan.groups] == [REDACTION, ASSEMBLY, SINK]
    assert plan.tables == WIPED_TABLES
    assert {name for g in plan.groups for name in g.changelogs} == {
        topics.changelog_topic(group, table) for group in GROUPS for table in topics.TABLES[group]
    }
    for group in plan.groups:
        for (topic, _), offset in group.offsets.items():
            expected = END if topic in FED_BY or topic == topics.TICKS else COMMITTED
            assert offset == (0 if topic == topics.RAW_EVENTS else expected), topic
    assert plan.num_records == END * len(PARTITIONS)


def test_a_cut_log_with_kept_tables_wipes_nothing_and_skips_nothing() -> None:
    plan = make_plan(GROUPS, Start(), log(first=5), keep_tables=True)
    assert plan.tables == ()
    for group in plan.groups:
        assert group.changelogs == ()
        for (topic, _), offset in group.offsets.items():
            assert offset == (5 if topic == topics.RAW_EVENTS else COMMITTED), topic


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        (Start(offsets={(topics.STEPS, 0): 5}), [(topics.STEPS, 0, 5, 20)]),
        (Start(offsets={(topics.STEPS, 0): 20}), []),
        (Start(at=NOW), [(t, p, 0, 20) for t in INPUTS[SINK] for p in PARTITIONS]),
    ],
)
def test_what_is_asked_for_and_no_longer_kept_is_told(start: Start, asked: Any) -> None:
    plan = make_plan([SINK], start, log(first=20, at=20), keep_tables=True)
    assert sorted(plan.gone, key=str) == sorted(
        (LogGap(SINK, t, p, first, end, Why.REPLAY) for t, p, first, end in asked), key=str
    )


def test_a_time_after_the_first_record_kept_misses_nothing() -> None:
    assert make_plan([SINK], Start(at=NOW), log(first=20, at=21), keep_tables=True).gone == ()


@pytest.mark.parametrize(("committed", "unread"), [(10, 10), (None, 0)])
def test_what_a_group_has_not_read_and_a_reset_passes_is_told(
    committed: int | None, unread: int
) -> None:
    start = Start(offsets={(topics.STEPS, 0): 40})
    plan = make_plan([SINK], start, log(first=20, committed=committed), keep_tables=True)
    assert set(plan.gone) == {
        LogGap(SINK, t, p, unread, 20) for t in INPUTS[SINK] for p in PARTITIONS
    }


def test_joining_anew_from_a_part_of_the_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match="--from-time"):
        make_plan([ASSEMBLY, SINK], BEGINNING, log(first=5), keep_tables=True)
    make_plan([SINK], BEGINNING, log(first=5), keep_tables=True)


def test_every_input_of_every_group_is_reset() -> None:
    for group in GROUPS:
        assert set(offsets(group)) == {(t, p) for t in INPUTS[group] for p in PARTITIONS}
        assert not set(INPUTS[group]) & {
            t.name for t in topics.all_topics() if "changelog" in t.name
        }


@pytest.mark.parametrize("groups", [(REDACTION,), (REDACTION, ASSEMBLY), (REDACTION, SINK)])
def test_redaction_from_the_beginning_without_what_follows_is_refused(groups: Any) -> None:
    with pytest.raises(ConfigError, match="without a group"):
        make_plan(groups, Start(), log(), keep_tables=False)
    assert make_plan(groups, Start(at=NOW), log(), keep_tables=False).tables == ()


@pytest.mark.parametrize("groups", [(ASSEMBLY,), (SINK,), (ASSEMBLY, SINK)])
def test_assembly_and_sink_alone_wipe_no_table(groups: Any) -> None:
    plan = make_plan(groups, Start(), log(), keep_tables=False)
    assert plan.tables == ()
    for topic in (topics.STEPS, topics.REWARDS):
        assert plan.groups[0].offsets[topic, 0] == 0
    if groups == (ASSEMBLY, SINK):
        assert plan.groups[1].offsets[topics.SUMMARIES, 0] == END
        assert plan.groups[1].offsets[topics.STEPS, 0] == 0


def test_a_log_that_was_cut_would_lose_rows_unless_the_tables_stay() -> None:
    with pytest.raises(ConfigError, match=r"partitions 0, 1.*--keep-tables"):
        make_plan(GROUPS, Start(), log(first=5), keep_tables=False)
    plan = make_plan(GROUPS, Start(), log(first=5), keep_tables=True)
    assert plan.tables == ()
    assert plan.groups[0].offsets[topics.RAW_EVENTS, 0] == 5
    raw = {topics.RAW_EVENTS: dict.fromkeys(PARTITIONS, (5, END))}
    only_raw_is_cut = replace(log(), watermarks={**log().watermarks, **raw})
    later = make_plan((ASSEMBLY, SINK), Start(), only_raw_is_cut, keep_tables=False)
    assert later.groups[0].offsets[topics.STEPS, 1] == 0


def test_a_time_moves_back_and_never_forward() -> None:
    for at, expected in ((20, 20), (60, 60), (100, 60)):
        for group in GROUPS:
            found = offsets(group, Start(at=NOW), log(at=at))
            assert set(found.values()) == {expected}, group
    plan = make_plan(GROUPS, Start(at=NOW), log(at=20), keep_tables=False)
    assert all(group.changelogs == () for group in plan.groups)
    assert plan.tables == ()


@pytest.mark.parametrize(
    ("asked", "expected"), [(30, 30), (60, 60), (61, 60), (10**12, 60), (0, 5)]
)
def test_an_offset_moves_back_and_never_over_what_was_not_processed(
    asked: int, expected: int
) -> None:
    start = Start(offsets={(topics.RAW_EVENTS, 1): asked})
    found = offsets(REDACTION, start, log(first=5))
    assert found[topics.RAW_EVENTS, 1] == expected
    assert found[topics.RAW_EVENTS, 0] == COMMITTED
    assert set(offsets(SINK, start, log(first=5)).values()) == {COMMITTED}


def test_offsets_of_topics_or_partitions_that_are_not_there_are_refused() -> None:
    for groups, position, said in (
        (GROUPS, ("no.such.topic", 0), "read by none"),
        ((SINK,), (topics.RAW_EVENTS, 0), "read by none"),
        (GROUPS, (topics.RAW_EVENTS, 2), "no partition 2; it has 0, 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_plan(groups, Start(offsets={position: 0}), log(), keep_tables=False)


def test_a_group_that_never_committed_starts_at_the_first_record() -> None:
    for group in GROUPS:
        start = Start(offsets={(topics.RAW_EVENTS, 0): 50})
        assert set(offsets(group, start, log(first=3, committed=None)).values()) == {3}


def order(group: str, epoch: int, offset: int, topic: str = topics.RAW_EVENTS) -> Replay:
    before = (PartitionOffset(topic=topic, partition=0, offset=offset),)
    return Replay(group=group, epoch=epoch, committed_before=before, started_at=NOW)


def test_what_was_handled_before_survives_a_replay_that_was_cut_short() -> None:
    position = (topics.RAW_EVENTS, 0)
    earlier = [order(REDACTION, 1, 80), order(REDACTION, 2, 3), order(SINK, 3, 500)]
    assert handled_before({position: 0}, REDACTION, earlier) == {position: 80}
    assert handled_before({position: 90}, REDACTION, earlier) == {position: 90}
    assert handled_before({}, REDACTION, []) == {}


@pytest.mark.parametrize(("arguments", "said"), [
    (["bananas"], "No group bananas"),
    (["--from-time", "yesterday"], "ISO 8601"),
    (["--from-offset", "raw.events.v1"], "TOPIC:PARTITION:OFFSET"),
    (["--from-offset", "raw.events.v1:0:-5"], "TOPIC:PARTITION:OFFSET"),
    (["--from-time", "2026-01-01", "--from-offset", "raw.events.v1:0:1"], "not both"),
    (["--trajectory", "t"], "--tenant"),
])  # fmt: skip
def test_the_command_line_refuses_with_a_sentence(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(make_app(), ["replay", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)
