"""How a trajectory is told: messages of every dialect, placeholders, conditions, JSON arrays."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.cli.export import condition_of
from infra.cli.query import cell, json_array
from infra.store import explain
from infra.transcript import Part, parts_of, policy_versions, redaction_counts, turns_of
from schemas.errors import ConfigError, TransientError

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)

CASES = [
    ({"role": "user", "content": "hello"}, [Part("text", "hello")]),
    ({"role": "user", "content": None}, []),
    ({"role": "user", "content": ""}, []),
    ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
     [Part("text", "a"), Part("other", "image_url")]),
    ({"role": "tool", "tool_call_id": "c", "content": "42"}, [Part("result", "42")]),
    ({"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
     [Part("call", '{"a": 1}', "f")]),
    ({"role": "assistant", "reasoning_content": "hm", "content": "yes"},
     [Part("reasoning", "hm"), Part("text", "yes")]),
    ({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "g", "input": {"b": 2}}]},
     [Part("reasoning", "hm"), Part("call", '{"b": 2}', "g")]),
    ({"role": "user", "content": [
        {"type": "tool_result", "content": [{"type": "text", "text": "ok"}]}]},
     [Part("result", "ok")]),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, [Part("call", "{}", "f")]),
    ({"type": "function_call_output", "output": "done"}, [Part("result", "done")]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), CASES)
def test_a_message_of_any_dialect_has_its_parts(
    message: dict[str, object], expected: list[Part]
) -> None:
    assert list(parts_of(json.dumps(message))) == expected


def test_text_that_is_no_json_stays_as_it_is() -> None:
    assert parts_of("plain {") == (Part("text", "plain {"),)
    assert parts_of("[1, 2]") == (Part("text", "[1, 2]"),)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "type", "content", "tool_calls", "function", "text"]) | st.text(),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON)
@example({"tool_calls": True})
@example({"tool_calls": {"function": 1.5}})
def test_no_message_breaks_the_reader(value: object) -> None:
    for part in parts_of(json.dumps(value)):
        assert isinstance(part.text, str)


def test_placeholders_belong_to_their_message() -> None:
    span = {"kind": "EMAIL", "start": 0, "end": 3, "placeholder": "<E>"}
    bodies = [json.dumps({"role": "user", "content": f"{i} <E>"}) for i in range(11)]
    step = {
        "new_messages": bodies,
        "new_message_roles": ["user"] * 11,
        "output": [],
        "output_roles": [],
        "redactions": [{**span, "path": "new_messages/1/content"}],
        "policy_versions": [2, 3],
    }
    marked = [i for i, turn in enumerate(turns_of(step)) if turn.placeholders]
    assert marked == [1]  # and not 10, whose number begins with 1
    assert redaction_counts([step, step]) == [("EMAIL", 2)]
    assert policy_versions([step, {**step, "policy_versions": [3, 4]}]) == [2, 3, 4]


@pytest.mark.parametrize(
    ("where", "since", "expected"),
    [
        ("", "", "true"),
        ("reward > 0 OR reward IS NULL", "", "(reward > 0 OR reward IS NULL)"),
        ("", "90m", f"started_at >= fromUnixTimestamp64Micro({int(NOW.timestamp()) - 5400}000000"),
        ("", "7d", f"started_at >= fromUnixTimestamp64Micro({int(NOW.timestamp()) - 604800}000000"),
        ("a = 1", "2026-03-14T13:00:00+01:00",
         f"(a = 1) AND started_at >= fromUnixTimestamp64Micro({int(NOW.timestamp())}000000"),
    ],
)  # fmt: skip
def test_conditions(where: str, since: str, expected: str) -> None:
    assert condition_of(where, since, NOW).removesuffix(", 'UTC')") == expected


def test_a_time_that_cannot_be_read_is_explained() -> None:
    with pytest.raises(ConfigError, match="ISO time"):
        condition_of("", "last week", NOW)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_lines_become_one_array(number: int) -> None:
    lines = [b'{"n": %d}' % index for index in range(number)]
    text = b"".join(json_array(iter(lines)))
    assert json.loads(text) == [{"n": index} for index in range(number)]


def test_cells_are_short_and_on_one_line() -> None:
    assert cell("a\nb") == "a⏎b"
    assert len(cell("x" * 5000)) == 120
    assert cell(None) == ""
    assert cell(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02 03:04:05"


class _RefusalError(Exception):
    """An error as the client library raises it: a sentence and a code."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


def test_what_clickhouse_says_is_shown_without_its_trailer() -> None:
    text = (
        "HTTPDriver for http://127.0.0.1:1 returned code 60. Code: 60. DB::Exception: Unknown "
        "table 'steps'. (UNKNOWN_TABLE) (version 26.9.2.1 (chDB)) (for url http://127.0.0.1:1)"
    )
    told = explain(_RefusalError(text, 60), "127.0.0.1:1")
    assert isinstance(told, ConfigError)
    assert str(told) == (
        "ClickHouse: Unknown table 'steps'. (UNKNOWN_TABLE) `headrace migrate` makes the tables."
    )


def test_a_busy_or_absent_store_is_not_the_querys_fault() -> None:
    assert isinstance(explain(_RefusalError("no answer", None), "h:1"), TransientError)
    busy = _RefusalError("Code: 241. DB::Exception: Memory limit (MEMORY_LIMIT_EXCEEDED)", 241)
    assert isinstance(explain(busy, "h:1"), TransientError)
