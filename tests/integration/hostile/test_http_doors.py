"""Hostile bytes at every door: refused in the form that clients parse, and the next call works.

Nothing refused reaches the upstream; nothing a client sent stands in an answer or in the log.
"""

import asyncio
import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from schemas.store import BlobStore
from tests.integration.gateway.harness import (
    SSE_HEAD,
    Connection,
    ScriptedUpstream,
    eventually,
    whole,
)
from tests.integration.hostile.wire import CHAT, RATING, Answer, wired

OWN = ("/v1/feedback", "/v1/events", "/v1/trajectories/t", "/health", "/metrics", "/subjects")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD")
CHUNKED = b"Transfer-Encoding: chunked"


async def ok(connection: Connection) -> None:
    await connection.send(whole(b"{}"))


async def test_our_own_routes_never_travel_on(tmp_path: Path) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok)) as wire:
        for path in OWN:
            for method in METHODS:
                answer = await wire.raw(wire.request(method, path, b"{}"))
                posts = path in ("/v1/feedback", "/v1/events")
                if method in (("POST",) if posts else ("GET", "HEAD")):
                    assert answer.status != 405
                    continue
                assert answer.status == 405, (method, path)
                assert b"Allow: " in answer.head
                assert method == "HEAD" or answer.code == "method_not_allowed"
        for odd in ("/v1/feedback/", "/v1/%66eedback", "//v1/feedback", "/v1//events",
                    "/v1/../health", "/v1/models/../../admin", "/v1/%2e%2e/admin", "/v1/..%2fadmin",
                    "/v1/x/..\\..\\admin", "/k", "/admin", "/"):  # fmt: skip
            answer = await wire.raw(wire.request("POST", odd, RATING))
            assert (answer.status, answer.code) == (404, "unknown_path"), odd
        for line in ("OPTIONS * HTTP/1.1", "CONNECT example.com:443 HTTP/1.1"):
            answer = await wire.raw(f"{line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert (answer.status, answer.code) == (404, "unknown_path")
        assert wire.upstream.seen == []
        assert await wire.still_works()


NO_HTTP = [
    b"\x00\x01garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" + b"a" * 100,
    b"GET / HTTP/9.9\r\n\r\n", b"SECRET-WORD / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/\xff HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nSECRET-WORD\r\n\r\n",
    b"GET / HTTP/1.1\r\nx: SECRET-WORD\x00\r\n\r\n", b"GET / HTTP/1.1\r\nx y: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: 1\r\n" % i for i in range(500)) + b"\r\n",
]  # fmt: skip
BAD_FRAMING = [
    ((b"Content-Length: abc",), b"{}"), ((b"Content-Length: -1",), b"{}"),
    ((b"Content-Length: 99999999999999999999",), b"{}"),
    ((b"Content-Length: 2", b"Content-Length: 3"), b"{}"),
    ((b"Content-Length: 2", CHUNKED), b"2\r\n{}\r\n0\r\n\r\n"),
    ((CHUNKED,), b"zz\r\n{}\r\n0\r\n\r\n"), ((CHUNKED,), b"ffffffffffffffffffff\r\n{}"),
]  # fmt: skip


async def test_what_is_no_http_is_refused_without_repeating_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok)) as wire:
        for garbage in NO_HTTP:
            answer = await wire.raw(garbage)
            assert (answer.status, answer.code) == (400, "bad_request"), garbage[:40]
            assert b"SECRET-WORD" not in answer.body
        for path in (CHAT, "/v1/feedback", "/v1/events"):
            for headers, body in BAD_FRAMING:
                request = wire.request("POST", path, body, headers, framed=False)
                answer = await wire.raw(request)
                assert (answer.status, answer.code) == (400, "bad_request"), headers
            long = await wire.raw(wire.request("POST", path, b"{}", [b"x: " + b"a" * 40_000]))
            assert (long.status, long.code) == (431, "headers_too_large")
        assert wire.upstream.seen == []
        assert await wire.still_works()
    told = capfd.readouterr()
    assert "SECRET-WORD" not in told.out + told.err
    assert "request_refused" in told.out + told.err


