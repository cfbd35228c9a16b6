"""What real clients sent passes the gateway unchanged and is kept byte for byte."""

from pathlib import Path

import pytest
from multidict import CIMultiDict

from schemas.atdp.types import Exchange
from tests.integration.gateway.harness import Connection, Running, ScriptedUpstream, running
from tests.model_answers import answer, said_nothing_more
from tests.recorded_clients import Sent, answered, runs

pytestmark = pytest.mark.integration
#: Paths that are answered here: an upstream serves nothing beside /v1/.
_REFUSED = {"/api/v1/models": 404}


class Played:
    """Runs of clients in a row, and what an upstream answers to each request."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[Sent] = []
        self.answers: list[tuple[str, bytes]] = []
        for name, run in runs(folder).items():
            for index, sent in enumerate(run):
                said = answered(run, index) or said_nothing_more(sent.path)
                self.sent.append(sent)
                self.answers.append(answer(sent.path, sent.body or {}, said, f"{name}-{index}"))
        self.reaching = [
            index for index, sent in enumerate(self.sent)
            if not sent.is_upgrade and sent.path not in _REFUSED
        ]  # fmt: skip

    async def script(self, connection: Connection) -> None:
        """Answer the next request; one that its client asks again gets a failure."""
        index = self.reaching[connection.number]
        kind, body = self.answers[index]
        status = b"502 Bad Gateway" if self.sent[index].is_asked_again else b"200 OK"
        lines = [b"HTTP/1.1 " + status, b"Content-Type: " + kind.encode()]
        lines.append(f"Content-Length: {len(body)}".encode())
        is_head = self.sent[index].method == "HEAD"
        await connection.send(b"\r\n".join([*lines, b"", b"" if is_head else body]))


async def test_every_recorded_request_is_relayed_and_kept_byte_for_byte(
    tmp_path: Path, kafka: str, shared_data: Path
) -> None:
    played = Played(shared_data / "requests")
    upstream = ScriptedUpstream(played.script)
    async with running(tmp_path, kafka, upstream) as gateway:
        for index, sent in enumerate(played.sent):
            await _play(gateway, played, index, sent)
        events = await gateway.events(len(played.reaching), timeout_seconds=60)
    captured = sorted((e for e in events if isinstance(e, Exchange)), key=lambda e: e.started_at)
    assert len(captured) == len(upstream.seen) == len(played.reaching)
    for index, connection, exchange in zip(
        played.reaching, upstream.seen, captured, strict=True
    ):  # fmt: skip
        _assert_relayed(played.sent[index], connection)
        _assert_kept(played, index, exchange)


async def _play(gateway: Running, played: Played, index: int, sent: Sent) -> None:
    headers = CIMultiDict(sent.headers)
    headers.update(gateway.headers)
    url = f"{gateway.url}{sent.path}"
    async with gateway.http.request(
        sent.method, url, data=sent.data or None, headers=headers
    ) as response:
        body = await response.read()
    if sent.is_upgrade:
        assert response.status == 426
    elif sent.path in _REFUSED:
        assert response.status == _REFUSED[sent.path]
    else:
        assert response.status == (502 if sent.is_asked_again else 200)
        assert body == (b"" if sent.method == "HEAD" else played.answers[index][1])


def _assert_relayed(sent: Sent, connection: Connection) -> None:
    first, *lines = connection.head.decode().split("\r\n")
    assert first == f"{sent.method} {sent.path} HTTP/1.1"
    assert connection.body == sent.data
    pairs = [tuple(line.split(": ", 1)) for line in lines if line]
    seen = CIMultiDict(pairs)  # type: ignore[arg-type]
    for name, value in sent.headers:
        assert value in seen.getall(name), name
    assert not any(name.lower().startswith("x-headrace") for name in seen)


def _assert_kept(played: Played, index: int, exchange: Exchange) -> None:
    sent = played.sent[index]
    assert exchange.method == sent.method
    assert f"{exchange.path}?{exchange.query}".rstrip("?") == sent.path
    assert exchange.request_body == sent.data
    assert exchange.response_body == (b"" if sent.method == "HEAD" else played.answers[index][1])
