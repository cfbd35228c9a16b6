"""Event → row: every value typed and checked, and which row counts whatever the order."""

import itertools
import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import tables
from schemas.atdp.training import Decision
from schemas.atdp.types import (
    ActionResult,
    Coordinates,
    ModelVersion,
    Outcome,
    RedactedSpan,
    RewardSignal,
    Usage,
)
from schemas.errors import PermanentError, Reason
from streams.sink.migrate import shipped
from streams.sink.rows import Row, to_row
from streams.sink.tables_doc import stored_tables
from tests.sink_events import NOON, day, decision, microbatch, reward, step, summary

AT = Coordinates(topic="trajectory.steps.v1", partition=1, offset=7)


def row(event: Any, offset: int = 7) -> Row:
    return to_row(event, replace(AT, offset=offset), NOON)


def test_every_kind_of_event_fills_exactly_the_columns_of_its_table() -> None:
    declared = {t.name: {c.name for c in t.columns} for t in stored_tables(shipped())}
    seen = set()
    for event in [*day("a"), decision("a", "t-0"), microbatch("a")]:
        made = row(event)
        seen.add(made.table)
        assert set(made.cells) == declared[made.table.log], made.table.name
    assert seen == set(tables.TABLES)


def test_that_a_sample_is_trained_is_the_last_word() -> None:
    trained = row(decision("a", "t-0"), offset=1)
    held = row(decision("a", "t-0", decision=Decision.HELD, replay_epoch=3), offset=9)
    dropped = row(decision("a", "t-0", decision=Decision.DROPPED, replay_epoch=2), offset=10)
    assert trained.version > held.version > dropped.version


def test_times_are_exact_microseconds_in_any_zone() -> None:
    moment = datetime(2026, 11, 1, 0, 59, 59, 999_999, tzinfo=UTC)
    east = moment.astimezone(timezone(timedelta(hours=9)))
    cells = row(step("a", started_at=moment)).cells
    assert cells["started_at"] == 1_793_494_799_999_999
    assert row(step("a", started_at=east)).cells["started_at"] == cells["started_at"]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001 - naive: it would mean another time on another machine
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime(1970, 1, 21, 15, 0, tzinfo=UTC),  # milliseconds taken for microseconds
    ],
)
def test_a_time_that_the_store_would_change_is_refused(moment: datetime) -> None:
    with pytest.raises(PermanentError) as refused:
        row(replace(step("a"), started_at=moment))
    assert (refused.value.reason, refused.value.field) == (Reason.WRONG_TYPE, "started_at")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nothing_that_is_not_finite_becomes_a_row(number: float) -> None:
    bad = [
        (reward("a", value=number), "value"),
        (reward("a", confidence=number), "confidence"),
        (step("a", action_and_result=ActionResult(logprobs=(number,))), "logprobs"),
        (step("a", action_and_result=ActionResult(latency_ms=number)), "latency_ms"),
        (step("a", reward_signals=(RewardSignal(name="x", value=number),)), "reward_signals"),
        (summary("a", "t", 1, reward=number), "reward"),
    ]
    for event, field in bad:
        with pytest.raises(PermanentError) as refused:
            row(event)
        assert (refused.value.reason, refused.value.field) == (Reason.NOT_FINITE, field)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (step("a", action_and_result=ActionResult(token_ids=(-1,))), "token_ids"),
        (step("a", action_and_result=ActionResult(token_ids=(2**32,))), "token_ids"),
        (step("a", action_and_result=ActionResult(usage=Usage(prompt_tokens=2**63))),
         "prompt_tokens"),
        (reward("a", revision=-1), "revision"),
        (step("a", replay_epoch=2**40), "replay_epoch"),
    ],
)  # fmt: skip
def test_a_number_that_does_not_fit_is_refused(event: Any, field: str) -> None:
    with pytest.raises(PermanentError) as refused:
        row(event)
    assert (refused.value.reason, refused.value.field) == (Reason.WRONG_TYPE, field)


def test_true_stays_a_truth_value() -> None:
    values = [row(reward("a", value=v)).cells for v in (True, 1.0, 0.0, None)]
    assert [(c["value"], c["value_type"]) for c in values] == [
        (1.0, "boolean"), (1.0, "number"), (0.0, "number"), (None, "none"),
    ]  # fmt: skip


def test_versions_stand_in_the_order_of_their_tokens() -> None:
    rows = {row(e).id: row(e).cells for e in day("a") if row(e).table is tables.STEPS}
    assert rows["t-3-s4"]["policy_versions"] == [3, 4]
    assert rows["t-0-s1"]["policy_versions"] == [3]
    assert row(step("a", model_version=ModelVersion())).cells["policy_versions"] == []


