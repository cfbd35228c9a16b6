"""The client and the model of the benchmark understand each other, and the schedule holds."""

import asyncio
import random
from collections.abc import AsyncIterator

import orjson
import pytest

from infra.bench import streams
from infra.bench.http import Connection
from infra.bench.load import Target, in_turn, on_schedule
from infra.bench.streams import run_streams
from infra.bench.texts import exchanges, prose, request_body, steps
from infra.bench.upstream import Model, Pace, whole_answer
from schemas import codec
from schemas.errors import TransientError


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_whole_answers_and_streams_arrive_on_one_connection(port: int) -> None:
    connection = Connection("127.0.0.1", port, {})
    whole = await connection.post("/v1/chat/completions", request_body("hello"))
    streamed = await connection.post("/v1/chat/completions", request_body("hello", stream=True))
    connection.close()
    answer = orjson.loads(whole.body)
    chunks = [line[6:] for line in streamed.body.split(b"\n\n") if line]
    assert (whole.status, streamed.status) == (200, 200)
    assert chunks.pop() == b"[DONE]"
    deltas = [orjson.loads(chunk)["choices"][0]["delta"] for chunk in chunks]
    said = "".join(delta.get("content", "") for delta in deltas)
    assert said == answer["choices"][0]["message"]["content"]
    assert whole.first_byte_at <= whole.last_byte_at


async def test_a_connection_that_the_server_has_ended_is_opened_again() -> None:
    num_opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_opened
        num_opened += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connection = Connection("127.0.0.1", server.sockets[0].getsockname()[1], {})
        for _ in range(3):
            assert (await connection.post("/", b"")).body == b"{}"
        connection.close()
    assert num_opened == 3


async def test_each_target_gets_each_body(port: int) -> None:
    targets = [Target(name, Connection("127.0.0.1", port, {}), "/v1") for name in ("a", "b", "c")]
    samples = await in_turn(targets, [request_body("x")] * 4)
    assert {name: len(found.last) for name, found in samples.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(
        f <= s for found in samples.values() for f, s in zip(found.first, found.last, strict=True)
    )
    for target in targets:
        target.connection.close()


async def test_the_schedule_counts_from_when_a_request_was_due(port: int) -> None:
    connections = [Connection("127.0.0.1", port, {}) for _ in range(2)]
    seen: list[bytes] = []
    seconds = await on_schedule(
        connections, "/v1", [request_body("x")] * 20, per_second=400.0,
        on_answer=lambda answer: seen.append(answer.body),
    )  # fmt: skip
    assert len(seconds) == len(seen) == 20
    assert len({orjson.loads(body)["id"] for body in seen}) == 20
    assert min(seconds) > 0
    for connection in connections:
        connection.close()


async def test_another_status_and_a_closed_port_are_said(port: int) -> None:
    target = Target("a", Connection("127.0.0.1", port, {}), "/v1")
    with pytest.raises(TransientError, match="200, not 202"):
        await in_turn([target], [request_body("x")], status=202)
    target.connection.close()
    with pytest.raises(TransientError, match="No answer"):
        await Connection("127.0.0.1", 1, {}).post("/v1", b"{}")


def test_texts_are_seeded_and_new_each_time() -> None:
    rng = random.Random(1)
    one, two = prose(rng, 500), prose(rng, 500)
    assert len(one) == len(two) == 500
    assert one != two
    assert prose(random.Random(1), 500) == one


def test_events_are_valid_and_calls_carry_their_history() -> None:
    assert all(codec.decode(codec.encode(step)) == step for step in steps(1, 12, 2_000))
    calls = list(exchanges(1, 20, calls_each=10))
    assert len({trajectory for trajectory, _ in calls}) == 2
    bodies = [orjson.loads(exchange.request_body)["messages"] for _, exchange in calls]
    assert [len(messages) for messages in bodies[:10]] == list(range(2, 21, 2))
    assert bodies[1][:2] == bodies[0]
    reply = orjson.loads(calls[0][1].response_body)["choices"][0]["message"]
    assert bodies[1][2] == reply == orjson.loads(whole_answer("x"))["choices"][0]["message"]
    assert all(codec.decode(codec.encode(exchange)) == exchange for _, exchange in calls)


async def test_a_stream_that_does_not_end_is_given_up(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ANSWER_SECONDS", 0.02)
    asked = [request_body("hello", stream=True, pace=Pace(60.0, 0.01, 3))]
    with pytest.raises(TransientError, match="did not end"):
        await run_streams(lambda: Connection("127.0.0.1", port, {}), asked, 2, 0.0)


async def test_streams_come_at_the_pace_that_is_asked_for(port: int) -> None:
    pace = Pace(wait_seconds=0.03, pace_seconds=0.01, num_events=3)
    asked = [request_body("hello", stream=True, pace=pace)]
    connect = lambda: Connection("127.0.0.1", port, {})  # noqa: E731
    found = await run_streams(connect, asked, 2, 0.0)
    assert len(found.gaps) == 2 * len(found.first) == len(found.late) - len(found.first)
    assert min(found.first) >= 0.03
    assert min(found.late) > 0
    whole = connect()
    answer = await whole.post("/v1", request_body("hello", pace=pace))
    assert orjson.loads(answer.body)["object"] == "chat.completion"
    with pytest.raises(TransientError, match="no stream in chunks but one of status 200"):
        await anext(aiter(whole.frames("/v1", request_body("hello"))))
