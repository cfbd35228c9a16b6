"""Labels, holds and guarded routes of the engine's server, around a small application."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from inference.worker.engine.middleware import (
    PREFIX,
    SECRET_HEADER,
    LabelMiddleware,
    Message,
    Receive,
    Send,
)

SECRET = "s3cret"
ONE = {"policy": "main", "version": 1, "root": "aa"}
TWO = {"policy": "main", "version": 2, "root": "bb"}


@dataclass
class Server:
    """An application whose answers wait until they are let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    paths: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, _: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await self.go.wait()
        await send({"type": "http.response.body", "body": b"x"})


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Ask = Callable[..., Coroutine[Any, Any, Answer]]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def ask(server: Server) -> Ask:
    middleware = LabelMiddleware(server, SECRET)

    async def asking(
        path: str, body: Any = None, *, secret: str | None = None, client: str = "127.0.0.1"
    ) -> Answer:
        headers = [] if secret is None else [(SECRET_HEADER.encode(), secret.encode())]
        scope = {"type": "http", "path": path, "headers": headers, "client": (client, 1)}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message: Message) -> None:
            sent.append(message)

        await middleware(scope, receive, send)
        head = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return Answer(sent[0]["status"], head, b"".join(m.get("body", b"") for m in sent[1:]))

    return asking


async def own(ask: Ask, route: str, **body: Any) -> Any:
    answer = await ask(PREFIX + route, body, secret=SECRET)
    assert answer.status == 200
    return answer.json


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def version(answer: Answer) -> str | None:
    return answer.headers.get("x-headrace-policy-version")


async def test_nothing_is_served_before_the_first_label(ask: Ask, server: Server) -> None:
    server.go.set()
    refused = await ask("/v1/models")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert (await ask("/health")).status == 200
    await own(ask, "label", label=ONE)
    served = await ask("/v1/models")
    assert served.status == 200
    assert served.headers["a"] == "b"
    assert served.headers["x-headrace-policy"] == "main"
    assert (version(served), served.headers["x-headrace-weights-root"]) == ("1", "aa")


async def test_an_answer_has_the_label_of_its_beginning_and_the_label_waits_for_it(
    ask: Ask, server: Server
) -> None:
    await own(ask, "label", label=ONE)
    under_way = asyncio.create_task(ask("/v1/completions"))
    await settled()
    holding = asyncio.create_task(own(ask, "hold", seconds=5, drain=True))
    await settled()
    late = asyncio.create_task(ask("/v1/completions"))
    await settled()
    assert not holding.done()
    assert len(server.paths) == 1
    server.go.set()
    assert await holding == {"held": True}
    assert version(await under_way) == "1"
    await own(ask, "label", label=TWO)
    assert not late.done()
    assert (await own(ask, "state"))["held"] == 1
    await own(ask, "release")
    assert version(await late) == "2"


async def test_a_hold_that_takes_too_long_lets_all_in_again(ask: Ask, server: Server) -> None:
    await own(ask, "label", label=ONE)
    under_way = asyncio.create_task(ask("/v1/completions"))
    await settled()
    assert await own(ask, "hold", seconds=0.01, drain=True) == {"held": False}
    server.go.set()
    assert version(await ask("/v1/completions")) == "1"
    assert version(await under_way) == "1"


async def test_who_waits_for_an_engine_that_is_given_up_is_refused(
    ask: Ask, server: Server
) -> None:
    server.go.set()
    await own(ask, "label", label=ONE)
    await own(ask, "hold", seconds=1, drain=True)
    late = asyncio.create_task(ask("/v1/completions"))
    await settled()
    await own(ask, "label", label={"refusal": "lost"})
    await own(ask, "release")
    assert (await late).status == 503
    assert server.paths == []


async def test_of_answers_that_stood_still_only_what_is_known_is_said(
    ask: Ask, server: Server
) -> None:
    await own(ask, "label", label=ONE)
    before = asyncio.create_task(ask("/v1/completions"))
    await settled()
    await own(ask, "hold", seconds=1, drain=False)
    during = asyncio.create_task(ask("/v1/completions"))
    await settled()
    assert (await own(ask, "state"))["in_flight"] == 2
    await own(ask, "label", label=TWO, progress={})
    await own(ask, "release")
    server.go.set()
    # The engine does not know the first one: it was answered before, or had not begun.
    assert version(await before) is None
    assert version(await during) == "2"


async def test_the_progress_of_a_request_is_its_boundary() -> None:
    names: list[str] = []
    go = asyncio.Event()

    async def server(scope: Any, receive: Receive, send: Send) -> None:
        names.append(dict(scope["headers"])[b"x-request-id"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go.wait()
        await send({"type": "http.response.body", "body": b"x"})

    middleware = LabelMiddleware(server, SECRET)

    async def call(path: str, body: Any = ()) -> list[Message]:
        scope = {"type": "http", "path": path, "client": ("127.0.0.1", 1),
                 "headers": [(SECRET_HEADER.encode(), SECRET.encode()),
                             (b"x-request-id", b"theirs")]}  # fmt: skip
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": json.dumps(dict(body)).encode()}

        async def send(message: Message) -> None:
            sent.append(message)

        await middleware(scope, receive, send)
        return sent

    await call(PREFIX + "label", {"label": ONE})
    answer = asyncio.create_task(call("/v1/completions"))
    await settled()
    await call(PREFIX + "hold", {"seconds": 1, "drain": False})
    await call(PREFIX + "label", {"label": TWO, "progress": {f"cmpl-{names[0]}-0-ab": 7}})
    await call(PREFIX + "release")
    go.set()
    head = dict((await answer)[0]["headers"])
    assert head[b"x-headrace-policy-spans"] == b"0:1,7:2"
    assert b"x-headrace-policy-version" not in head
    assert names[0] != "theirs"
    (_, body) = await call(PREFIX + "boundaries", {"request": names[0]})
    assert json.loads(body["body"]) == {"spans": [[0, 1], [7, 2]]}


@pytest.mark.parametrize(
    "path",
    ["/pause", "/resume", "/update_weights", "/collective_rpc", "/reset_prefix_cache", "//pause",
     "/v1/load_lora_adapter", "/sleep", "/unknown", PREFIX + "label", PREFIX + "hold"],
)  # fmt: skip
async def test_routes_of_the_worker_are_for_nobody_else(
    ask: Ask, server: Server, path: str
) -> None:
    server.go.set()
    await own(ask, "label", label=ONE)
    for secret, client in ((None, "127.0.0.1"), ("wrong", "127.0.0.1"), (SECRET, "10.0.0.1")):
        assert (await ask(path, {}, secret=secret, client=client)).status == 403
    assert server.paths == []
    assert (await own(ask, "state"))["version"] == 1


async def test_without_a_secret_nobody_is_the_worker(server: Server) -> None:
    middleware = LabelMiddleware(server, "")
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/pause", "client": ("127.0.0.1", 1),
             "headers": [(SECRET_HEADER.encode(), b"")]}  # fmt: skip
    await middleware(scope, receive, send)
    assert sent[0]["status"] == 403


async def test_what_cannot_be_labelled_is_closed(server: Server) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await LabelMiddleware(server, SECRET)({"type": "websocket", "path": "/v1/x"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert server.paths == []