def test_a_quarantined_row_holds_no_text() -> None:
    (event,) = [e for e in day("a") if hasattr(e, "quarantine_id")]
    cells = row(event).cells
    assert cells["num_bytes"] == len(event.value)
    assert "value" not in cells
    assert "Ada" not in repr(cells)


def test_the_highest_epoch_counts() -> None:
    early, later = NOON - timedelta(days=1), NOON + timedelta(days=30)
    assert row(reward("a", replay_epoch=1)).version > row(reward("a", occurred_at=later)).version
    again = step("a", replay_epoch=1, outcome=Outcome.TIMEOUT)
    assert row(again).version > row(step("a", started_at=early)).version
    third = row(summary("a", "t", 3, replay_epoch=1), 2)
    assert third.version > row(summary("a", "t", 9), 999).version


def test_a_correction_counts_even_if_an_older_revision_is_processed_again() -> None:
    """A replay may begin behind the correction, or after it left the log."""
    corrected = row(reward("a", revision=2))
    assert corrected.version > row(reward("a", replay_epoch=3)).version


def test_a_revision_counts_before_a_later_judgement() -> None:
    later = reward("a", occurred_at=NOON + timedelta(days=30))
    assert row(reward("a", revision=2)).version > row(later).version > row(reward("a")).version


def test_equal_judgements_are_decided_by_their_digest_as_text() -> None:
    digests = ["0a" + "0" * 30, "0b" + "0" * 30, "f" * 32]
    versions = [row(reward("a", digest=digest)).version for digest in digests]
    assert versions == sorted(versions)


def test_the_first_completed_attempt_is_the_step() -> None:
    first = step("a", started_at=NOON)
    again = step("a", started_at=NOON + timedelta(seconds=3))
    failed = step("a", started_at=NOON - timedelta(seconds=3), outcome=Outcome.UPSTREAM_ERROR)
    assert row(first).version > row(again).version > row(failed).version


def test_the_last_summary_of_a_trajectory_counts() -> None:
    assert row(summary("a", "t", 1), 8).version > row(summary("a", "t", 2), 7).version


@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_the_winner_does_not_depend_on_arrival(shuffle: random.Random, num_events: int) -> None:
    """Same id, any contents: some total order decides, and equal events make equal rows."""
    events = [
        reward(
            "a",
            revision=shuffle.randint(1, 2),
            value=shuffle.choice([0.0, 0.5]),
            occurred_at=NOON + timedelta(seconds=shuffle.randint(0, 1)),
            digest=shuffle.choice(["a" * 32, "b" * 32]),
        )
        for _ in range(num_events)
    ]
    winners = {
        max((row(e, offset) for offset, e in enumerate(order)), key=lambda r: r.version).version
        for order in itertools.islice(itertools.permutations(events), 24)
    }
    assert len(winners) == 1


def test_equal_events_at_other_coordinates_are_one_version() -> None:
    assert row(step("a"), 1).version == row(step("a"), 2).version
    assert row(step("a")).version != row(step("a", task_key="another")).version


def test_an_event_without_a_table_is_refused() -> None:
    with pytest.raises(PermanentError) as refused:
        row(AT)
    assert refused.value.reason is Reason.UNEXPECTED_EVENT


def test_a_span_outside_the_text_is_refused() -> None:
    span = RedactedSpan(path="p", kind="K", start=-1, end=2, placeholder="<K>")
    event = step("a")
    bad = replace(event, governance=replace(event.governance, redactions=(span,)))
    with pytest.raises(PermanentError) as refused:
        row(bad)
    assert refused.value.field == "redactions"


def test_the_digest_goes_by_values_and_not_by_who_else_refers_to_them() -> None:
    """Two processes that read the same event hold its texts in different ways."""
    event = replace(step("a"), agent_id="shared", task_key="shared")
    apart = replace(event, task_key="".join(["sha", "red"]))
    assert to_row(event, AT, NOON).version == to_row(apart, AT, NOON).version
    assert to_row(event, AT, NOON).version != to_row(step("a"), AT, NOON).version


def test_the_digest_also_takes_values_that_no_decoder_makes() -> None:
    class Text(str):
        """A text, and more."""

    odd = to_row(replace(step("a"), task_key=Text("t")), AT, NOON)
    assert odd.version == to_row(replace(step("a"), task_key=Text("t")), AT, NOON).version
    assert odd.version != to_row(replace(step("a"), task_key=Text("u")), AT, NOON).version
