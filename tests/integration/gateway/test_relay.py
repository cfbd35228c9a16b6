"""What passes through the gateway, against a real broker and a scripted upstream."""

import asyncio
import io
import json
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from schemas.atdp.types import Exchange, Outcome, TrajectorySource
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    eventually,
    in_two,
    running,
    whole,
)

pytestmark = pytest.mark.integration

ODD_BODY = (
    b'{ "messages":[{"role":"user","content":"a\\ud83d b"}],"seed":12345678901234567890,'
    b'"x_unknown":{"b":1,"a":0.10},\t"temperature":1e0}\n'
)


async def collect(answer: aiohttp.ClientResponse, into: list[bytes]) -> None:
    async for data in answer.content.iter_any():
        into.append(data)  # noqa: PERF401 - what came before an error must stay


async def answer_whole(connection: Connection) -> None:
    await connection.send(whole(b'{"id":"chatcmpl-1", "n":12345678901234567890}'))


async def test_bodies_pass_byte_for_byte_and_are_recorded(tmp_path: Path, kafka: str) -> None:
    upstream = ScriptedUpstream(answer_whole)
    async with running(tmp_path, kafka, upstream) as gw:
        extra = {"Authorization": "Bearer own", "x-headrace-task-key": "task-1"}
        url = URL(f"{gw.url}{CHAT}?beta=%41+b", encoded=True)
        async with gw.http.post(url, data=ODD_BODY, headers=gw.headers | extra) as answer:
            assert await answer.read() == b'{"id":"chatcmpl-1", "n":12345678901234567890}'
            step_id = answer.headers["x-headrace-step-id"]
            assert int(answer.headers["x-headrace-overhead-us"]) > 0
            assert "x-headrace-trajectory-id" not in answer.headers
        (event,) = await gw.events(1)
    seen = upstream.seen[0]
    assert seen.body == ODD_BODY
    assert seen.head.startswith(b"POST /v1/chat/completions?beta=%41+b HTTP/1.1\r\n")
    assert b"Authorization: Bearer own" in seen.head
    assert b"x-headrace" not in seen.head.lower()
    assert isinstance(event, Exchange)
    assert event.request_body == ODD_BODY
    assert event.response_body == b'{"id":"chatcmpl-1", "n":12345678901234567890}'
    assert (event.step_id, event.task_key) == (step_id, "task-1")
    assert (event.path, event.query, event.status) == (CHAT, "beta=%41+b", 200)
    assert event.outcome is Outcome.COMPLETE
    assert event.trajectory_source is TrajectorySource.NONE
    names = {h.name for h in event.request_headers}
    assert not names & {"authorization", "x-headrace-key", "x-api-key", "cookie"}
    assert event.started_at <= event.first_byte_at <= event.ended_at  # type: ignore[operator]


async def test_a_stream_cut_anywhere_arrives_identical(tmp_path: Path, kafka: str) -> None:
    text = 'data: {"c":"你好🙂"}\r\n\r\n: ping\n\ndata: a\ndata: b\n\ndata: [DONE]'
    body = text.encode()

    async def cut(connection: Connection) -> None:
        at = int(json.loads(connection.body)["cut"])
        await connection.send(SSE_HEAD)
        for part in (body[:at], body[at:]):
            if part:
                await connection.chunk(part)
                await asyncio.sleep(0)
        await connection.send(b"0\r\n\r\n")

    async with running(tmp_path, kafka, ScriptedUpstream(cut)) as gw:
        for at in range(len(body) + 1):
            async with gw.post(CHAT, json.dumps({"cut": at})) as answer:
                assert await answer.read() == body
        events = await gw.events(len(body) + 1)
    assert {e.response_body for e in events} == {body}
    assert {e.outcome for e in events} == {Outcome.COMPLETE}


async def test_a_chunk_is_released_before_the_next_one_exists(tmp_path: Path, kafka: str) -> None:
    go_on = asyncio.Event()

    upstream = ScriptedUpstream(in_two(b"data: 1\n\n", go_on, b"data: 2\n\n"))
    async with (
        running(tmp_path, kafka, upstream) as gw,
        gw.post(CHAT, b"{}") as answer,
    ):
        assert await answer.content.readany() == b"data: 1\n\n"
        go_on.set()
        assert await answer.content.read() == b"data: 2\n\n"


async def endless(connection: Connection) -> None:
    await connection.send(SSE_HEAD)
    for number in range(3):
        await connection.chunk(f"data: {number}\n\n".encode())
    await connection.reader.read(1)  # until the gateway goes
    connection.writer.close()
    connection.upstream_closed = True  # type: ignore[attr-defined]


