"""The table: how large it grows, what leaves it, and what a tick looks at."""

import dataclasses
from dataclasses import replace

import pytest

from schemas.bus import Received
from schemas.errors import PermanentError, Reason
from schemas.ids import trajectory_key, uuid7
from schemas.settings import AssemblySettings
from streams.assembly.due import REBUILD_TICKS, DueIndex
from streams.assembly.state import (
    FACTS_PER_ROW,
    RewardFacts,
    RowKind,
    StepFacts,
    Trajectory,
    dump,
    header,
    load,
    pack,
)
from tests.assembly_events import TENANT, TRAJECTORY, Run, at, end, reward, step, tick

HOUR_SECONDS = 3600
KEY = trajectory_key(TENANT, TRAJECTORY).decode()


def _full_step(index: int, parent: str | None) -> StepFacts:
    """A step with every field as long as the gateway makes it."""
    return StepFacts(
        step_id=uuid7(), epoch=12, started_us=1_772_366_400_123_456 + index,
        ended_us=1_772_366_401_123_456 + index, index=index, outcome="client_aborted",
        eligible=False, replayed=True, parent=parent, attempt_of=uuid7(), policy_version=123_456,
        oldest_version=123_455, newest_version=123_457, task_key="airline/rebook-after-cancel",
        agent_id="support-agent",
    )  # fmt: skip


def _long(num_steps: int) -> Trajectory:
    steps: dict[str, StepFacts] = {}
    parent = None
    for index in range(num_steps):
        made = _full_step(index, parent)
        steps[made.step_id], parent = made, made.step_id
    return Trajectory(TENANT, TRAJECTORY, steps=steps)


def test_a_step_takes_at_most_512_bytes():
    rows = dict(dump("k", _long(640), 0, 0))
    assert sum(len(row) for row in rows.values()) / 640 <= 512
    alone = len(dict(dump("k", _long(1), 0, 0))["k"]) - len(dict(dump("k", _long(0), 0, 0))["k"])
    assert alone <= 512


def test_no_row_grows_without_bound_and_one_event_rewrites_at_most_two():
    trajectory = _long(2_000)
    rows = dict(dump("k", trajectory, 0, 0))
    assert max(len(row) for row in rows.values()) <= 512 * (FACTS_PER_ROW + 2)
    first = next(iter(trajectory.steps.values()))
    changed = {**trajectory.steps, first.step_id: replace(first, epoch=13)}
    again = dict(dump("k", replace(trajectory, steps=changed), 0, 0))
    assert sum(rows[name] != row for name, row in again.items()) == 1
    grown = {**trajectory.steps, "new": replace(first, step_id="new")}
    again = dict(dump("k", replace(trajectory, steps=grown), 0, 0))
    assert sum(rows.get(name) != row for name, row in again.items()) <= 2


@pytest.mark.parametrize("num_steps", [0, 1, 63, 64, 65, 200])
def test_rows_read_back_as_they_were(num_steps):
    rewards = {
        f"r-{n}": RewardFacts(f"r-{n}", 1, 0, n, "d", retracted=False, final=True, score=0.5)
        for n in range(num_steps)
    }
    made = replace(
        _long(num_steps), rewards=rewards, end_us=5, touched_us=6, sample_digests=("a", "b")
    )
    table = dict(dump("k", made, 2, 99))
    assert header(table["k"]) == (RowKind.HEAD, 2, 99)
    assert load("k", table["k"], table.get) == made


def test_a_row_of_another_format_says_what_to_do():
    with pytest.raises(ValueError, match="headrace replay"):
        header(b"\x09" + pack(RowKind.HEAD, 0, 0)[1:])


def test_state_holds_no_text():
    secret = "call me at 555-0100"
    run = Run().see(step(0), reward(1, text=secret, label=secret), end(50))
    assert not any(secret.encode() in row for row in run.table.values())
    text_fields = {"text", "label", "name", "value", "rater_id", "new_messages", "output"}
    for facts in (StepFacts, RewardFacts):
        assert not text_fields & {f.name for f in dataclasses.fields(facts)}


def test_what_is_past_retention_becomes_a_tombstone_and_then_nothing():
    hour = HOUR_SECONDS
    run = Run(AssemblySettings(idle_seconds=60, settle_seconds=0, retention_hours=2))
    run.see(tick(0), step(0), reward(), tick(100), tick(2 * hour - 1))
    assert header(run.table[KEY])[0] is RowKind.HEAD
    run.see(tick(2 * hour + 200))
    assert header(run.table[KEY])[0] is RowKind.TOMBSTONE
    said = len(run.summaries)
    run.see(reward(2), step(1))
    assert len(run.summaries) == said
    run.see(tick(91 * 24 * hour))
    assert KEY not in run.table


