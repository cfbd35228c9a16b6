"""Rows for training libraries: conversations of every dialect, a branch each, streamed."""

import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow.json
import pyarrow.parquet
import pytest

from infra.training_files import write_training_file
from infra.training_rows import chat_messages, conversations, openai_row, trl_row, verl_row


def step(
    number: int, parent: int | None, new: list[Any], output: list[Any], **given: Any
) -> dict[str, Any]:
    return {
        "tenant_id": "acme", "trajectory_id": "t", "step_id": f"s{number}",
        "parent_step_id": None if parent is None else f"s{parent}", "task_key": "k",
        "reward": 1.0, "new_messages": [json.dumps(m) for m in new],
        "output": [json.dumps(m) for m in output],
    } | given  # fmt: skip


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


TRUNK = [
    step(0, None, [said("system", "be kind"), said("user", "hi")], [said("assistant", "hello")]),
    step(1, 0, [said("assistant", "hello"), said("user", "bye")], [said("assistant", "so long")]),
]


def test_a_conversation_is_that_of_its_branch() -> None:
    other = step(2, 0, [said("user", "stay")], [said("assistant", "gladly")])
    found = [*conversations([*TRUNK, other])]
    assert [(talk.last_step_id, talk.index) for talk in found] == [("s1", 0), ("s2", 1)]
    contents = [[message["content"] for message in talk.messages] for talk in found]
    assert contents[1] == ["be kind", "hi", "hello", "stay", "gladly"]
    assert [talk.num_prompt for talk in found] == [2, 2]


def test_a_branch_without_its_beginning_or_an_answer_is_left_out() -> None:
    assert [*conversations([TRUNK[1]])] == []
    assert [*conversations([step(0, None, [said("user", "hi")], [])])] == []
    circle = [step(0, 1, [], [said("assistant", "a")]), step(1, 0, [], [said("assistant", "b")]),
              step(2, 1, [], [said("assistant", "c")])]  # fmt: skip
    assert [*conversations(circle)] == []


def test_an_answer_is_the_first_choice() -> None:
    choices = step(0, None, [said("user", "hi")], [said("assistant", "a"), said("assistant", "b")])
    [talk] = conversations([choices])
    assert [message["content"] for message in talk.messages] == ["hi", "a"]


def test_messages_of_every_dialect_are_chat_messages() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    chat = {"role": "assistant", "content": None, "tool_calls": [call]}
    use = {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"a": 1}},
    ]}  # fmt: skip
    result = {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "4"}]},
        {"type": "text", "text": "and?"},
    ]}  # fmt: skip
    [one] = chat_messages(json.dumps(chat))
    [other] = chat_messages(json.dumps(use))
    assert one["tool_calls"] == other["tool_calls"] == [call]
    assert (one["content"], other["content"]) == ("", "look")
    answered = [*chat_messages(json.dumps(result))]
    assert [(m["role"], m["content"], m["tool_call_id"]) for m in answered] == [
        ("tool", "4", "c1"), ("user", "and?", None),
    ]  # fmt: skip
    items = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "look"}]},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"a": 1}'},
    ]  # fmt: skip
    output = {"type": "function_call_output", "call_id": "c1", "output": "4"}
    [talk] = conversations(
        [step(0, None, [said("user", "go")], items), step(1, 0, [output], [said("assistant", "4")])]
    )
    assert [m["role"] for m in talk.messages] == ["user", "assistant", "tool", "assistant"]
    assert talk.messages[1]["tool_calls"] == [call]
    assert talk.messages[1]["content"] == "look"
    assert talk.messages[2]["tool_call_id"] == "c1"


def test_rows_have_what_is_documented() -> None:
    [talk] = conversations(TRUNK)
    assert openai_row(talk)["messages"][0] == {"role": "system", "content": "be kind"}
    row = trl_row(talk, success=0.5)
    assert [m["content"] for m in row["prompt"]] == ["be kind", "hi"]
    assert [m["content"] for m in row["completion"]] == ["hello", "hello", "bye", "so long"]
    assert (row["label"], row["reward"]) == (True, 1.0)
    [unrated] = conversations([TRUNK[0] | {"reward": None}])
    assert trl_row(unrated, success=0.5)["label"] is None
    assert verl_row(talk)["extra_info"]["reward"] == 1.0


