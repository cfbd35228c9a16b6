"""What the engine is asked beside the client, and that the client sees no difference."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.dialects.json_spans import UnreadableError
from inference.dialects.tokens import (
    CHAT,
    COMPLETIONS,
    Asked,
    StreamView,
    WholeView,
    ask,
    hide,
    view_of,
)

BODY = (
    b'{ "messages":[{"role":"user","content":"a\\u00e9 \\" ] b"}],"seed":12345678901234567890,'
    b'\t"t":1e0}\n'
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ids = st.lists(st.integers(0, 150_000), max_size=5)


def asked(path: str, body: bytes | dict[str, Any]) -> Asked:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = ask(path, text)
    assert found is not None
    return found


# --- the request ------------------------------------------------------------------------------


def test_the_clients_bytes_stay_as_they_are() -> None:
    found = asked(CHAT, BODY)
    assert found.body == BODY.replace(b"{", b'{"return_token_ids":true,"logprobs":true,', 1)
    assert found.added == ("return_token_ids", "logprobs")
    assert asked(COMPLETIONS, b'{"prompt":"a"}').body == (
        b'{"return_token_ids":true,"logprobs":0,"prompt":"a"}'
    )


@pytest.mark.parametrize("value", [b"false", b"null"])
def test_what_the_client_switched_off_is_switched_on_in_its_place(value: bytes) -> None:
    body = b'{"a": {"logprobs": 1}, "logprobs" : ' + value + b' ,"messages":[]}'
    assert asked(CHAT, body).body == (
        b'{"return_token_ids":true,"a": {"logprobs": 1}, "logprobs" : true ,"messages":[]}'
    )


def test_every_one_of_several_equal_names_is_changed() -> None:
    assert asked(CHAT, b'{"logprobs":true,"logprobs":false}').body == (
        b'{"return_token_ids":true,"logprobs":true,"logprobs":true}'
    )


@pytest.mark.parametrize(
    ("path", "request_", "added"),
    [
        (CHAT, {"logprobs": True}, ("return_token_ids",)),
        (CHAT, {"logprobs": True, "top_logprobs": 3}, ("return_token_ids",)),
        (CHAT, {"return_token_ids": True}, ("logprobs",)),
        (CHAT, {"top_logprobs": 3}, ("return_token_ids",)),
        (COMPLETIONS, {"logprobs": 2}, ("return_token_ids",)),
        (COMPLETIONS, {"logprobs": 0}, ("return_token_ids",)),
        (COMPLETIONS, {"logprobs": None}, ("return_token_ids", "logprobs")),
    ],
)  # fmt: skip
def test_what_the_client_asks_itself_or_must_be_refused_stays(
    path: str, request_: dict[str, Any], added: tuple[str, ...]
) -> None:
    found = asked(path, request_)
    assert found.added == added
    fields = json.loads(found.body)
    assert {name: fields[name] for name in request_ if name not in added} == {
        name: value for name, value in request_.items() if name not in added
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b""), (CHAT, b"{}"), (CHAT, b"[1]"), (CHAT, b"\x1f\x8b\x08"), (CHAT, b'{"a":1'),
        (CHAT, b'{"logprobs":true,"return_token_ids":true}'),
        (CHAT, b'{"\\u006cogprobs":false}'), (CHAT, b'{"echo":true}'),
        (COMPLETIONS, b'{"prompt":"a","echo":true}'), (COMPLETIONS, b'{"use_beam_search":true}'),
        ("/v1/embeddings", b'{"input":"a"}'), ("/v1/messages", b'{"messages":[]}'),
        (CHAT, b'{"a":"\\ud83d"}'), (CHAT, b'{"a":"' + b"x" * 5_000_000 + b'"}'),
    ],
)  # fmt: skip
def test_what_is_not_understood_or_would_change_goes_on_as_it_is(path: str, body: bytes) -> None:
    assert ask(path, body) is None


@given(st.dictionaries(st.text(), values, min_size=1, max_size=5), st.sampled_from([None, 1]))
def test_any_request_says_the_same_and_the_added_fields(
    request_: dict[str, Any], indent: int | None
) -> None:
    body = json.dumps(request_, indent=indent).encode()
    found = ask(CHAT, body)
    if found is None:
        assert {"echo", "use_beam_search", "prompt_logprobs"} & request_.keys()
        return
    assert json.loads(found.body) == {
        "return_token_ids": True, "logprobs": True, **request_
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b'{"stream":true}', b'{"stream_options":{"include_usage":true},"stream":true}'),
        (
            b'{"stream":true, "stream_options" : null}',
            b'{"stream":true, "stream_options" : {"include_usage":true}}',
        ),
        (
            b'{"stream":true,"stream_options":{ "x":1.0}}',
            b'{"stream":true,"stream_options":{"include_usage":true, "x":1.0}}',
        ),
        (
            b'{"stream":true,"stream_options":{"x":{"include_usage":1},"include_usage": false }}',
            b'{"stream":true,"stream_options":{"x":{"include_usage":1},"include_usage": true }}',
        ),
        (b'{"stream":false}', None),
        (b"{}", None),
        (b'{"stream":true,"stream_options":[]}', None),
        (b'{"stream":true,"stream_options":{"include_usage":true}}', None),
        (b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}', None),
    ],
)
def test_usage_is_asked_of_a_stream_whose_client_does_not(given: bytes, sent: bytes | None) -> None:
    found = ask(CHAT, given, tokens=False, usage=True)
    assert (None if found is None else found.body) == sent
    if found is not None:
        assert (found.added, found.hidden) == (("stream_options",), frozenset())
        assert found.hides_usage


def test_only_the_event_that_tells_the_usage_is_hidden() -> None:
    view = StreamView(frozenset(), hides_usage=True)
    told = b'data: {"choices":[],"usage":{"prompt_tokens":5}}\n\n'
    kept = [
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        b'data: {"choices":[{"delta":{"content":"usage"}}],"usage":null}\r\n\r\n',
        b'data: {"usage":{"prompt_tokens":5},"choices":[{"delta":{}}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    assert view.feed(b"".join([*kept[:3], told, kept[3]])) + view.finish() == b"".join(kept)


# --- the answer -------------------------------------------------------------------------------

HIDDEN = asked(CHAT, b'{"messages":[]}').hidden


@st.composite
def logprobs(draw: st.DrawFn) -> dict[str, Any]:
    entry = st.fixed_dictionaries({
        "token": st.text(), "logprob": st.floats(-9999, 0), "bytes": ids,
        "top_logprobs": st.just([]),
    })  # fmt: skip
    return {"content": draw(st.lists(entry, max_size=3))}


@st.composite
def answers(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """An answer in one piece of an engine that was asked, and of one that was not."""
    both: list[list[dict[str, Any]]] = [[], []]
    for index in range(draw(st.integers(0, 3))):
        message = draw(st.dictionaries(st.text(), values, max_size=3))
        for tokens, choices in zip((draw(ids), None), both, strict=True):
            choices.append({
                "index": index, "message": message,
                "logprobs": None if tokens is None else draw(logprobs()),
                "finish_reason": "stop", "token_ids": tokens,
            })  # fmt: skip
    head = {"id": draw(st.text()), "model": "m", "extra": draw(values)}
    prompt = draw(ids)
    return (
        {**head, "choices": both[0], "usage": {}, "prompt_token_ids": prompt},
        {**head, "choices": both[1], "usage": {}, "prompt_token_ids": None},
    )


def encoded(value: Any, *, ascii_only: bool = False) -> bytes:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


@given(answers(), st.booleans())
def test_a_whole_answer_looks_as_if_nothing_had_been_asked(
    pair: tuple[dict[str, Any], dict[str, Any]], ascii_only: bool
) -> None:
    full, plain = (encoded(answer, ascii_only=ascii_only) for answer in pair)
    view = WholeView(HIDDEN)
    for byte in full:
        assert view.feed(bytes([byte])) == b""
    assert view.finish() == plain
    assert not view.has_shown


def event(delta: dict[str, Any], tokens: list[int] | None, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta}
    choice["logprobs"] = None if tokens is None else {"content": [{"token": "x{", "bytes": tokens}]}
    choice["finish_reason"] = fields.get("finish_reason")
    choice["token_ids"] = tokens
    return {"id": "chatcmpl-1", "choices": [choice]}


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A stream of an engine that was asked, and of one that was not."""
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    first = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
    full = [encoded({**first, "prompt_token_ids": draw(ids)})]
    plain = [encoded({**first, "prompt_token_ids": None})]
    for text in draw(st.lists(st.text() | st.none(), max_size=4)):
        delta = {} if text is None else {"content": text}
        full.append(encoded(event(delta, [*draw(ids), 1])))
        if text is not None:  # a parser that holds text back: sent only because of its tokens
            plain.append(encoded(event(delta, None)))
    full.append(encoded(event({}, [2], finish_reason="stop")))
    plain.append(encoded(event({}, None, finish_reason="stop")))
    both = []
    for events in (full, plain):
        lines = [b"data: " + data + end + end for data in [*events, b"[DONE]"]]
        both.append(b": ping" + end + end + b"".join(lines))
    return both[0], both[1]


