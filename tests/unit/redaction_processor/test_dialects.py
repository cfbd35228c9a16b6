"""Messages, Responses and Completions: a stream is the same answer as the whole, however it is
cut; what clients send back is known again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.redaction.chat import ChatResponse
from streams.redaction.dialects import completions, messages, responses
from streams.redaction.dialects.registry import Dialect, dialect_of, kind_aside, reader_of
from tests import model_answers as answers

TEXTS = st.text(max_size=20)
INPUTS = st.dictionaries(st.text(max_size=5), st.one_of(TEXTS, st.integers()), max_size=3)
TEXT = st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
THINKING = st.builds(
    lambda text: {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"}, TEXTS
)
SEALED = st.just({"type": "redacted_thinking", "data": "c2VhbGVk"})
TOOL_USE = st.builds(
    lambda given: {"type": "tool_use", "id": "toolu_1", "name": "f", "input": given}, INPUTS
)
BLOCKS = st.lists(st.one_of(TEXT, THINKING, SEALED, TOOL_USE), min_size=1, max_size=4)
CALL = st.builds(
    lambda given: {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
                   "arguments": json.dumps(given), "status": "completed"}, INPUTS)  # fmt: skip
SAID = st.builds(
    lambda text: {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": text, "annotations": []}]},
    TEXTS)  # fmt: skip
REASONING = st.builds(
    lambda text: {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbGVk",
                  "summary": [{"type": "summary_text", "text": text}]}, TEXTS)  # fmt: skip
ITEMS = st.lists(st.one_of(CALL, SAID, REASONING), min_size=1, max_size=4)


def read(dialect: Any, body: bytes) -> ChatResponse:
    found = dialect.parse_response(body)
    assert isinstance(found, ChatResponse)
    return found


@given(BLOCKS, st.sampled_from([b"\n", b"\r\n", b"\r"]))
@settings(max_examples=60, deadline=None)
def test_a_streamed_message_is_the_message(blocks: list[Any], end: bytes) -> None:
    said = {"content": blocks}
    whole = read(messages, answers.dumps(answers.messages_object(said, "1")))
    stream = answers.sse(answers.messages_stream(said, "1")).replace(b"\n", end)
    assert read(messages, stream) == whole
    assert whole.outputs == ({"role": "assistant", "content": blocks},)


@given(ITEMS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_streamed_response_is_the_response(items: list[Any], empty: bool) -> None:
    whole = read(responses, answers.dumps(answers.responses_object(items, "1")))
    events = answers.responses_stream(items, "1")
    if empty:  # some servers leave the answer out of the last event
        events[-1] = {**events[-1], "response": {**events[-1]["response"], "output": []}}
    assert read(responses, answers.sse(events)) == whole
    assert whole.outputs == ({"role": "assistant", "content": items},)


THOUGHT = {"type": "thinking", "thinking": "你好🙂", "signature": "c2ln"}
CALLED = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "é"}}
MESSAGE = {"content": [THOUGHT, CALLED]}
RESPONSE = [
    {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"a":"你"}'},
    {"type": "message", "id": "m", "role": "assistant",
     "content": [{"type": "output_text", "text": "🙂 你好", "annotations": []}]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "stream"),
    [
        (messages, answers.sse(answers.messages_stream(MESSAGE, "1"))),
        (responses, answers.sse(answers.responses_stream(RESPONSE, "1"))),
    ],
    ids=["messages", "responses"],
)
def test_a_stream_cut_at_any_byte_gives_what_came_and_never_raises(
    dialect: Any, stream: bytes
) -> None:
    for cut in range(len(stream)):
        found = dialect.parse_response(stream[:cut])
        if found is not None and found.outputs:
            text = json.dumps(found.outputs, ensure_ascii=False)
            assert "\ufffd" not in text.replace("\ufffd", "", 1), "only the cut itself may show"


def test_usage_of_messages_is_the_last_total_with_the_cached_tokens() -> None:
    events = answers.messages_stream({"content": "hi"}, "1")
    events[0]["message"]["usage"] |= {"cache_read_input_tokens": 7}
    found = read(messages, answers.sse(events))
    assert found.usage["prompt_tokens"] == 12
    assert found.usage["completion_tokens"] == 2
    assert found.finish_reason == "end_turn"


def test_errors_in_a_stream_keep_what_came_before() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}
    events = answers.messages_stream({"content": "hello"}, "1")
    found = read(messages, answers.sse([*events[:4], error]))
    assert found.failed
    assert found.outputs[0]["content"][0]["text"] == "he"
    failed = {**answers.responses_object([], "1"), "status": "failed", "error": {"code": "x"}}
    found = read(responses, answers.sse([{"type": "response.failed", "response": failed}]))
    assert (found.failed, found.outputs, found.finish_reason) == (True, (), "failed")
    cut = {**failed, "status": "incomplete", "error": None,
           "incomplete_details": {"reason": "max_output_tokens"}}  # fmt: skip
    found = read(responses, answers.dumps(cut))
    assert (found.failed, found.finish_reason) == (False, "max_output_tokens")


def test_a_completion_is_read_whole_and_streamed() -> None:
    body = answers.dumps(answers.completion_object({"content": "4"}, "1"))
    assert read(completions, body).outputs == ({"role": "assistant", "content": "4"},)
    chunks = [{"choices": [{"index": 0, "text": text, "token_ids": [n],
                            "logprobs": {"token_logprobs": [-0.5]}}]}
              for n, text in enumerate("42")]  # fmt: skip
    found = read(completions, answers.sse([*chunks, "[DONE]"]))
    assert found.outputs == ({"role": "assistant", "content": "42"},)
    assert (found.token_ids, found.logprobs) == ((0, 1), (-0.5, -0.5))
    request = completions.parse_request(b'{"model": "m", "prompt": ["a", "b"]}')
    assert request is not None
    assert [message["content"] for message in request.messages] == ["a", "b"]
    assert completions.parse_request(b'{"prompt": [1, 2]}') is None, "tokens cannot be looked at"


def reader(name: str) -> Dialect:
    found = reader_of(name)
    assert found is not None
    return found


@given(BLOCKS)
def test_cache_marks_and_thinking_do_not_change_a_message(blocks: list[Any]) -> None:
    bare = [block for block in blocks if "thinking" not in block["type"]]
    marked = [{**block, "cache_control": {"type": "ephemeral"}} for block in bare]
    made = {messages.canonical({"role": "assistant", "content": c}) for c in (blocks, bare, marked)}
    assert len(made) == 1


@given(ITEMS)
def test_an_answer_is_known_again_without_its_reasoning_and_ids(items: list[Any]) -> None:
    names = ("id", "status", "annotations")
    sent = [{n: v for n, v in item.items() if n not in names} for item in items]
    back = [i for i in sent if i["type"] != "reasoning"]
    ends = reader("openai.responses").ends_of({"content": items})
    assert [responses.canonical(item) for item in back] == list(ends)


@given(st.recursive(st.one_of(st.none(), st.integers(), TEXTS),
                    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
                        st.sampled_from(["type", "content", "text", "message", "delta", "index",
                                         "item", "response", "output", "output_index", "error",
                                         "messages", "input", "role", "usage", "content_block"]),
                        inner, max_size=4)), max_leaves=12))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_json_raises(value: Any) -> None:
    body = json.dumps(value).encode()
    for dialect in (messages, responses, completions):
        dialect.parse_request(body)
        dialect.parse_response(body)
        dialect.parse_response(answers.sse([value]))


def test_paths_have_their_dialect_and_kind() -> None:
    assert dialect_of("POST", "/v1/messages") == "anthropic.messages"
    assert dialect_of("POST", "/openai/v1/chat/completions") == "openai.chat"
    assert dialect_of("GET", "/v1/responses") == "unknown"
    assert kind_aside("POST", "openai.chat") is None
    for method, path in (("GET", "/v1/models"), ("HEAD", "/"), ("POST", "/v1/embeddings"),
                         ("POST", "/v1/messages/count_tokens")):  # fmt: skip
        assert kind_aside(method, dialect_of(method, path)) is not None