async def test_a_client_that_leaves_is_recorded_and_the_upstream_cancelled(
    tmp_path: Path, kafka: str
) -> None:
    upstream = ScriptedUpstream(endless)
    async with running(tmp_path, kafka, upstream) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            wanted = b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
            assert await answer.content.readexactly(len(wanted)) == wanted
            answer.close()
        await eventually(lambda: hasattr(upstream.seen[0], "upstream_closed"), 1.0)
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.CLIENT_ABORTED
    assert event.response_body == wanted


async def test_a_client_that_leaves_before_the_first_byte(tmp_path: Path, kafka: str) -> None:
    async def silent(connection: Connection) -> None:
        await connection.reader.read(1)
        connection.writer.close()

    upstream = ScriptedUpstream(silent)
    async with running(tmp_path, kafka, upstream) as gw:
        task = asyncio.create_task(gw.http.post(f"{gw.url}{CHAT}", data=b"{}", headers=gw.headers))
        await eventually(lambda: upstream.seen)
        task.cancel()
        (event,) = await gw.events(1)
        await eventually(upstream.seen[0].writer.is_closing, 1.0)
    assert (event.outcome, event.response_body) == (Outcome.CLIENT_ABORTED, b"")


async def test_drain_reads_to_the_end_after_the_client_left(tmp_path: Path, kafka: str) -> None:
    gone = asyncio.Event()

    goes_on = in_two(b"data: 1\n\n", gone, b'data: {"usage":1}\n\n')
    options = {"when_client_leaves": "drain"}
    async with running(tmp_path, kafka, ScriptedUpstream(goes_on), **options) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            await answer.content.readany()
            answer.close()
        await asyncio.sleep(0.1)
        gone.set()
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.CLIENT_ABORTED
    assert event.response_body == b'data: 1\n\ndata: {"usage":1}\n\n'