def test_rows_of_a_long_trajectory_leave_with_it():
    run = Run(AssemblySettings(idle_seconds=60, settle_seconds=0, retention_hours=1))
    run.see(tick(0), *(step(index) for index in range(130)), tick(3000))
    assert len(run.table) == 4
    run.see(tick(10 * HOUR_SECONDS))
    assert sorted(run.table) == ["\x00watermark/0", KEY]


def test_old_events_are_kept_for_the_whole_retention_after_they_came():
    run = Run(AssemblySettings(idle_seconds=60, settle_seconds=0, retention_hours=1))
    year = 365 * 24 * HOUR_SECONDS
    run.see(tick(year), step(0), tick(year + 5), tick(year + 3000), reward())
    assert run.final[1].step_ids == ("s-0",)


def test_a_known_event_says_nothing_again():
    events = [step(0), step(1), reward(), end(100)]
    run = Run().see(*events, tick(200))
    said = (len(run.summaries), len(run.samples), dict(run.table))
    run.see(*events)
    assert (len(run.summaries), len(run.samples), run.table) == said


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x03\xe7xyz", b"{"])
def test_a_broken_record_is_permanent(value):
    record = Received("trajectory.steps.v1", 0, 0, b"k", value)
    with pytest.raises(PermanentError):
        Run().processor.handle(record, {}, overdue=False)


def test_an_event_on_the_wrong_topic_is_refused():
    run = Run()
    record = replace(run.record(step(0)), topic="trajectory.rewards.v1")
    with pytest.raises(PermanentError) as refused:
        run.processor.handle(record, {}, overdue=False)
    assert refused.value.reason is Reason.UNEXPECTED_EVENT


class CountingTable(dict[str, bytes]):
    """A table that counts what is read from it."""

    gets = 0

    def get(self, key, default=None):
        self.gets += 1
        return super().get(key, default)


def test_a_tick_looks_only_at_what_is_due():
    table = CountingTable()
    run = Run(AssemblySettings(idle_seconds=60, settle_seconds=0), table=table)
    run.see(tick(-1))
    for number in range(1_000):
        run.see(replace(step(0), trajectory_id=f"closed-{number}"))
    run.see(tick(70))
    assert sum(s.closed_at is not None for s in run.summaries) == 1_000
    for number in range(3):
        run.see(replace(step(9), trajectory_id=f"open-{number}"))
    table.gets = 0
    run.see(tick(80))
    assert table.gets <= 5
    run.see(tick(160))
    assert [s.closed_at for s in run.summaries[-3:]] == [at(152)] * 3


def test_one_tick_concludes_a_bounded_number_and_the_next_ones_the_rest(monkeypatch):
    monkeypatch.setattr("streams.assembly.processor.MAX_PER_TICK", 10)
    run = Run().see(tick(0))
    for number in range(25):
        run.see(replace(step(0), trajectory_id=f"t-{number}"))
    closed = []
    for seconds in (100, 101, 102):
        run.see(tick(seconds))
        closed.append(sum(s.closed_at is not None for s in run.summaries))
    assert closed == [10, 20, 25]


def test_the_index_is_read_anew_after_a_gap_a_repeat_and_a_while():
    rows = [("a", pack(RowKind.HEAD, 0, 5)), ("b", pack(RowKind.HEAD, 1, 5))]
    index = DueIndex()
    assert not index.follows(0, 7)
    index.rebuild(0, 7, rows)
    assert index.follows(0, 8)
    assert index.take_due(0, 9, 10) == ["a"]
    assert not index.follows(0, 8)
    assert not index.follows(0, 10)
    index.rebuild(0, 10, rows)
    assert [index.follows(0, 11 + n) for n in range(REBUILD_TICKS + 1)][-2:] == [True, False]


def test_a_batch_that_failed_is_handled_again_with_its_tick():
    run = Run().see(tick(0), step(0))
    record = run.record(tick(70))
    run.processor.handle(record, run.table, overdue=False)
    run.apply(run.processor.handle(record, run.table, overdue=False))
    assert run.final[0].close_reason == "idle"
