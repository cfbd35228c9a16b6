"""A report says whether it adds up, and what to run where it does not."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from infra.reconcile.proofs import TABLE_OF
from infra.reconcile.reading import wiped_epoch
from infra.reconcile.report import Joins, Kind, Line, Report, Unjoined, commands, gather
from infra.reconcile.run import num_covered
from infra.replay.plan import INPUTS
from schemas import topics
from schemas.atdp.internal import AuditEvent
from schemas.log_gaps import LogGap, Why, from_event, parse, to_event

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FINE = Line(topics.STEPS, 0, topics.SINK, 10, Counter({Kind.STORED: 8, Kind.UNREAD: 2}))
LOST = Line(
    topics.STEPS, 1, topics.SINK, 10, Counter({Kind.STORED: 7, Kind.MISSING: 3}), ((2, 4), (8, 9))
)
RAW = Line(topics.RAW_EVENTS, 0, topics.REDACTION, 5, Counter({Kind.MISSING: 5}), ((0, 5),))


def test_every_topic_that_the_sink_reads_has_its_table() -> None:
    assert set(TABLE_OF) == set(INPUTS[topics.SINK])


def test_it_adds_up_while_records_are_still_to_be_read() -> None:
    assert Report((FINE,)).adds_up
    assert Report((FINE,)).num_unread == 2
    assert commands(Report((FINE,))) == []


def test_a_count_that_does_not_reach_what_was_produced_does_not_add_up() -> None:
    assert not Report((replace(FINE, produced=11),)).adds_up


def test_the_commands_bring_back_what_is_missing_upstream_first() -> None:
    report = Report((FINE, LOST, RAW))
    assert not report.adds_up
    assert commands(report, " -d x") == [
        f"headrace replay redaction --from-offset {topics.RAW_EVENTS}:0:0 -d x",
        f"headrace replay sink --from-offset {topics.STEPS}:1:2 -d x",
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [((FINE,), ["headrace replay assembly sink"]),
     ((LOST,), [f"headrace replay sink --from-offset {topics.STEPS}:1:2"])],
)  # fmt: skip
def test_trajectories_are_joined_again_unless_missing_rows_explain_it(
    lines: tuple[Line, ...], expected: list[str]
) -> None:
    report = Report(lines, Joins(1, 1, (Unjoined("a", "t", 3, 2),)))
    assert not report.adds_up
    assert commands(report) == expected


def test_parts_of_a_partition_become_one_line() -> None:
    parts = [replace(LOST, stretches=((2, 4),)), replace(LOST, stretches=((4, 6), (8, 9)))]
    line = gather(parts)
    assert line.stretches == ((2, 6), (8, 9))
    assert line.counts == {Kind.STORED: 14, Kind.MISSING: 6}


def test_covered_offsets_count_once() -> None:
    assert num_covered([(5, 10), (0, 3), (8, 12), (9, 10)]) == 3 + 7
    assert num_covered([]) == 0


@pytest.mark.parametrize("why", list(Why))
def test_a_gap_is_the_same_when_it_is_read(why: Why) -> None:
    gap = LogGap(topics.SINK, topics.STEPS, 1, 5, 9, why)
    event = to_event(gap, NOW)
    assert from_event(event) == gap
    assert to_event(gap, datetime(2027, 1, 1, tzinfo=UTC)).audit_id == event.audit_id
    assert gap.num_records == 4


@pytest.mark.parametrize(
    ("details", "epoch"),
    [('{"epoch": 3, "tables_wiped": ["steps"]}', 3), ('{"epoch": 3, "tables_wiped": []}', 0),
     ('{"epoch": 3}', 0), ("[]", 0), ("no json", 0), ('{"tables_wiped": ["steps"]}', 0)],
)  # fmt: skip
def test_only_a_replay_that_wiped_tables_makes_older_rows_void(details: str, epoch: int) -> None:
    assert wiped_epoch(details) == epoch


def test_other_audit_events_are_no_gaps() -> None:
    event = AuditEvent(audit_id="a", actor="cli", action="x", subject="", occurred_at=NOW)
    assert from_event(event) is None
    assert parse("cli", "{}") is None
    assert parse("cli", "no json") is None