class Steps:
    """A store that gives a trajectory for each list of new messages."""

    def __init__(self, *new: list[Any]) -> None:
        self._new = new

    def lines(self, _sql: str, _format_name: str) -> Iterator[bytes]:
        for number, new in enumerate(self._new):
            row = step(0, None, new, [said("assistant", "done")])
            yield json.dumps(row | {"trajectory_id": f"t{number}"}).encode()


@pytest.mark.parametrize("file_format", ["trl", "verl"])
def test_ids_that_are_no_text_become_text(file_format: Any) -> None:
    result = {"role": "tool", "content": "4", "tool_call_id": 7}
    file = io.BytesIO()
    write_training_file(
        Steps([result]), "true", file_format, 0.5, file, lambda _: None  # type: ignore[arg-type]
    )  # fmt: skip
    [row] = pyarrow.parquet.read_table(io.BytesIO(file.getvalue())).to_pylist()
    assert row["prompt"][0]["tool_call_id"] == "7"


def test_a_group_of_rows_is_bounded_by_the_arguments_of_calls_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("infra.training_files._MAX_GROUP_CHARACTERS", 1_000)
    function = {"name": "write", "arguments": "x" * 600}
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    file = io.BytesIO()
    write_training_file(
        Steps(*[[call]] * 6), "true", "trl", 0.5, file, lambda _: None  # type: ignore[arg-type]
    )  # fmt: skip
    assert pyarrow.parquet.ParquetFile(file).num_row_groups == 3


class Lines:
    """A store that gives many trajectories, and knows how many were taken."""

    def __init__(self, number: int, num_characters: int) -> None:
        self._number, self._text = number, "x" * num_characters

    def lines(self, sql: str, format_name: str) -> Iterator[bytes]:
        assert "WHERE reward > 0" in sql
        assert format_name == "JSONEachRow"
        for number in range(self._number):
            row = step(0, None, [said("user", "hi")], [said("assistant", self._text)])
            yield json.dumps(row | {"trajectory_id": f"t{number}"}).encode()


@pytest.mark.parametrize("file_format", ["openai-jsonl", "trl", "verl"])
def test_files_are_read_by_arrow_whole(file_format: Any) -> None:
    file = io.BytesIO()
    told: list[int] = []
    number = write_training_file(
        Lines(1_200, 10), "reward > 0", file_format, 0.5, file, told.append  # type: ignore[arg-type]
    )  # fmt: skip
    assert number == sum(told) == 1_200
    if file_format == "openai-jsonl":
        table = pyarrow.json.read_json(io.BytesIO(file.getvalue()))
    else:
        table = pyarrow.parquet.read_table(io.BytesIO(file.getvalue()))
        assert pyarrow.parquet.ParquetFile(file).num_row_groups == 3
    assert table.num_rows == 1_200
    key = "messages" if file_format != "trl" else "completion"
    assert table.to_pylist()[1_199][key][-1]["content"] == "x" * 10


def test_what_is_written_is_not_held() -> None:
    class Sink(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    tracemalloc.start()
    write_training_file(
        Lines(400, 250_000), "reward > 0", "openai-jsonl", 0.5, Sink(), lambda _: None  # type: ignore[arg-type]
    )  # fmt: skip
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000  # of 100 MB


def test_data_sets_of_hugging_face_load_them(tmp_path: Any) -> None:
    datasets = pytest.importorskip("datasets")
    for name in ("trl", "verl"):
        path = tmp_path / f"{name}.parquet"
        with path.open("wb") as file:
            write_training_file(
                Lines(3, 10), "reward > 0", name, 0.5, file, lambda _: None  # type: ignore[arg-type]
            )  # fmt: skip
        loaded = datasets.load_dataset(
            "parquet", data_files=str(path), cache_dir=str(tmp_path / "cache")
        )
        assert loaded["train"][0]["prompt"] == [
            {"role": "user", "content": "hi", "tool_calls": None, "tool_call_id": None}
        ]
