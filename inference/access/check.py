"""Who is calling: finds the key in a request and checks what it may do."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from inference.access.keys import KeyFollower, has_scope
from inference.capture.headers import OURS
from inference.capture.route import Route
from inference.dialects.refusal import RefusedError
from schemas.atdp.internal import KeyRecord

_REFRESH_SECONDS = 2.0
_POLL_SECONDS = 0.02


class Access:
    """Checks keys against what the follower knows."""

    def __init__(self, keys: KeyFollower, reads_credentials: Callable[[], bool]) -> None:
        self._keys = keys
        self._reads_credentials = reads_credentials

    async def grant(self, request: web.Request, route: Route, scope: str) -> KeyRecord:
        """The record of the request's key. RefusedError 401, 403 or 503."""
        key = self._key_of(request, route)
        if key is None:
            raise RefusedError(
                401, "missing_key",
                "No headrace key was sent. Put one into the x-headrace-key header or the base "
                "URL (/k/<key>/v1); `headrace keys create` makes one.",
            )  # fmt: skip
        record = self._find(key) or await self._find_after_refresh(key)
        if record is None:
            raise RefusedError(
                401, "unknown_key",
                "This headrace key is unknown or revoked. `headrace keys list` shows the ids of "
                "the good ones, `headrace keys create` makes a new one.",
            )  # fmt: skip
        if not has_scope(record, scope):
            raise RefusedError(
                403, "missing_scope",
                f"This key lacks the scope {scope}. Make one that has it: "
                f"headrace keys create --tenant {record.tenant_id} --scope {scope}",
            )  # fmt: skip
        return record

    def _key_of(self, request: web.Request, route: Route) -> str | None:
        key = request.headers.get(f"{OURS}key") or route.key
        if key or not self._reads_credentials():
            return key
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return token.strip()
        return request.headers.get("x-api-key")

    def _find(self, key: str) -> KeyRecord | None:
        return self._keys.book.find(key, datetime.now(UTC))

    async def _find_after_refresh(self, key: str) -> KeyRecord | None:
        """A key made a moment ago may still be on its way: wait for the topic's end once."""
        asked_at = time.monotonic()
        while self._keys.seen_end_at < asked_at:
            if time.monotonic() > asked_at + _REFRESH_SECONDS:
                if self._keys.seen_end_at == 0:
                    raise RefusedError(
                        503, "keys_unavailable",
                        "Keys cannot be checked because Kafka cannot be reached. Try again; "
                        "`headrace status` shows what is down.", retry_after_seconds=2,
                    )  # fmt: skip
                break
            await asyncio.sleep(_POLL_SECONDS)
        return self._find(key)
