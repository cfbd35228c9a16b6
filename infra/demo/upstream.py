"""The model of the demo: an OpenAI-compatible server that gives recorded replies.

`python -m infra.demo.upstream --port 22001 --seed 7` serves the demo's own conversations,
`--trajectories FILE` those of a file. It prints one line when it accepts connections.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from infra.demo.completions import Completion
from infra.demo.conversations import (
    DEFAULT_NUM_CONVERSATIONS,
    Conversation,
    generate,
    load_trajectories,
)
from infra.demo.recorded import RecordedReplies
from schemas.errors import ConfigError

MODEL = "demo-recorded"
_MAX_BODY_BYTES = 64 * 1024 * 1024
_IDLE_SECONDS = 3600.0  # longer than any pause of a demo, so that no pooled connection goes stale
# Sizes of the writes of a stream: real upstreams cut events, and characters, anywhere.
_WRITE_BYTES = (700, 90, 2500, 333)


def error_body(message: str, code: str) -> dict[str, Any]:
    """An error in the form OpenAI clients parse."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def writes(events: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of `events` in writes of uneven size."""
    joined = b"".join(events)
    sizes = itertools.cycle(_WRITE_BYTES)
    start = 0
    while start < len(joined):
        end = start + next(sizes)
        yield joined[start:end]
        start = end


class Upstream:
    """The routes of the server. State: which recorded replies were already given."""

    def __init__(self, conversations: list[Conversation]) -> None:
        self._replies = RecordedReplies(conversations)

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        return app

    async def models(self, _request: web.Request) -> web.Response:
        """The one model there is."""
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "headrace-demo"}
        return web.json_response({"object": "list", "data": [model]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """The recorded reply to the request's history; 404 where there is none."""
        body_bytes = await request.read()
        try:
            body = orjson.loads(body_bytes)
            messages = list(body["messages"])
        except (ValueError, KeyError, TypeError):
            return web.json_response(
                error_body("the body is not a chat completion request", "bad_request"), status=400
            )
        reply = self._replies.reply_to(messages)
        if reply is None:
            text = (
                "no reply was recorded for this history. This server only repeats recorded "
                "conversations; start it with the file or seed the player uses."
            )
            return web.json_response(error_body(text, "unknown_history"), status=404)
        completion = Completion(
            response_id=f"chatcmpl-{uuid.uuid4().hex}",
            created_seconds=int(time.time()),
            model=MODEL,
            message=reply,
            num_prompt_tokens=len(body_bytes) // 4,
        )
        if not body.get("stream"):
            return web.Response(
                body=orjson.dumps(completion.whole()), content_type="application/json"
            )
        options = body.get("stream_options") or {}
        events = completion.events(include_usage=bool(options.get("include_usage")))
        return await self._stream(request, events)

    async def _stream(self, request: web.Request, events: Iterator[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for written in writes(events):
            await response.write(written)
            await asyncio.sleep(0)  # let other streams run, so that they interleave
        await response.write_eof()
        return response


async def serve(conversations: list[Conversation], host: str, port: int) -> web.AppRunner:
    """Start the server; the caller ends it with `cleanup()`. Port 0 takes a free one."""
    runner = web.AppRunner(Upstream(conversations).app(), keepalive_timeout=_IDLE_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"cannot listen on {host}:{port} ({error.strerror}). Choose another --port."
        ) from error
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port a started server listens on."""
    return int(runner.addresses[0][1])


async def _run_until_signal(conversations: list[Conversation], host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    runner = await serve(conversations, host, port)
    sys.stdout.write(f"serving {len(conversations)} conversations on {bound_port(runner)}\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


def main() -> int:
    """Command line; returns the exit status (2 for a wrong configuration)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-conversations", type=int, default=DEFAULT_NUM_CONVERSATIONS)
    parser.add_argument("--trajectories", type=Path)
    given = parser.parse_args()
    try:
        if given.trajectories is not None:
            conversations = load_trajectories(given.trajectories)
        else:
            conversations = generate(given.seed, given.num_conversations)
        asyncio.run(_run_until_signal(conversations, given.host, given.port))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
