"""The HTTP server under the gateway: what no handler gets to see is answered here.

A request that is no HTTP is refused in the form that clients parse, without a word of it in the
answer or in the log. A connection on which nothing happens is closed after `client_idle_seconds`,
also one that sends the head of a request and never its end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from inference.capture import route as routes
from inference.dialects.refusal import RefusedError
from schemas.errors import ConfigError
from schemas.settings import GatewaySettings

_log = structlog.get_logger("gateway")

MAX_HEADER_BYTES = 32_768


class _Connection(web.RequestHandler):
    """One connection of a client."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it holds what the client sent
    ) -> web.StreamResponse:
        """The answer where a request is no HTTP, or where a handler raised what it should not."""
        refusal = _refusal(status, exc)
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
        else:
            _log.info("request_refused", status=refusal.status, cause=type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun; the connection ends instead")
        answer = refusal.response(routes.split(request.rel_url.raw_path).path)
        answer.force_close()
        return answer


def _refusal(status: int, error: BaseException | None) -> RefusedError:
    if status >= 500:
        return RefusedError(
            500, "internal_error",
            "The gateway failed at this request, and its log says where. Please report it.",
        )  # fmt: skip
    if isinstance(error, LineTooLong):
        return RefusedError(
            431, "headers_too_large",
            f"The path or a header is longer than {MAX_HEADER_BYTES} bytes. Send less.",
        )  # fmt: skip
    return RefusedError(
        400, "bad_request",
        "This is no valid HTTP/1.1 request: its first line, a header or the framing of its body "
        "is broken.",
    )  # fmt: skip


class _Server(web.Server):
    """Makes our connections."""

    def __init__(self, made: web.Server, **options: Any) -> None:
        super().__init__(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
        )
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._options)


class _Runner(web.AppRunner):
    """Runs an application on our server."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, handler_cancellation=True, shutdown_timeout=10.0)
        self._options = options

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), **self._options)


async def drain(runner: web.AppRunner, finish: Callable[[], Awaitable[None]]) -> None:
    """Take no new connections, end those without a call, `finish` the others, then end all."""
    for site in list(runner.sites):
        await site.stop()
    if runner.server is not None:
        runner.server.pre_shutdown()
    await finish()
    await runner.cleanup()


async def start_server(
    app: web.Application, settings: GatewaySettings, *, is_shared: bool = False
) -> web.AppRunner:
    """Accept connections. ConfigError where the port is taken.

    With `is_shared` other processes of ours listen on the port as well.
    """
    runner = _Runner(
        app,
        auto_decompress=False,
        access_log=None,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        keepalive_timeout=settings.client_idle_seconds,
    )
    await runner.setup()
    try:
        await web.TCPSite(
            runner, settings.host, settings.port, reuse_port=is_shared or None
        ).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"The gateway cannot listen on {settings.host}:{settings.port} ({error.strerror}). "
            "Set HEADRACE_GATEWAY__PORT to a free port."
        ) from error
    return runner
