"""The chat dialect: whole answers, streams in every framing, hostile bytes."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import PermanentError
from streams.redaction.chat import (
    ChatResponse,
    canonical,
    dumps,
    loads,
    parse_request,
    parse_response,
)
from tests.unit.redaction_processor.streams import chunk, sse, tool_fragment

UNICODE = [chunk({"role": "assistant", "content": ""}), chunk({"content": "你"}),
           chunk({"content": "好🙂"}), chunk({}, finish_reason="stop")]  # fmt: skip


def parsed(body: bytes) -> ChatResponse:
    response = parse_response(body)
    assert response is not None
    return response


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("done", [True, False])
def test_the_text_is_exact_in_every_framing(end: str, done: bool) -> None:
    body = sse(UNICODE, end, done=done)
    assert parsed(body).outputs == ({"role": "assistant", "content": "你好🙂"},)
    assert parsed(body).finish_reason == "stop"
    assert parsed(b"\xef\xbb\xbf: ping" + end.encode() * 2 + body) == parsed(body)
    assert parsed(body.rstrip()) == parsed(body)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_stream_cut_at_any_byte_gives_a_prefix_and_never_raises(end: str) -> None:
    body = sse(UNICODE, end)
    for length in range(len(body) + 1):
        response = parse_response(body[:length])
        text = "".join(o["content"] or "" for o in response.outputs) if response else ""
        assert "你好🙂".startswith(text)
        assert "\ufffd" not in text


def test_a_whole_answer_cut_at_any_byte_never_raises() -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "é🙂"}}]}).encode()
    assert [n for n in range(len(body) + 1) if parse_response(body[:n])] == [len(body)]


def test_data_over_several_lines_and_comments_are_one_event() -> None:
    body = b'data: {"id":"a",\n: ping\ndata: "choices":[{"delta":{"content":"x"}}]}\n\n'
    assert parsed(b"event: x\nretry: 5\n" + body).outputs == (
        {"role": "assistant", "content": "x"},
    )


def test_parallel_tool_deltas_in_any_interleaving_become_whole_calls() -> None:
    first = [
        tool_fragment(0, "", id="a", name="f"),
        tool_fragment(0, '{"x":'),
        tool_fragment(0, "1}"),
    ]
    second = [
        tool_fragment(1, "", id="b", name="g"),
        tool_fragment(1, '{"y"'),
        tool_fragment(1, ":2}"),
    ]
    for seed in range(20):
        queues, mixed, rng = [list(first), list(second)], [], random.Random(seed)
        while any(queues):
            mixed.append(rng.choice([q for q in queues if q]).pop(0))
        (message,) = parsed(sse([chunk(delta) for delta in mixed])).outputs
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"])
                 for c in message["tool_calls"]]  # fmt: skip
        assert calls == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
        assert message["content"] is None


@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["one index for all", "no index"])
def test_servers_without_indices_keep_their_calls_apart(index: dict[str, int]) -> None:
    def fragment(arguments: str, **opener: str) -> dict[str, Any]:
        call = tool_fragment(0, arguments, **opener)["tool_calls"][0]
        call.pop("index")
        return chunk({"tool_calls": [call | index]})

    body = sse(
        [fragment('{"x"', id="a", name="f"), fragment(":1}"), fragment("{}", id="b", name="g")]
    )
    (message,) = parsed(body).outputs
    assert [c["function"] for c in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"x":1}'}, {"name": "g", "arguments": "{}"}]  # fmt: skip


def test_usage_without_choices_second_finish_reason_and_null_errors() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    body = sse([
        chunk({"content": "a"}, finish_reason="stop", error=None),
        chunk({}, finish_reason="length"),
        chunk(usage=usage),
    ])  # fmt: skip
    response = parsed(body)
    assert (response.usage, response.finish_reason, response.failed) == (usage, "stop", False)
    assert not parsed(b'{"choices": [], "error": null}').failed


def test_an_error_in_the_middle_keeps_what_came_before() -> None:
    response = parsed(sse([chunk({"content": "par"}), {"error": {"message": "x"}}], done=False))
    assert response.failed
    assert response.outputs[0]["content"] == "par"


def test_three_choices_stay_apart_with_one_usage_and_the_first_ones_tokens() -> None:
    body = sse([
        *(chunk({"content": text}, index=i, token_ids=[i]) for i, text in enumerate("abc")),
        chunk(usage={"completion_tokens": 3}),
    ])  # fmt: skip
    response = parsed(body)
    assert [o["content"] for o in response.outputs] == ["a", "b", "c"]
    assert (response.usage["completion_tokens"], response.token_ids) == (3, (0,))


def test_prompt_tokens_of_the_first_chunk_and_tokens_of_all() -> None:
    lp = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    body = sse([
        chunk({"role": "assistant", "content": ""}, prompt_token_ids=[1, 2]),
        chunk({"content": "a"}, token_ids=[7], logprobs=lp),
        chunk({"content": "b"}, token_ids=[8], logprobs=lp),
    ])  # fmt: skip
    response = parsed(body)
    assert response.prompt_token_ids == (1, 2)
    assert (response.token_ids, response.logprobs) == ((7, 8), (-0.5, -0.5))


@pytest.mark.parametrize("bad", [[-1], [2**32], [1.5], ["1"], [True], [[1]], [None], 10**400])
def test_token_ids_that_are_none_drop_all_of_them(bad: Any) -> None:
    body = sse([chunk({"content": "a"}, token_ids=[1]), chunk({"content": "b"}, token_ids=bad)])
    assert parsed(body).token_ids == ()
    assert parsed(body).outputs[0]["content"] == "ab"


def test_a_log_probability_beyond_any_float_is_dropped_not_raised() -> None:
    entries = [{"logprob": 10**400}, {"logprob": -1}, {"logprob": True}, {"logprob": "x"}]
    body = {"choices": [{"message": {}, "logprobs": {"content": entries}}]}
    assert parsed(json.dumps(body).encode()).logprobs == (-1.0,)


@pytest.mark.parametrize("broken", ["{", '{"x": NaN}', '{"x": 1e400}', "null junk"])
def test_an_unreadable_event_among_others_is_remembered(broken: str) -> None:
    body = sse([chunk({"content": "a"})], done=False) + f"data: {broken}\n\n".encode()
    response = parsed(body + sse([chunk({"content": "b"})]))
    assert (response.outputs[0]["content"], response.damaged) == ("ab", True)


def test_fields_that_no_dialect_promises_survive_a_stream() -> None:
    body = sse([
        chunk({"function_call": {"name": "f", "arguments": ""}, "thinking_blocks": [{"a": 1}]}),
        chunk({"function_call": {"arguments": "{}"}, "thinking_blocks": [{"b": 2}], "odd": "x"}),
        chunk({"odd": "y", "audio": {"data": "AA"}}),
    ])  # fmt: skip
    (message,) = parsed(body).outputs
    assert message["function_call"] == {"name": "f", "arguments": "{}"}
    assert message["thinking_blocks"] == [{"a": 1}, {"b": 2}]
    assert (message["odd"], message["audio"]) == ("xy", {"data": "AA"})


def test_big_integers_stay_and_numbers_out_of_range_are_no_json() -> None:
    assert loads('{"seed": 12345678901234567890}') == {"seed": 12345678901234567890}
    for text in ("NaN", "-Infinity", "1e400", "[" * 100_000, "9" * 5_000):
        with pytest.raises(ValueError, match=r"."):
            loads(text)


@pytest.mark.parametrize("depth", [300, 800, 950, 2_000])
def test_deep_json_is_refused_with_a_reason_wherever_it_is(depth: int) -> None:
    deep = b'{"content":' * depth + b"1" + b"}" * depth
    for body in (
        b'{"messages":[{"role":"user","content":' + deep + b"}]}",
        b'{"choices":[{"message":{"role":"assistant","content":' + deep + b"}}]}",
    ):
        request, response = parse_request(body), parse_response(body)
        found = [*(request.messages if request else ()), *(response.outputs if response else ())]
        for message in found:
            try:
                assert canonical(message)
            except PermanentError as error:
                assert error.field == "nesting"  # noqa: PT017
    stream = b'data: {"choices":[{"delta":{"x":' + deep + b"}}]}\n\n"
    parse_response(stream + stream)


def test_the_four_forms_of_no_content_are_one_for_lineage_and_stay_distinct() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    forms: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "assistant", "tool_calls": calls},
        {"role": "assistant", "content": [], "tool_calls": calls},
    ]
    assert len({canonical(form) for form in forms[:3]}) == 1
    request = parse_request(json.dumps({"messages": forms}).encode())
    assert request is not None
    assert list(request.messages) == forms
    assert canonical({"role": "assistant", "content": "a", "tool_calls": None}) == canonical(
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    )


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
CALLS = st.lists(
    st.builds(
        lambda name, arguments, n: {
            "id": f"call-{n}-{name}", "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        st.text("abc", min_size=1, max_size=5), TEXTS, st.integers(0, 10**6),
    ),
    max_size=3,
)  # fmt: skip


def pieces(text: str, rng: random.Random) -> list[str]:
    cuts = sorted(rng.sample(range(len(text) + 1), min(3, len(text) + 1)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def deltas_of(message: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    """The message as deltas, interleaved at random, each field in its own order."""
    queues = [[{"content": p} for p in pieces(message["content"], rng)]]
    queues.append([{"reasoning_content": p} for p in pieces(message["reasoning_content"], rng)])
    for i, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        opener = tool_fragment(i, "", id=call["id"], name=function["name"])
        queues.append([opener, *(tool_fragment(i, p) for p in pieces(function["arguments"], rng))])
    mixed: list[dict[str, Any]] = []
    while any(queues):
        mixed.append(rng.choice([q for q in queues if q]).pop(0))
    return mixed


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, CALLS, st.integers(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_stream_of_a_message_is_the_message(
    content: str, reasoning: str, calls: list[dict[str, Any]], seed: int, end: str
) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    whole = message | {"reasoning_content": reasoning} if reasoning else message
    whole = whole | {"tool_calls": calls} if calls else whole
    full = {"content": content, "reasoning_content": reasoning, "tool_calls": calls}
    chunks = [chunk(delta) for delta in deltas_of(full, random.Random(seed))]
    response = parsed(sse(chunks, end))
    assert response.outputs == (whole,)
    answer = {"id": "chatcmpl-s", "model": "m", "choices": [{"index": 0, "message": whole}]}
    assert parsed(json.dumps(answer).encode()).outputs == response.outputs


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["choices", "delta", "message", "tool_calls", "function", "index", "id",
                         "content", "usage", "logprobs", "token_ids", "role", "error", "x"]),
        inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(JSON, max_size=4), st.binary(max_size=40))
def test_no_json_and_no_bytes_raise(values: list[Any], noise: bytes) -> None:
    bodies = [json.dumps(value).encode() for value in values]
    stream = b"".join(b"data: " + body + b"\n\n" for body in bodies)
    for body in (*bodies, stream, noise, stream + noise):
        parse_request(body)
        response = parse_response(body)
        for message in response.outputs if response else ():
            canonical(message)
            dumps(message, ascii_only=False)
