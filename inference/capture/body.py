"""The body of a request, bounded in size and time."""

import asyncio

from aiohttp import web

from inference.dialects.refusal import RefusedError
from schemas.settings import GatewaySettings

#: A thousand events of 8 kB. A body of small JSON values takes twenty times its size in memory.
MAX_DOOR_BYTES = 8 * 1024**2


async def read_body(request: web.Request, settings: GatewaySettings) -> bytes:
    """The bytes as they were sent. RefusedError 400, 408 or 413."""
    # Most bodies have come with their head, and nobody waits for them.
    seconds = None if request.content.is_eof() else settings.client_body_seconds
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError:
        raise RefusedError(
            408, "body_too_slow", "The body was not complete within gateway.client_body_seconds "
            f"({settings.client_body_seconds:g}). Send it again.",
        ) from None  # fmt: skip
    except web.RequestPayloadError:
        raise RefusedError(
            400, "broken_body", "The framing of the body is broken. Send it again."
        ) from None
    except web.HTTPRequestEntityTooLarge:
        raise RefusedError(
            413, "body_too_large", "The body is larger than gateway.max_body_bytes "
            f"({settings.max_body_bytes}). Send less.",
        ) from None  # fmt: skip


async def read_plain_body(request: web.Request, settings: GatewaySettings) -> bytes:
    """The body of one of our own routes, which no encoding hides. RefusedError also 415."""
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise RefusedError(
            415, "content_encoding", "This route takes no compressed body. Send it without "
            "Content-Encoding.",
        )  # fmt: skip
    if (request.content_length or 0) > MAX_DOOR_BYTES:
        raise _too_large()
    body = await read_body(request, settings)
    if len(body) > MAX_DOOR_BYTES:
        raise _too_large()
    return body


def _too_large() -> RefusedError:
    return RefusedError(
        413, "body_too_large",
        f"This route takes {MAX_DOOR_BYTES} bytes at once. Send fewer items at a time.",
    )  # fmt: skip