@pytest.mark.parametrize("path", [CHAT, "/v1/feedback", "/v1/events"])
async def test_a_body_that_breaks_or_stops_ends_in_time(tmp_path: Path, path: str) -> None:
    async with wired(
        tmp_path, ScriptedUpstream(ok), client_body_seconds=0.3, client_idle_seconds=0.5
    ) as wire:
        half = wire.request("POST", path, b"2\r\n{}\r\n", [CHUNKED], framed=False)
        late = await wire.raw(half, b"zz\r\n")
        assert (late.status, late.code) in ((400, "bad_request"), (400, "broken_body"))
        slow = await wire.raw(half)
        assert (slow.status, slow.code) == (408, "body_too_slow")
        short = wire.request("POST", path, b"{}", [b"Content-Length: 9"], framed=False)
        assert (await wire.raw(short)).status == 408
        for request in (half, short):  # the client is gone: nobody to tell, and nothing is left
            assert (await wire.raw(request, eof=True)).status == 0
        assert (await wire.raw(b"POST /v1/chat HTTP/1.1\r\nHost:")).status == 0
        assert (await wire.raw(b"")).status == 0
        assert wire.upstream.seen == []
        assert await wire.still_works()


async def test_a_client_that_reads_nothing_is_let_go(tmp_path: Path) -> None:
    async def endless(connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.chunk(b"data: " + b"x" * 65_536)

    async with wired(tmp_path, ScriptedUpstream(endless), client_idle_seconds=0.3) as wire:
        _, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        writer.write(wire.request("POST", CHAT, b"{}"))
        await eventually(lambda: wire.gateway.calls.num_running == 1)

        def let_go() -> bool:
            wire.gateway.calls.end_stalled()
            return wire.gateway.calls.num_running == 0

        await eventually(let_go)
        writer.close()
        await eventually(lambda: wire.exchanges() != [])
        (call,) = wire.exchanges()
        assert call.outcome.value == "client_aborted"


async def test_encodings_and_sizes(tmp_path: Path) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok), max_body_bytes=21 * 1024**2) as wire:
        for coding in (b"gzip", b"br", b"deflate", b"zstd", b"x", b"gzip, gzip"):
            header = b"Content-Encoding: " + coding
            for path in ("/v1/feedback", "/v1/events"):
                answer = await wire.raw(wire.request("POST", path, gzip.compress(RATING), [header]))
                assert (answer.status, answer.code) == (415, "content_encoding")
            relayed = await wire.raw(wire.request("POST", CHAT, b"\x1f\x8bbroken", [header]))
            assert relayed.status == 200  # the upstream's to judge, byte for byte
            assert wire.upstream.seen[-1].body == b"\x1f\x8bbroken"
        for path in ("/v1/feedback", "/v1/events"):
            answer = await wire.raw(wire.request("POST", path, b"[" * (9 * 1024**2)))
            assert (answer.status, answer.code) == (413, "body_too_large")
        answer = await wire.raw(wire.request("POST", CHAT, b"x" * (22 * 1024**2)))
        assert (answer.status, answer.code) == (413, "body_too_large")
        body = b'{"messages":[{"role":"user","content":"' + b"x" * (20 * 1024**2) + b'"}]}'
        assert (await wire.raw(wire.request("POST", CHAT, body))).status == 200
        assert wire.upstream.seen[-1].body == body
        await eventually(lambda: any(call.request_body_uri for call in wire.exchanges()))
        (large,) = [call for call in wire.exchanges() if call.request_body_uri]
        blobs = BlobStore(wire.gateway.settings.original_blobs)
        assert blobs.get(large.tenant_id, large.request_body_uri or "") == body
        assert await wire.still_works()


ODD_JSON = [
    b"[" * 100_000 + b"]" * 100_000, b'{"messages":' * 100_000,
    b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
    b'{"messages":[{"role":"user","content":"hi"}],"seed":123456789012345678901234567890}',
    b'{"metadata":{"user_id":"{\\"session_id\\":5}"}}', b'{"messages":[null,1]}',
    b'{"metadata":{"user_id":"{\\"session_id\\":\\"\\\\ud800\\"}"}}', b"\xff\xfe", b"\x00", b"NaN",
]  # fmt: skip


