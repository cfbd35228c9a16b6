"""The LLM APIs behind the gateway, over pooled connections."""

import io
from contextvars import ContextVar
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from inference.capture import headers
from inference.upstreams.breaker import Breakers, RetryBudget
from inference.upstreams.places import Place, Places
from schemas.settings import GatewaySettings
from schemas.telemetry import Metrics

#: Engines close idle connections after 5 s; a pooled one that is older would meet a reset.
_KEEP_ALIVE_SECONDS = 4.0
_MAX_HEADER_BYTES = 65_536
#: Up to here headers and body leave in one write; above, aiohttp asks for a file.
_ONE_WRITE_BYTES = 1024**2
_ADDED_BY_CLIENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

#: Settings that a running gateway takes on.
RELOADED = ("upstream", "upstreams", "capture")


#: Set by `send` for the time of a request, and marked when a connection is opened for it. aiohttp's
#: tracing tells the same for a sixth more of a request's CPU time.
_OPENED: ContextVar[list[bool] | None] = ContextVar("opened", default=None)


class StaleConnectionError(Exception):
    """A kept-alive connection was closed before a byte of the answer came."""


class _Connector(aiohttp.TCPConnector):
    """Says when a connection is opened."""

    async def _create_connection(self, *arguments: Any) -> Any:
        opened = _OPENED.get()
        if opened is not None:
            opened.append(True)
        return await super()._create_connection(*arguments)


class Upstream:
    """Sends requests. Headers and bodies pass as they are; answers are not decompressed."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics | None = None) -> None:
        """ConfigError for a key that cannot be read."""
        self.settings = settings
        self.places = Places(settings)
        self.breakers = Breakers(settings)
        self.budget = RetryBudget(settings.retry_share, settings.retry_reserve)
        #: Addresses of upstreams that take no `stream_options`.
        self.refuse_usage: set[str] = set()
        self._metrics = metrics or Metrics()
        self._pooled = self._session(force_close=False)
        self._fresh = self._session(force_close=True)

    def reload(self, settings: GatewaySettings) -> None:
        """Send the calls that begin from now on where these settings say. What is under way goes
        on; so do connections. ConfigError, and nothing changes, for a key that cannot be read."""
        changed = {name: getattr(settings, name) for name in RELOADED}
        merged = self.settings.model_copy(update=changed)
        self.places = Places(merged)
        self.refuse_usage.clear()
        self.settings = merged

    def has_own_credentials(self) -> bool:
        """True when clients' `Authorization` and `x-api-key` are ours to read."""
        return self.places.has_own_credentials

    def count(self, place: Place, result: str) -> None:
        """Count a try: `answered`, `refused` or `unanswered`."""
        self._metrics.counter("headrace_upstream_tries", upstream=place.name, result=result).inc()

    def _session(self, *, force_close: bool) -> aiohttp.ClientSession:
        # No limit of its own: each connection of a client holds at most one to the upstream.
        connector = (
            aiohttp.TCPConnector(limit=0, force_close=True)
            if force_close
            else _Connector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        )
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED_BY_CLIENT,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self.settings.upstream_connect_seconds,
                sock_read=self.settings.upstream_stall_seconds,
            ),
        )

    async def send(
        self, method: str, target: URL, pairs: headers.Pairs, body: bytes
    ) -> aiohttp.ClientResponse:
        """Send over a pooled connection. StaleConnectionError if it was dead already."""
        opened: list[bool] = []
        token = _OPENED.set(opened)
        try:
            return await self._send(self._pooled, method, target, pairs, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not opened and not isinstance(error, aiohttp.ClientConnectorError):
                raise StaleConnectionError from error
            raise
        finally:
            _OPENED.reset(token)

    async def send_fresh(
        self, method: str, target: URL, pairs: headers.Pairs, body: bytes
    ) -> aiohttp.ClientResponse:
        """Send over a new connection."""
        return await self._send(self._fresh, method, target, pairs, body)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        target: URL,
        pairs: headers.Pairs,
        body: bytes,
    ) -> aiohttp.ClientResponse:
        return await session.request(
            method,
            target,
            headers=CIMultiDict(pairs),
            data=io.BytesIO(body) if len(body) > _ONE_WRITE_BYTES else body or None,
            allow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pooled.close()
        await self._fresh.close()
