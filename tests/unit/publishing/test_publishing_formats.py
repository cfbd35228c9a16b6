"""Files into events: formats, ids, times, and what a fault says."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.publishing.documents import Entry, Problem, read_entries
from infra.publishing.formats import Format, Made, detect, make_events
from infra.publishing.minting import Mint
from schemas.atdp.types import Feedback, Step, TrajectoryEnd
from schemas.errors import ConfigError

WRITTEN_AT = datetime(2026, 1, 1, tzinfo=UTC)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "and 3+3?"},
    {"role": "assistant", "content": "6"},
    {"role": "user", "content": "thanks"},
]


def mint(tenant: str = "acme", key: bytes = b"k", **fields: Any) -> Mint:
    return Mint(tenant, key, WRITTEN_AT, **fields)


def made_of(
    values: Sequence[Any], file_format: Format, at: Mint | None = None
) -> list[Made | Problem]:
    entries = [Entry(f"line {number}", value) for number, value in enumerate(values, 1)]
    return list(make_events(entries, file_format, at or mint()))


def events_of(values: Sequence[Any], file_format: Format, at: Mint | None = None) -> list[Any]:
    made = made_of(values, file_format, at)
    problems = [str(item) for item in made if isinstance(item, Problem)]
    assert not problems
    return [event for item in made if isinstance(item, Made) for event in item.events]


def problem_of(value: Any, file_format: Format) -> Problem:
    (found,) = made_of([value], file_format)
    assert isinstance(found, Problem)
    return found


def test_each_answer_is_a_step_with_the_messages_since_the_last_one() -> None:
    first, second, reward = events_of([{"messages": TALK, "reward": 1}], Format.MESSAGES)
    assert [m.role for m in first.observation.new_messages] == ["system", "user"]
    assert [json.loads(m.body) for m in second.observation.new_messages] == [TALK[3]]
    assert [json.loads(m.body) for m in second.action_and_result.output] == [TALK[4]]
    assert (first.lineage.parent_step_id, first.lineage.step_index) == (None, 0)
    assert (second.lineage.parent_step_id, second.lineage.step_index) == (first.step_id, 1)
    assert second.observation.context_messages == 4
    assert first.dialect == second.dialect == "openai.chat"
    assert first.started_at < second.started_at < reward.occurred_at
    assert (reward.value, reward.final) == (1.0, True)
    assert reward.target.trajectory_id == first.trajectory_id == second.trajectory_id


def test_messages_after_the_last_answer_are_counted_and_leave_a_gap() -> None:
    (made,) = made_of([TALK], Format.MESSAGES)
    assert isinstance(made, Made)
    assert made.num_left_out == 1
    first, last = made.events
    assert "messages_after_last_answer" not in {gap.reason for gap in first.gaps}
    assert "messages_after_last_answer" in {gap.reason for gap in last.gaps}


def test_what_is_known_of_a_conversation_is_kept() -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": {}}}
    known = {"messages": TALK, "trajectory_id": "t-1", "task_key": "sums", "model": "gpt",
             "tools": [tool, "lookup"]}  # fmt: skip
    step, _ = events_of([known], Format.MESSAGES)
    assert (step.trajectory_id, step.task_key, step.model_version.model) == ("t-1", "sums", "gpt")
    assert step.harness_state.tools == ("search", "lookup")


def test_trials_of_one_task_are_trajectories_of_their_own() -> None:
    trials = [
        {"task_id": 3, "trial": trial, "reward": 0.0, "info": {}, "traj": TALK} for trial in (0, 1)
    ]
    events = events_of(trials, Format.TRAJECTORIES)
    assert len({e.trajectory_id for e in events if isinstance(e, Step)}) == 2
    assert {event.task_key for event in events} == {"3"}
    assert sum(isinstance(event, Feedback) for event in events) == 2


def test_a_boolean_reward_stays_one_and_none_is_no_feedback() -> None:
    *_, reward = events_of([{"messages": TALK, "reward": True}], Format.MESSAGES)
    assert reward.value is True
    assert len(events_of([{"messages": TALK, "reward": None}], Format.MESSAGES)) == 2


def test_a_corrected_reward_rates_the_same_trajectory_under_the_same_id() -> None:
    before, after = (
        events_of([{"messages": TALK, "reward": value}], Format.MESSAGES)[-1] for value in (0, 1)
    )
    assert before.target == after.target
    assert before.reward_id == after.reward_id


def test_only_an_eligible_tenant_is_eligible() -> None:
    plain = {"type": "step", "trajectory_id": "t", "governance": {"training_eligible": True}}
    for values, file_format in (([TALK], Format.MESSAGES), ([plain], Format.ATDP)):
        for eligible in (False, True):
            step = events_of(values, file_format, mint(training_eligible=eligible))[0]
            assert step.governance.training_eligible is eligible


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
messages = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "user", "assistant", "tool"]),
    texts,
)
talks = st.lists(messages, min_size=1, max_size=12).map(
    lambda said: [*said, {"role": "assistant", "content": "done"}]
)


@given(st.lists(talks, min_size=1, max_size=5))
def test_steps_hold_every_message_once_and_ids_repeat_but_never_collide(
    conversations: list[Any],
) -> None:
    events = events_of(conversations, Format.MESSAGES)
    assert events == events_of(conversations, Format.MESSAGES)
    assert len({event.step_id for event in events}) == len(events)
    assert len({event.event_id for event in events}) == len(events)
    assert len({event.trajectory_id for event in events}) == len(conversations)
    bodies = [
        json.loads(m.body)
        for e in events
        for m in (*e.observation.new_messages, *e.action_and_result.output)
    ]
    assert bodies == [message for talk in conversations for message in talk]


@given(st.lists(talks, min_size=1, max_size=4), talks)
def test_a_file_that_has_grown_keeps_its_ids(conversations: list[Any], added: Any) -> None:
    before = [e.step_id for e in events_of(conversations, Format.MESSAGES)]
    after = [e.step_id for e in events_of([*conversations, added], Format.MESSAGES)]
    assert after[: len(before)] == before


def test_ids_differ_between_tenants_and_between_keys() -> None:
    steps = [
        events_of([TALK], Format.MESSAGES, at)[0]
        for at in (mint(), mint(tenant="other"), mint(key=b"other"))
    ]
    assert len({step.step_id for step in steps}) == 3


def test_atdp_fills_in_ids_and_times_and_keeps_those_given() -> None:
    lines = [
        {"type": "step", "trajectory_id": "t"},
        {"type": "step", "trajectory_id": "t"},
        {"type": "step", "trajectory_id": "t", "step_id": "mine", "event_id": "mine-too",
         "started_at": "2026-02-03T04:05:06+00:00"},
        {"type": "trajectory_end", "trajectory_id": "t"},
        {"type": "feedback", "target": {"step_id": "mine"}, "name": "n", "value": 1},
        {"type": "feedback", "reward_id": "r", "target": {"step_id": "mine"}, "name": "n",
         "value": False, "rater_id": "judge-1"},
    ]  # fmt: skip
    events = events_of(lines, Format.ATDP)
    assert events == events_of(lines, Format.ATDP)
    first, twin, given_step, end, feedback, rated = events
    assert first.step_id != twin.step_id
    assert (given_step.step_id, given_step.event_id) == ("mine", "mine-too")
    assert given_step.started_at == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert isinstance(end, TrajectoryEnd)
    assert feedback.reward_id
    assert (rated.reward_id, rated.value, rated.rater_id) == ("r", False, "judge-1")
    assert first.started_at < twin.started_at < end.occurred_at < rated.occurred_at


@pytest.mark.parametrize(
    ("value", "file_format", "field"),
    [
        ({"messages": []}, Format.MESSAGES, "messages"),
        ({"messages": [{"content": "x"}]}, Format.MESSAGES, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, Format.MESSAGES, "messages"),
        ({"messages": TALK, "trajectory_id": "a b"}, Format.MESSAGES, "trajectory_id"),
        ({"messages": TALK, "reward": "1"}, Format.MESSAGES, "reward"),
        ({"messages": TALK, "reward": float("nan")}, Format.MESSAGES, "reward"),
        ({"messages": TALK, "tools": [1]}, Format.MESSAGES, "tools"),
        ({"messages": TALK, "rewards": 1}, Format.MESSAGES, None),
        ({"task_id": 1}, Format.TRAJECTORIES, "traj"),
        ({"type": "gossip"}, Format.ATDP, "type"),
        ([1], Format.ATDP, "type"),
        ({"type": "step"}, Format.ATDP, "trajectory_id"),
        ({"type": "step", "trajectory_id": "t", "agent_id": "ü"}, Format.ATDP, "agent_id"),
        ({"type": "step", "trajectory_id": "t", "tenant_id": "x"}, Format.ATDP, "tenant_id"),
        (
            {"type": "feedback", "target": {"step_id": "s"}, "name": "n", "value": "x"},
            Format.ATDP,
            "value",
        ),
    ],
)
def test_a_fault_names_the_line_and_the_field(
    value: Any, file_format: Format, field: str | None
) -> None:
    problem = problem_of(value, file_format)
    assert (problem.where, problem.field) == ("line 1", field)
    assert problem.text


def test_a_fault_never_quotes_the_file() -> None:
    plain = {"type": "step", "trajectory_id": "t", "lineage": {"step_index": "ada@example.org"}}
    assert "ada@" not in str(problem_of(plain, Format.ATDP))


@pytest.mark.parametrize(
    ("text", "file_format", "wheres"),
    [
        (json.dumps(TALK), Format.MESSAGES, ["element 1"]),
        (json.dumps(TALK, indent=2), Format.MESSAGES, ["element 1"]),
        (json.dumps([TALK, TALK]), Format.MESSAGES, ["element 1", "element 2"]),
        (f"{json.dumps(TALK)}\n\n{json.dumps(TALK)}\n", Format.MESSAGES, ["line 1", "line 3"]),
        (json.dumps({"messages": TALK}, indent=1), Format.MESSAGES, ["element 1"]),
        ('{"messages": []}\n{"messages": []}', Format.MESSAGES, ["line 1", "line 2"]),
        ('{"type": "step"}\r\n', Format.ATDP, ["line 1"]),
        ('[{"type": "feedback"}]', Format.ATDP, ["element 1"]),
        ('[{"traj": []}, {"traj": []}]', Format.TRAJECTORIES, ["element 1", "element 2"]),
        ('\ufeff{"type": "step"}\n{"type": "step"}', Format.ATDP, ["line 1", "line 2"]),
    ],
)
def test_the_format_is_told_by_the_first_entry(
    tmp_path: Path, text: str, file_format: Format, wheres: list[str]
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    entries = list(read_entries(file))
    assert [entry.where for entry in entries] == wheres
    assert detect(entries) is file_format


def test_a_broken_line_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(b'{"type": "step"}\n{"type": "feedback", "value": NaN}\n{"type": "step"}\n')
    _, broken, last = read_entries(file)
    assert isinstance(broken, Problem)
    assert broken.where == "line 2"
    assert isinstance(last, Entry)


def test_a_long_first_line_is_read_as_a_line(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    line = json.dumps({"messages": [{"role": "assistant", "content": "x" * 100_000}]})
    file.write_text(f"{line}\n{line}\n")
    assert [entry.where for entry in read_entries(file)] == ["line 1", "line 2"]


@pytest.mark.parametrize("text", ["", "[]", "hello", '{"role": 1}', "[1, 2]", "{}"])
def test_a_file_of_no_known_format_is_refused_with_advice(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ConfigError, match="--format"):
        detect(read_entries(file))
