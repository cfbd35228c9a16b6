"""Lag, rates and sentences are functions of samples and answers."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.status.report import (
    INPUTS,
    Group,
    Lag,
    Part,
    Report,
    Sample,
    end_of,
    groups_of,
    lags_of,
    quarantine_sentence,
    waits_of,
)
from infra.status.table import duration, lines
from schemas import topics
from schemas.bus.lag import Standing

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
STEPS = (topics.STEPS, 0)


def sample(seconds: float, committed: int, end: int) -> Sample:
    at = NOW + timedelta(seconds=seconds)
    return Sample(at, {topics.SINK: {STEPS: Standing(committed, end)}})


def test_one_sample_tells_how_far_and_since_when() -> None:
    since = NOW - timedelta(minutes=3)
    [lag] = lags_of(sample(0, 10, 25), None, {topics.SINK: {STEPS: since}})
    assert lag == Lag(topics.SINK, topics.STEPS, 0, 10, 25, 15, waiting_since=since)


def test_two_samples_tell_the_rate_and_the_end() -> None:
    [lag] = lags_of(sample(0, 0, 100), sample(2, 30, 110), {})
    assert lag.behind == 80
    assert lag.per_second == 15.0
    assert lag.until == NOW + timedelta(seconds=2 + 8)  # 20 less in 2 s, 80 are left


def test_what_grows_or_stands_still_has_no_end() -> None:
    [growing] = lags_of(sample(0, 0, 100), sample(2, 30, 200), {})
    [still] = lags_of(sample(0, 0, 100), sample(2, 0, 100), {})
    assert (growing.per_second, growing.until) == (15.0, None)
    assert (still.per_second, still.until) == (0.0, None)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0.1, 60))
def test_an_end_is_never_in_the_past(before: int, now: int, seconds: float) -> None:
    end = end_of(before, now, seconds, NOW)
    assert end is None or (before > now > 0 and end >= NOW)


def test_an_end_beyond_every_calendar_is_none() -> None:
    assert end_of(10**13 + 1, 10**13, 2.0, NOW) is None


def test_groups_read_every_topic_of_theirs_that_holds_events() -> None:
    assert set(INPUTS) == set(topics.GROUPS)
    assert set(INPUTS[topics.ASSEMBLY]) == {
        topics.STEPS, topics.REWARDS, topics.ENDS, topics.TICKS
    }  # fmt: skip
    assert topics.REPLAYS not in INPUTS[topics.SINK]
    assert topics.dead_letter_topic(topics.RAW_EVENTS) in INPUTS[topics.SINK]


GATEWAY = Part(
    "gateway", healthy=True, answer={"spool_events_waiting": 1_200, "spool_bytes": 9_000}
)


def test_an_outage_of_kafka_is_told_with_what_it_keeps_waiting() -> None:
    kafka = Part("kafka", healthy=False, why="Kafka at h:1 does not answer (Kafka: _TRANSPORT).")
    [told] = waits_of((kafka, GATEWAY), (), ())
    assert told == (
        "Kafka at h:1 does not answer (Kafka: _TRANSPORT). Every processor waits, and the gateway "
        "keeps 1,200 events (9,000 bytes) in its spool."
    )


def test_an_outage_of_the_store_is_told_with_what_the_sink_has_left() -> None:
    store = Part("clickhouse", healthy=False, why="The store at h:2 does not answer (x).")
    groups = (Group(topics.SINK, 1, 3_000),)
    assert waits_of((store,), groups, ()) == (
        "The store at h:2 does not answer (x). The sink waits with 3,000 records.",
    )
    assert waits_of((store,), (), ()) == ("The store at h:2 does not answer (x).",)


def test_a_replay_a_standstill_and_a_missing_worker_are_told() -> None:
    sink = Part("sink", healthy=False, why="7 records wait.")
    groups = (Group(topics.ASSEMBLY, 0, 5), Group(topics.SINK, 0, 0))
    told = waits_of((sink,), groups, ("streams.redaction replays: 9 records are left.",))
    assert told[0].startswith("streams.redaction replays")
    assert told[1] == "sink: 7 records wait."
    assert told[2].startswith("streams.assembly has no worker while 5 records wait")
    assert len(told) == 3


def test_all_is_well_and_nothing_is_said() -> None:
    assert waits_of((GATEWAY,), (Group(topics.SINK, 2, 400),), ()) == ()


def test_the_table_shows_what_is_behind_and_everything_on_request() -> None:
    behind = Lag(
        topics.SINK, topics.STEPS, 0, 10, 2_525, 2_515,
        waiting_since=NOW - timedelta(hours=2, minutes=5), per_second=15.0,
        until=NOW + timedelta(seconds=90),
    )  # fmt: skip
    done = Lag(topics.SINK, topics.STEPS, 1, 7, 7, 0)
    groups = groups_of(sample(0, 10, 2_525), {topics.SINK: 1})
    report = Report(groups=groups, lags=(behind, done))
    shown = list(lines(report, NOW))
    assert len(shown) == 3
    assert "1 worker" in shown[1]
    assert shown[2].split() == [
        "trajectory.steps.v1", "0", "2,515", "10", "2,525", "15.0", "09:55:00", "(2", "h", "5",
        "min)", "12:01:30", "(in", "1", "min", "30", "s)",
    ]  # fmt: skip
    assert len(list(lines(report, NOW, every_partition=True))) == 4
    assert list(lines(Report(), NOW)) == []


def test_what_will_not_end_says_so() -> None:
    still = Lag(topics.SINK, topics.STEPS, 0, 1, 9, 8, per_second=0.0)
    slow = Lag(topics.SINK, topics.STEPS, 1, 1, 9, 8, per_second=2.0)
    report = Report(groups=(Group(topics.SINK, 1, 16),), lags=(still, slow))
    shown = list(lines(report, NOW))
    assert shown[2].endswith("it stands still")
    assert shown[3].endswith("not at this rate")


def test_durations_have_two_units_at_most() -> None:
    assert [duration(s) for s in (0, 59.6, 3_599, 3_600, 90_061)] == [
        "0 s", "1 min", "59 min 59 s", "1 h", "1 d 1 h"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "words"), [(1, "1 record waits"), (1_200, "1,200 records wait")]
)
def test_quarantine_is_told_with_what_shows_it(number: int, words: str) -> None:
    sentence = quarantine_sentence(number)
    assert sentence.startswith(words)
    assert "headrace quarantine list" in sentence
