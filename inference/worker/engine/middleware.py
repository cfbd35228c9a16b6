"""ASGI middleware of the engine's HTTP server: labels answers, holds requests, guards routes.

A version label is true because nothing is in flight while it moves. The worker asks for a hold:
new requests wait here, those under way finish. Then it writes, proves, moves the label, and lets
go. So the label at the entry of a request is that of the weights that answered it.

In `keep` mode the worker asks for no hold. Answers under way go on with other weights then; each
has the boundaries, as (tokens produced, version), and no single version.
"""

import asyncio
import hmac
import json
import os
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from inference.worker.engine.shelf import Shelf

SECRET_VARIABLE = "HEADRACE_ENGINE_SECRET"  # noqa: S105 - the name of a variable
SECRET_HEADER = "x-headrace-worker-secret"  # noqa: S105 - the name of a header
PREFIX = "/headrace/"
_PUBLIC_PREFIXES = ("/v1/",)
_PUBLIC = {
    "/health",
    "/ping",
    "/version",
    "/metrics",
    "/metrics/",
    "/tokenize",
    "/detokenize",
    "/load",
}
_GUARDED = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}
_UNLABELLED = {"/health", "/ping", "/version", "/metrics", "/metrics/", "/load"}
_LOOPBACK = {"127.0.0.1", "::1"}
_MAX_HELD = 1_000
_MAX_HELD_SECONDS = 120.0
_MAX_REMEMBERED = 1_000

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Label:
    """What the engine's weights are, proved. Without a version nothing is stamped."""

    policy: str | None = None
    version: int | None = None
    root: str | None = None
    #: Why nothing may be served, if so.
    refusal: str | None = None
    #: The name under which the engine has the adapter that all requests are answered with.
    adapter: str | None = None


@dataclass(slots=True)
class Flight:
    """A request under way, and the versions that answered it from which token on."""

    spans: list[tuple[int, Label]] = field(default_factory=list)
    #: It came when the engine stood still already, so the new weights answer all of it.
    is_fresh: bool = False


