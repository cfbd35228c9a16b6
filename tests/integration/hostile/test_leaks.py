"""Ten thousand malformed requests leave no descriptor, no connection and no memory behind."""

import asyncio
import gc
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.gateway.harness import Connection, ScriptedUpstream, eventually, whole
from tests.integration.hostile.test_http_doors import BAD_FRAMING, NO_HTTP, ODD_JSON
from tests.integration.hostile.wire import CHAT, RATING, Wire, wired

NUM_AT_ONCE = 50
WARM_UP = 500
#: What a heap may grow by its own fragmentation; 10,000 kept requests of 10 kB would be 100 MB.
MAX_GROWTH_BYTES = 24 * 1024**2


async def ok(connection: Connection) -> None:
    await connection.send(whole(b"{}"))


def malformed(wire: Wire) -> list[bytes]:
    """Every kind of broken request once."""
    small = [body for body in ODD_JSON if len(body) < 10_000]
    doors = ("/v1/feedback", "/v1/events")
    return [
        *NO_HTTP,
        *(wire.request("POST", door, body) for door in doors for body in small),
        *(wire.request("POST", door, b"[" * 50_000) for door in doors),
        *(wire.request("POST", CHAT, b"{}", [b"x: " + b"a" * 40_000]) for _ in doors),
        *(
            wire.request("POST", path, body, headers, framed=False)
            for path in (CHAT, *doors)
            for headers, body in BAD_FRAMING
        ),
        *(wire.request("DELETE", door, RATING) for door in doors),
        wire.request("POST", CHAT, b"{}", [b"x-headrace-trajectory-id: a/b"]),
        wire.request("POST", "/k/hr_x_wrong/v1/feedback", RATING).replace(wire.key.encode(), b"no"),
        wire.request("POST", "/v1/feedback", RATING, [b"Content-Encoding: br"]),
        wire.request("GET", "/v1/trajectories/%00"),
    ]


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone are asked for


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def send_many(wire: Wire, number: int) -> Counter[int]:
    """That many malformed requests, some at a time; how often each status came."""
    kinds = malformed(wire)
    statuses: Counter[int] = Counter()
    for start in range(0, number, NUM_AT_ONCE):
        group = [kinds[i % len(kinds)] for i in range(start, min(start + NUM_AT_ONCE, number))]
        answers = await asyncio.gather(*(wire.raw(data) for data in group))
        statuses.update(answer.status for answer in answers)
    return statuses


@pytest.mark.parametrize("number", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_malformed_requests_leave_nothing_behind(tmp_path: Path, number: int) -> None:
    async with wired(tmp_path, ScriptedUpstream(ok), client_idle_seconds=5.0) as wire:
        await send_many(wire, WARM_UP)
        await eventually(lambda: wire.num_connections == 0)
        before, descriptors = resident_bytes(), num_descriptors()
        statuses = await send_many(wire, number)
        assert sum(statuses.values()) == number
        assert set(statuses) <= {400, 401, 404, 405, 408, 413, 415, 422, 431}
        await eventually(lambda: wire.num_connections == 0)
        assert num_descriptors() <= descriptors + 5
        grown = resident_bytes() - before
        assert grown < MAX_GROWTH_BYTES, f"{grown} bytes more after {number} requests"
        assert wire.upstream.seen == []
        assert await wire.still_works()


#: A request of each dialect, and a word that one of its mutations puts in the place of another.
SOUND = {
    CHAT: b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}',
    "/v1/completions": b'{"model":"m","prompt":"hi","logprobs":0}',
    "/v1/responses": b'{"model":"m","input":[{"role":"user","content":"hi"}],"tools":[]}',
    "/v1/messages?beta=true": b'{"model":"m","max_tokens":9,"messages":[{"role":"user",'
    b'"content":[{"type":"text","text":"hi"}]}],"metadata":{"user_id":"{}"}}',
    "/v1/messages/count_tokens": b'{"model":"m","messages":[]}',
    "/v1/embeddings": b'{"model":"m","input":["a","b"]}',
    "/v1/models": b"",
}
WORDS = (b"null", b"[]", b"{}", b"-1", b"1e400", b'"\\ud83d"', b"\xff", b"\x00", b'"', b"[" * 2_000)


def mutated(chance: random.Random, body: bytes) -> bytes:
    """A body that is wrong somewhere: cut, a word in another place, a bit of it turned."""
    at = chance.randrange(len(body) + 1)
    kind = chance.randrange(4)
    if kind == 0:
        return body[:at]
    if kind == 1:
        return body[:at] + chance.choice(WORDS) + body[at:]
    if kind == 2:
        return body[:at] + chance.choice(WORDS) + body[at + chance.randrange(9) :]
    turned = bytearray(body or b"x")
    turned[at % len(turned)] ^= 1 << chance.randrange(8)
    return bytes(turned)


@pytest.mark.parametrize("number", [350, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_mutated_requests_of_every_dialect_are_relayed_or_refused(
    tmp_path: Path, number: int
) -> None:
    chance = random.Random(13)
    paths = list(SOUND)
    async with wired(
        tmp_path, ScriptedUpstream(ok), asks_tokens=True, asks_usage=True, client_idle_seconds=5.0
    ) as wire:
        descriptors = num_descriptors()
        for start in range(0, number, NUM_AT_ONCE):
            bodies = [
                (paths[n % len(paths)], mutated(chance, SOUND[paths[n % len(paths)]]))
                for n in range(start, min(start + NUM_AT_ONCE, number))
            ]
            answers = await asyncio.gather(
                *(wire.raw(wire.request("POST", path, body)) for path, body in bodies)
            )
            assert {answer.status for answer in answers} == {200}, "the upstream's to judge"
            if start == 0:
                descriptors = num_descriptors()
        assert len(wire.upstream.seen) == number
        await eventually(lambda: wire.num_connections == 0)
        assert num_descriptors() <= descriptors + 5
        assert await wire.still_works()
