"""The model of the soak: recorded replies, found by the talk's tag and the number of messages.

Unlike the demo's it answers a request that comes again with the same reply, and it takes its
time, so that calls are open when something dies. It runs outside the stack and is never killed.

    python -m tests.soak.model --port 22001 [--trajectories FILE]
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import orjson
from aiohttp import web

from infra.demo.completions import Completion
from infra.demo.conversations import Conversation
from tests.soak.talks import load_conversations, number_in

NAME = "soak-recorded"
_NUM_WRITES = 4
_WRITE_SECONDS = 0.02
_MAX_BODY_BYTES = 64 * 1024**2


class Model:
    """The routes of the server."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self._conversations = conversations

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        return app

    async def models(self, _request: web.Request) -> web.Response:
        """The one model there is."""
        return web.json_response({"object": "list", "data": [{"id": NAME, "object": "model"}]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """The recorded reply; 404 for a request that belongs to no talk."""
        body_bytes = await request.read()
        body = orjson.loads(body_bytes)
        number = number_in(body["messages"])
        if number is None:
            return web.json_response({"error": {"message": "no talk"}}, status=404)
        recorded = self._conversations[number % len(self._conversations)]
        completion = Completion(
            response_id=f"chatcmpl-{uuid.uuid4().hex}",
            created_seconds=int(time.time()),
            model=NAME,
            message=recorded.messages[len(body["messages"])],
            num_prompt_tokens=len(body_bytes) // 4,
        )
        if not body.get("stream"):
            await asyncio.sleep(_WRITE_SECONDS * _NUM_WRITES)
            return web.Response(
                body=orjson.dumps(completion.whole()), content_type="application/json"
            )
        return await _stream(request, b"".join(completion.events(include_usage=False)))


async def _stream(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    size = -(-len(body) // _NUM_WRITES)
    for start in range(0, len(body), size):
        await response.write(body[start : start + size])
        await asyncio.sleep(_WRITE_SECONDS)
    await response.write_eof()
    return response


async def _serve(conversations: Sequence[Conversation], port: int) -> None:
    runner = web.AppRunner(Model(conversations).app(), keepalive_timeout=3600.0, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()  # until the process is ended


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--trajectories", type=Path)
    given = parser.parse_args()
    asyncio.run(_serve(load_conversations(given.trajectories), given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
