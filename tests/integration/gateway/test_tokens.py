"""The engine is asked for tokens, the record keeps them, and the client sees no difference."""

import asyncio
import json
from pathlib import Path

import pytest

from schemas.atdp.types import Exchange, Outcome
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    running,
    whole,
)

pytestmark = pytest.mark.integration

BODY = b'{ "model":"m","messages":[{"role":"user","content":"hi"}],\t"temperature":1e0 }'
ROOT = "ab" * 32
PROOF = (b"x-headrace-policy: main", b"x-headrace-policy-version: 7",
         b"x-headrace-weights-root: " + ROOT.encode())  # fmt: skip
PLAIN = (
    b'{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},'
    b'"logprobs":null,"token_ids":null}],"prompt_token_ids":null}'
)
FULL = (
    b'{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},'
    b'"logprobs":{"content":[{"token":"yo","logprob":-0.5,"bytes":[121,111],"top_logprobs":[]}]},'
    b'"token_ids":[5]}],"prompt_token_ids":[1,2]}'
)
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
    b'{"error": 1}'
)


async def engine(connection: Connection) -> None:
    """An engine that gives tokens to whoever asks for them."""
    asked = json.loads(connection.body).get("return_token_ids")
    await connection.send(whole(FULL if asked else PLAIN, *PROOF))


def events(*, asked: bool) -> list[bytes]:
    logprobs = {"content": [{"token": "y", "logprob": -0.5}]} if asked else None
    extra = {"logprobs": logprobs, "token_ids": [5] if asked else None}
    choices = [{"index": 0, "delta": {"content": text}, **extra} for text in "yo"]
    lines = [json.dumps({"choices": [choice]}, separators=(",", ":")) for choice in choices]
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


async def test_the_client_sees_what_it_would_have_seen(tmp_path: Path, kafka: str) -> None:
    upstream = ScriptedUpstream(engine)
    async with running(tmp_path, kafka, upstream, asks_tokens=True) as gw:
        coded = {"Accept-Encoding": "gzip, br"}
        async with gw.http.post(f"{gw.url}{CHAT}", data=BODY, headers=gw.headers | coded) as answer:
            assert await answer.read() == PLAIN
            assert answer.headers["Content-Length"] == str(len(PLAIN))
            assert answer.headers["x-headrace-policy-version"] == "7"
        (event,) = await gw.events(1)
    seen = upstream.seen[0]
    assert seen.body == BODY.replace(b"{", b'{"return_token_ids":true,"logprobs":true,', 1)
    assert b"accept-encoding: identity" in seen.head.lower()
    assert isinstance(event, Exchange)
    assert (event.request_body, event.response_body) == (BODY, FULL)
    assert event.added_fields == ("return_token_ids", "logprobs")
    assert (event.policy, event.policy_version, event.weights_root) == ("main", 7, ROOT)
    assert (event.outcome, event.extras_shown) == (Outcome.COMPLETE, False)


async def test_without_the_setting_nothing_is_asked(tmp_path: Path, kafka: str) -> None:
    upstream = ScriptedUpstream(engine)
    async with running(tmp_path, kafka, upstream) as gw:
        async with gw.post(CHAT, BODY) as answer:
            assert await answer.read() == PLAIN
        (event,) = await gw.events(1)
    assert upstream.seen[0].body == BODY
    assert event.added_fields == ()


async def test_a_client_that_asks_gets_its_tokens(tmp_path: Path, kafka: str) -> None:
    body = json.dumps({"messages": [], "return_token_ids": True, "logprobs": True})
    async with running(tmp_path, kafka, ScriptedUpstream(engine), asks_tokens=True) as gw:
        async with gw.post(CHAT, body) as answer:
            assert await answer.read() == FULL
        (event,) = await gw.events(1)
    assert (event.added_fields, event.response_body) == ((), FULL)


async def test_each_event_of_a_stream_is_released_before_the_next_exists(
    tmp_path: Path, kafka: str
) -> None:
    go_on = asyncio.Event()

    async def streams(connection: Connection) -> None:
        first, *rest = events(asked=b"return_token_ids" in connection.body)
        await connection.send(SSE_HEAD)
        await connection.chunk(first)
        await go_on.wait()
        await connection.chunk(b"".join(rest))
        await connection.send(b"0\r\n\r\n")

    async with running(tmp_path, kafka, ScriptedUpstream(streams), asks_tokens=True) as gw:
        async with gw.post(CHAT, BODY) as answer:
            plain = events(asked=False)
            assert await answer.content.readany() == plain[0]
            go_on.set()
            assert await answer.content.read() == b"".join(plain[1:])
        (event,) = await gw.events(1)
    assert event.response_body == b"".join(events(asked=True))


async def test_an_answer_that_cannot_be_read_passes_and_is_noted(
    tmp_path: Path, kafka: str
) -> None:
    async def odd(connection: Connection) -> None:
        await connection.send(whole(b'{"choices":[{"token_ids":[5', *PROOF))

    async with running(tmp_path, kafka, ScriptedUpstream(odd), asks_tokens=True) as gw:
        async with gw.post(CHAT, BODY) as answer:
            assert await answer.read() == b'{"choices":[{"token_ids":[5'
        (event,) = await gw.events(1)
    assert event.extras_shown


async def test_an_engine_that_breaks_in_the_middle_has_not_answered(
    tmp_path: Path, kafka: str
) -> None:
    async def breaks(connection: Connection) -> None:
        await connection.send(whole(FULL)[:-20])
        await asyncio.sleep(0.05)
        connection.reset()

    async with running(tmp_path, kafka, ScriptedUpstream(breaks), asks_tokens=True) as gw:
        async with gw.post(CHAT, BODY) as answer:
            assert answer.status == 502
            assert (await answer.json())["error"]["code"] == "connection_broken"
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.UPSTREAM_ERROR
    assert event.response_body == FULL[:-20]


async def test_a_refusal_of_the_engine_passes(tmp_path: Path, kafka: str) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.send(REFUSAL)

    async with running(tmp_path, kafka, ScriptedUpstream(refuses), asks_tokens=True) as gw:
        async with gw.post(CHAT, BODY) as answer:
            assert (answer.status, await answer.read()) == (400, b'{"error": 1}')
        (event,) = await gw.events(1)
    assert not event.extras_shown