@given(streams(), st.data())
def test_a_stream_cut_anywhere_looks_as_if_nothing_had_been_asked(
    pair: tuple[bytes, bytes], data: st.DataObject
) -> None:
    full, plain = pair
    cuts = sorted(data.draw(st.lists(st.integers(0, len(full)), max_size=6)))
    view = StreamView(HIDDEN)
    parts = [full[a:b] for a, b in zip([0, *cuts], [*cuts, len(full)], strict=True)]
    assert b"".join([*map(view.feed, parts), view.finish()]) == plain
    assert not view.has_shown


def test_an_event_is_released_as_soon_as_it_is_whole() -> None:
    view = StreamView(HIDDEN)
    one = b"data: " + encoded(event({"content": "a"}, [1])) + b"\n\n"
    assert view.feed(one[:-2]) == b""
    assert view.feed(one[-2:] + one[:9]).endswith(b"}\n\n")


@pytest.mark.parametrize(
    "text",
    [b"<html>", b"", b'{"choices":[{"token_ids":[1]', b'{"choices":{"a":1}}', b"[1]",
     b'{"choices":[1]}', b"[" * 200 + b"]" * 200, b'{"a":' + b"[" * 90 + b"]" * 90 + b"}"],
)  # fmt: skip
def test_what_cannot_be_read_is_shown_as_it_came_and_said(text: bytes) -> None:
    whole, stream = WholeView(HIDDEN), StreamView(HIDDEN)
    whole.feed(text)
    assert whole.finish() == text
    assert whole.has_shown
    line = b"data: " + text + b"\n\n"
    assert stream.feed(line) + stream.finish() == line
    assert stream.has_shown is (b"{" in text)


@given(st.binary(max_size=60))
def test_any_bytes_are_no_bug(text: bytes) -> None:
    stream = StreamView(HIDDEN)
    stream.feed(b"data: {" + text)
    stream.finish()
    with contextlib.suppress(UnreadableError):
        hide(text, HIDDEN)


def test_what_the_client_asked_for_stays_in_the_answer() -> None:
    found = asked(CHAT, {"logprobs": True, "messages": []})
    text = encoded(event({"content": "a"}, [1]))
    shown = hide(text, found.hidden)
    assert shown is not None
    choice = json.loads(shown)["choices"][0]
    assert choice["token_ids"] is None
    assert choice["logprobs"] == json.loads(text)["choices"][0]["logprobs"]


def test_errors_and_unasked_answers_are_not_looked_at() -> None:
    found = asked(CHAT, BODY)
    headers = {"Content-Type": "application/json", "Content-Length": "3"}
    assert view_of(None, 200, headers) is None
    assert view_of(found, 400, headers) is None
    for unreadable in ({"Content-Encoding": "gzip"}, {"Content-Type": "text/html"}):
        view = view_of(found, 200, headers | unreadable)
        assert view is not None
        assert (view.feed(b"abc") + view.finish(), view.has_shown) == (b"abc", True)