class LabelMiddleware:
    """One for each server process. Its state is that of this process."""

    def __init__(self, app: App, secret: str | None = None) -> None:
        self._app = app
        self._secret = os.environ.get(SECRET_VARIABLE, "") if secret is None else secret
        self._label = Label(refusal="starting")
        self._adapters = Shelf()
        self._flights: dict[str, Flight] = {}
        self._ended: dict[str, Flight] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._num_held = 0
        self._is_pausing = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            # No label could be put on what passes here.
            await send({"type": "websocket.close", "code": 1008})
        elif _is_public(scope["path"]):
            await self._public(scope, receive, send)
        elif not self._is_worker(scope):
            await _answer(send, 403, {"error": "This route is for the engine's own worker."})
        elif scope["path"].startswith(PREFIX):
            await self._own_route(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_worker(self, scope: MutableMapping[str, Any]) -> bool:
        client = scope.get("client")
        given = dict(scope["headers"]).get(SECRET_HEADER.encode(), b"")
        known = bool(self._secret) and hmac.compare_digest(given, self._secret.encode())
        return known and client is not None and client[0] in _LOOPBACK

    # --- what everybody may call -------------------------------------------------------------

    async def _public(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["path"] in _UNLABELLED:
            await self._app(scope, receive, send)
        elif await self._admitted(scope):
            await self._flown(scope, receive, send)
        else:
            reason = self._label.refusal or "too many requests wait for new weights"
            await _answer(send, 503, {"error": {"message": reason, "type": "unavailable"}},
                          ((b"retry-after", b"1"),))  # fmt: skip

    async def _admitted(self, scope: MutableMapping[str, Any]) -> bool:
        """Wait while weights are written; False when it takes too long or nothing may be served.

        The worker's own requests pass: that is how it checks an engine that serves nobody yet.
        """
        if self._is_worker(scope):
            return True
        if not self._open.is_set():
            if self._num_held >= _MAX_HELD:
                return False
            self._num_held += 1
            try:
                async with asyncio.timeout(_MAX_HELD_SECONDS):
                    while not self._open.is_set():
                        await self._open.wait()
            except TimeoutError:
                return False
            finally:
                self._num_held -= 1
        return self._label.refusal is None

    async def _flown(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # No `await` between the check that the way is open and this line.
        name, scope = _named(scope)
        flight = Flight([(0, self._label)], self._is_pausing)
        self._flights[name] = flight
        self._idle.clear()
        start: Message | None = None

        async def labelled(message: Message) -> None:
            # The head waits for the first part of the body: only then is it known who answered.
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is not None:
                head, start = start, None
                head["headers"] = [*head.get("headers", ()), *_headers(name, flight)]
                await send(head)
            await send(message)

        try:
            await self._app(scope, receive, labelled)
        finally:
            self._ended[name] = self._flights.pop(name)
            if len(self._ended) > _MAX_REMEMBERED:
                del self._ended[next(iter(self._ended))]
            if not self._flights:
                self._idle.set()

    # --- what the worker may call ------------------------------------------------------------

    async def _own_route(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        body = await _body(receive)
        match scope["path"].removeprefix(PREFIX):
            case "hold":
                await self._hold(float(body["seconds"]), send, drain=body["drain"])
            case "release":
                self._open.set()
                self._is_pausing = False
                await _answer(send, 200, {})
            case "label":
                label = Label(**body["label"])
                self._adapters.answer_with(scope, label.adapter)
                self._relabel(label, body.get("progress") or {})
                await _answer(send, 200, {})
            case "adapter":
                await _answer(send, 200, {"number": self._adapters.take(scope, body["name"])})
            case "forget":
                self._adapters.forget(scope, body["name"])
                await _answer(send, 200, {})
            case "state":
                await _answer(send, 200, self._state())
            case "boundaries":
                flight = self._flights.get(body["request"]) or self._ended.get(body["request"])
                spans = None if flight is None else [(at, la.version) for at, la in flight.spans]
                await _answer(send, 200, {"spans": spans})
            case _:
                await _answer(send, 404, {"error": "There is no such route."})

    async def _hold(self, seconds: float, send: Send, *, drain: bool) -> None:
        """Let nobody in and wait until nobody is inside; let all in again when that takes long."""
        if not drain:
            self._is_pausing = True
            await _answer(send, 200, {"held": True})
            return
        self._open.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            self._open.set()
        await _answer(send, 200, {"held": not self._open.is_set()})

    def _relabel(self, label: Label, progress: dict[str, int]) -> None:
        """Move the label; requests under way get a boundary, or none where it is not known."""
        self._label = label
        for name, flight in self._flights.items():
            # vLLM's name of a request has ours in it.
            tokens = next((n for theirs, n in progress.items() if name in theirs), None)
            if flight.is_fresh or tokens == 0:
                flight.spans = [(0, label)]
            elif tokens is None:
                # Answered before, or not begun: which of the two, nobody knows.
                flight.spans = [(0, Label(policy=label.policy))]
            else:
                flight.spans.append((tokens, label))

    def _state(self) -> dict[str, Any]:
        label = self._label
        return {
            "policy": label.policy,
            "version": label.version,
            "root": label.root,
            "refusal": label.refusal,
            "in_flight": len(self._flights),
            "held": self._num_held,
            "open": self._open.is_set(),
            "adapter": label.adapter,
        }


def _is_public(path: str) -> bool:
    return path not in _GUARDED and (path in _PUBLIC or path.startswith(_PUBLIC_PREFIXES))


def _named(scope: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
    """The request under a name of ours, by which the engine knows it too."""
    name = uuid.uuid4().hex
    kept = [(k, v) for k, v in scope["headers"] if k.lower() != b"x-request-id"]
    return name, {**scope, "headers": [*kept, (b"x-request-id", name.encode())]}


def _headers(name: str, flight: Flight) -> list[tuple[bytes, bytes]]:
    """The version, where there is one; the spans, where several answered so far."""
    labels = [label for _, label in flight.spans]
    label = labels[-1]
    headers = [(b"x-headrace-request", name.encode())]
    if label.policy is not None:
        headers.append((b"x-headrace-policy", label.policy.encode()))
    if len(labels) > 1:
        spans = ",".join(f"{at}:{'' if la.version is None else la.version}"
                         for at, la in flight.spans)  # fmt: skip
        headers.append((b"x-headrace-policy-spans", spans.encode()))
    elif label.version is not None and label.root is not None:
        headers.append((b"x-headrace-policy-version", str(label.version).encode()))
        headers.append((b"x-headrace-weights-root", label.root.encode()))
    return headers


async def _body(receive: Receive) -> dict[str, Any]:
    data = b""
    while True:
        message = await receive()
        data += message.get("body", b"")
        if not message.get("more_body"):
            return dict(json.loads(data or b"{}"))


async def _answer(
    send: Send, status: int, body: Any, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    content = json.dumps(body).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*head, *headers]})
    await send({"type": "http.response.body", "body": content})