async def test_odd_json_is_relayed_unchanged_and_recorded(tmp_path: Path) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok)) as wire:
        for body in ODD_JSON:
            assert (await wire.raw(wire.request("POST", CHAT, body))).status == 200, body[:60]
            assert wire.upstream.seen[-1].body == body
        await eventually(lambda: len(wire.exchanges()) == len(ODD_JSON))
        blobs = BlobStore(wire.gateway.settings.original_blobs)
        kept = {
            blobs.get(call.tenant_id, call.request_body_uri)
            if call.request_body_uri
            else call.request_body
            for call in wire.exchanges()
        }
        assert kept == set(ODD_JSON)


async def test_what_an_upstream_says_about_versions_is_no_way_to_stop_a_call(
    tmp_path: Path,
) -> None:
    said = ["9" * 5_000, str(2**64), "-1", "1e3", "\u00b2", "7"]

    async def answering(connection: Connection) -> None:
        version = said[connection.number].encode("latin-1")
        await connection.send(whole(b"{}", b"x-headrace-policy-version: " + version))

    async with wired(tmp_path, ScriptedUpstream(answering)) as wire:
        for _ in said:
            assert (await wire.raw(wire.request("POST", CHAT, b"{}"))).status == 200
        await eventually(lambda: len(wire.exchanges()) == len(said))
        versions = [call.policy_version for call in wire.exchanges()]
        assert sorted(versions, key=str) == [7, None, None, None, None, None]


UNSAFE_IDS = [
    b"x-headrace-trajectory-id: a/b", b"x-headrace-parent-step-id: \x7f",
    b"x-headrace-task-key: " + b"a" * 300, b"x-headrace-agent-id: \xc3\xa9",
]  # fmt: skip


async def test_ids_of_others_and_reused_keys(tmp_path: Path) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok)) as wire:
        first = await wire.raw(wire.request("POST", CHAT, b"{}", [b"Idempotency-Key: k"]))
        other = await wire.raw(wire.request("POST", CHAT, b"{1}", [b"Idempotency-Key: k"]))
        assert (first.status, other.status, other.code) == (200, 422, "idempotency_key_reused")
        for header in UNSAFE_IDS:
            answer = await wire.raw(wire.request("POST", CHAT, b"{}", [header]))
            assert (answer.status, answer.code) in ((400, "invalid_id"), (400, "bad_request"))
        foreign = b'{"type":"trajectory_end","tenant_id":"umbrella","trajectory_id":"t"}'
        answer = await wire.raw(wire.request("POST", "/v1/events", foreign))
        assert (answer.status, answer.code) == (403, "foreign_tenant")
        answer = await wire.raw(
            wire.request("POST", "/v1/messages", b"{}", [b"Upgrade: websocket"])
        )
        assert answer.status == 426
        unsafe = wire.request("POST", "/t/a%2Fb/v1/messages", b"{}")
        assert b'"type":"error"' in (await wire.raw(unsafe)).body, "Anthropic's form on its routes"
        assert await wire.still_works()


WORDS = st.sampled_from([
    b"POST ", b"GET ", b"/v1/feedback", b"/v1/events", CHAT.encode(), b" HTTP/1.1\r\n", b"\r\n",
    b"\r\n\r\n", b"Host: x\r\n", b"Content-Length: 5\r\n", CHUNKED + b"\r\n", b"5\r\nabcde\r\n",
    b"0\r\n\r\n", RATING, b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"\x00",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"/k/hr_x_y", b"/t/", b"%00", b"{", b"HTTP/",
])  # fmt: skip


async def test_any_bytes_are_refused_or_ignored(tmp_path: Path) -> None:
    async with wired(
        tmp_path, ScriptedUpstream(ok), client_body_seconds=0.2, client_idle_seconds=0.3
    ) as wire:
        seen: list[Answer] = []

        @seed(5)
        @settings(
            max_examples=300, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.lists(WORDS | st.binary(max_size=8), max_size=10).map(b"".join))
        def collect(data: bytes) -> None:
            inputs.append(data)

        inputs: list[bytes] = []
        collect()
        for start in range(0, len(inputs), 50):
            group = inputs[start : start + 50]
            seen += await asyncio.gather(*(wire.raw(data) for data in group))
        statuses = {answer.status for answer in seen}
        assert all(status < 500 for status in statuses), statuses
        assert 400 in statuses
        assert wire.upstream.seen == []
        assert await wire.still_works()
