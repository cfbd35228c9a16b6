"""Files that training libraries read, written row by row: a trajectory and a group of rows of the
file are in memory at a time."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from infra.training_rows import (
    Conversation,
    Message,
    conversations,
    openai_row,
    trl_row,
    verl_row,
)

if TYPE_CHECKING:
    import pyarrow

    from infra.store import Reader

TrainingFormat = Literal["openai-jsonl", "trl", "verl"]
_NUM_GROUP_ROWS = 500
_MAX_GROUP_CHARACTERS = 16 * 1024**2
_SQL = """
SELECT s.tenant_id AS tenant_id, s.trajectory_id AS trajectory_id, s.step_id AS step_id,
    s.parent_step_id AS parent_step_id, coalesce(t.task_key, s.task_key) AS task_key,
    s.new_messages AS new_messages, s.output AS output, t.reward AS reward
FROM (SELECT * FROM steps WHERE attempt_of IS NULL) AS s
INNER JOIN (
    SELECT tenant_id, trajectory_id, task_key, reward FROM trajectories WHERE {where}
) AS t
USING (tenant_id, trajectory_id)
ORDER BY tenant_id, trajectory_id, s.step_index, step_id
"""


def stored_conversations(reader: "Reader", where: str) -> Iterator[Conversation]:
    """The conversations of the trajectories that `where` chooses, as they arrive."""
    lines = reader.lines(_SQL.format(where=where), "JSONEachRow")
    return conversations(json.loads(line) for line in lines if line)


def write_training_file(
    reader: "Reader",
    where: str,
    file_format: TrainingFormat,
    success: float,
    file: BinaryIO,
    advance: Callable[[int], None],
) -> int:
    """Write the conversations of the trajectories that `where` chooses; how many there were."""
    talks = stored_conversations(reader, where)
    if file_format == "openai-jsonl":
        return _write_lines(talks, file, advance)
    return _write_parquet(talks, file_format, success, file, advance)


def _write_lines(
    talks: Iterator[Conversation], file: BinaryIO, advance: Callable[[int], None]
) -> int:
    number = 0
    for talk in talks:
        file.write(json.dumps(openai_row(talk), ensure_ascii=False).encode() + b"\n")
        number += 1
        advance(1)
    return number


def _write_parquet(
    talks: Iterator[Conversation], file_format: str, success: float, file: BinaryIO,
    advance: Callable[[int], None],
) -> int:  # fmt: skip
    import pyarrow as pa
    import pyarrow.parquet

    schema = _trl_schema(pa) if file_format == "trl" else _verl_schema(pa)
    number = 0
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for group in _groups(talks):
            rows = [
                trl_row(talk, success) if file_format == "trl" else verl_row(talk) for talk in group
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            number += len(rows)
            advance(len(rows))
    return number


def _groups(talks: Iterator[Conversation]) -> Iterator[list[Conversation]]:
    group: list[Conversation] = []
    num_characters = 0
    for talk in talks:
        group.append(talk)
        num_characters += sum(map(_num_characters, talk.messages))
        if len(group) >= _NUM_GROUP_ROWS or num_characters >= _MAX_GROUP_CHARACTERS:
            yield group
            group, num_characters = [], 0
    if group:
        yield group


def _num_characters(message: Message) -> int:
    calls = message["tool_calls"] or ()
    arguments = (call["function"]["arguments"] for call in calls)
    return len(message["content"]) + sum(map(len, arguments))


def _messages(pa: Any) -> "pyarrow.DataType":
    text = pa.string()
    function = pa.struct([("name", text), ("arguments", text)])
    call = pa.struct([("id", text), ("type", text), ("function", function)])
    message = pa.struct(
        [("role", text), ("content", text), ("tool_calls", pa.list_(call)), ("tool_call_id", text)]
    )
    return pa.list_(message)


def _origin(pa: Any) -> list[tuple[str, Any]]:
    names = ("task_key", "tenant_id", "trajectory_id", "last_step_id")
    return [(name, pa.string()) for name in names]


def _trl_schema(pa: Any) -> "pyarrow.Schema":
    messages = _messages(pa)
    parts = [("prompt", messages), ("completion", messages), ("label", pa.bool_())]
    return pa.schema([*parts, ("reward", pa.float64()), *_origin(pa)])


def _verl_schema(pa: Any) -> "pyarrow.Schema":
    model = pa.struct([("style", pa.string()), ("ground_truth", pa.string())])
    extra = pa.struct([("index", pa.int64()), ("reward", pa.float64()), *_origin(pa)])
    return pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", _messages(pa)),
            ("messages", _messages(pa)),
            ("ability", pa.string()),
            ("reward_model", model),
            ("extra_info", extra),
        ]
    )