async def test_an_upstream_reset_ends_the_stream_without_a_false_end(
    tmp_path: Path, kafka: str
) -> None:
    async def breaks(connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(3):
            await connection.chunk(f"data: {number}\n\n".encode())
        await asyncio.sleep(0.05)
        connection.reset()

    async with running(tmp_path, kafka, ScriptedUpstream(breaks)) as gw:
        received: list[bytes] = []
        async with gw.post(CHAT, b"{}") as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await collect(answer, received)
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.UPSTREAM_ERROR
    assert event.response_body == b"".join(received) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert event.status == 200


async def test_a_stall_before_the_first_byte_is_504(tmp_path: Path, kafka: str) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.reader.read(1)
        connection.writer.close()

    upstream = ScriptedUpstream(stalls)
    async with running(tmp_path, kafka, upstream, upstream_stall_seconds=0.2) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            assert answer.status == 504
            assert (await answer.json())["error"]["code"] == "stalled"
            assert "x-headrace-step-id" in answer.headers
        (event,) = await gw.events(1)
    assert (event.outcome, event.status) == (Outcome.TIMEOUT, 504)


async def test_a_stall_in_the_middle_keeps_what_came(tmp_path: Path, kafka: str) -> None:
    async with running(
        tmp_path, kafka, ScriptedUpstream(endless), upstream_stall_seconds=0.2
    ) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.TIMEOUT
    assert event.response_body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


async def test_a_slow_stream_that_goes_on_is_never_cut(tmp_path: Path, kafka: str) -> None:
    stall_seconds, num_frames = 2.0, 6

    async def slow(connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(num_frames):
            await connection.chunk(f"data: {number}\n\n".encode())
            await asyncio.sleep(stall_seconds / num_frames * 1.2)
        await connection.chunk(b"")

    async with running(
        tmp_path, kafka, ScriptedUpstream(slow), upstream_stall_seconds=stall_seconds
    ) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            received = await answer.read()
        (event,) = await gw.events(1)
    assert event.outcome is Outcome.COMPLETE
    assert event.ended_at - event.started_at > timedelta(seconds=stall_seconds)
    assert event.response_body == received
    assert received.count(b"data: ") == num_frames


async def test_an_unreachable_upstream_is_502_and_a_step(tmp_path: Path, kafka: str) -> None:
    upstream = ScriptedUpstream(answer_whole)
    async with running(tmp_path, kafka, upstream) as gw:
        await upstream.stop()
        async with gw.post(CHAT, b"{}") as answer:
            assert answer.status == 502
            assert "gateway.upstream.url" in (await answer.json())["error"]["message"]
        (event,) = await gw.events(1)
    assert (event.outcome, event.status) == (Outcome.UPSTREAM_ERROR, 502)


async def test_a_stale_connection_is_tried_once_more(tmp_path: Path, kafka: str) -> None:
    async def drops_reused(connection: Connection) -> None:
        if connection.number == 1:  # the second request comes over the kept connection
            connection.writer.transport.abort()
            connection.writer.close()
            return
        await answer_whole(connection)

    upstream = ScriptedUpstream(drops_reused)
    async with running(tmp_path, kafka, upstream) as gw:
        for _ in range(2):
            async with gw.post(CHAT, ODD_BODY) as answer:
                assert answer.status == 200
                await answer.read()
        events = await gw.events(2)
    assert [c.body for c in upstream.seen] == [ODD_BODY] * 3
    assert sorted(e.attempts for e in events) == [1, 2]


async def test_a_new_connection_that_breaks_is_not_tried_again(tmp_path: Path, kafka: str) -> None:
    async def drops(connection: Connection) -> None:
        connection.reset()

    upstream = ScriptedUpstream(drops)
    async with running(tmp_path, kafka, upstream) as gw:
        async with gw.post(CHAT, b"{}") as answer:
            assert answer.status == 502
        (event,) = await gw.events(1)
    assert len(upstream.seen) == 1
    assert (event.outcome, event.attempts) == (Outcome.UPSTREAM_ERROR, 1)


async def test_every_other_path_head_and_websocket(tmp_path: Path, kafka: str) -> None:
    async def answers(connection: Connection) -> None:
        if connection.head.startswith(b"HEAD"):
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        else:
            await connection.send(whole(b"{}", b"x-headrace-policy-version: 7"))

    async with running(tmp_path, kafka, ScriptedUpstream(answers)) as gw:
        async with gw.http.head(f"{gw.url}/", headers=gw.headers) as answer:
            assert answer.status == 200
        async with gw.post("/v1/messages/count_tokens?beta=true", b"{}") as answer:
            assert answer.headers["x-headrace-policy-version"] == "7"
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        async with gw.http.get(f"{gw.url}/v1/responses", headers=gw.headers | upgrade) as answer:
            assert answer.status == 426
        events = await gw.events(2)
    assert {(e.method, e.path) for e in events} == {
        ("HEAD", "/"), ("POST", "/v1/messages/count_tokens"),
    }  # fmt: skip
    assert {e.policy_version for e in events} == {None, 7}


async def test_ids_from_header_path_and_idempotency_key(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(answer_whole)) as gw:
        async with gw.post(CHAT, b"{}", **{"x-headrace-trajectory-id": "tr-1"}) as answer:
            assert answer.headers["x-headrace-trajectory-id"] == "tr-1"
        bare = f"{gw.url}/t/tr-2/k/{gw.key}{CHAT}"
        async with gw.http.post(bare, data=b"1", headers={"Idempotency-Key": "mine-1"}) as answer:
            assert answer.headers["x-headrace-trajectory-id"] == "tr-2"
            assert answer.headers["x-headrace-step-id"] == "mine-1"
        async with gw.http.post(bare, data=b"2", headers={"Idempotency-Key": "mine-1"}) as answer:
            assert answer.status == 422
        async with gw.post(CHAT, b"{}", **{"x-headrace-trajectory-id": "a b"}) as answer:
            assert answer.status == 400
            assert "x-headrace-trajectory-id" in (await answer.json())["error"]["message"]
        events = await gw.events(2)
    assert {(e.trajectory_id, e.trajectory_source.value) for e in events} == {
        ("tr-1", "header"), ("tr-2", "path"),
    }  # fmt: skip


async def test_a_large_body_goes_to_the_blob_store(tmp_path: Path, kafka: str) -> None:
    from schemas.store import BlobStore

    big = b'{"x":"' + b"a" * 1_500_000 + b'"}'

    async def answers(connection: Connection) -> None:
        await connection.send(whole(connection.body))

    async with running(tmp_path, kafka, ScriptedUpstream(answers)) as gw:
        async with gw.post(CHAT, io.BytesIO(big)) as answer:
            assert await answer.read() == big
        (event,) = await gw.events(1)
        blobs = BlobStore(gw.gateway.settings.original_blobs)
    assert (event.request_body, event.response_body) == (b"", b"")
    assert blobs.get(gw.tenant, event.request_body_uri) == big
    assert event.response_body_uri == event.request_body_uri


async def test_compressed_bodies_pass_and_keep_their_encoding(tmp_path: Path, kafka: str) -> None:
    import gzip

    packed = gzip.compress(b'{"id":"x"}')

    async def answers(connection: Connection) -> None:
        await connection.send(whole(packed, b"Content-Encoding: gzip"))

    upstream = ScriptedUpstream(answers)
    async with running(tmp_path, kafka, upstream) as gw:
        headers = {"Content-Encoding": "gzip"}
        async with gw.post(CHAT, packed, **headers) as answer:
            assert await answer.json() == {"id": "x"}
        (event,) = await gw.events(1)
    assert upstream.seen[0].body == event.request_body == event.response_body == packed
    assert {h.name: h.value for h in event.response_headers}["content-encoding"] == "gzip"
