"""The LLM API behind the gateway, over pooled connections."""

import io
from types import SimpleNamespace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from inference.capture import headers
from schemas.errors import ConfigError
from schemas.settings import GatewaySettings

#: Engines close idle connections after 5 s; a pooled one that is older would meet a reset.
_KEEP_ALIVE_SECONDS = 4.0
_MAX_HEADER_BYTES = 65_536
#: Up to here headers and body leave in one write; above, aiohttp asks for a file.
_ONE_WRITE_BYTES = 1024**2
_ADDED_BY_CLIENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class StaleConnectionError(Exception):
    """A kept-alive connection was closed before a byte of the answer came."""


class Upstream:
    """Sends requests. Headers and bodies pass as they are; answers are not decompressed."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self._base = _base(settings.upstream.url)
        self._api_key = _read_key(settings)
        self._pooled = self._session(force_close=False)
        self._fresh = self._session(force_close=True)

    @property
    def has_own_credential(self) -> bool:
        """True when clients' `Authorization` and `x-api-key` are ours to read."""
        return self._api_key is not None

    def target(self, path: str, query: str, address: str | None = None) -> URL:
        """The URL of a path at the upstream, or at `address`; nothing of it re-encoded."""
        base = self._base if address is None else _base(address)
        query = f"?{query}" if query else ""
        return URL(f"{base}{path}{query}", encoded=True)

    def _session(self, *, force_close: bool) -> aiohttp.ClientSession:
        # No limit of its own: each connection of a client holds at most one to the upstream.
        connector = (
            aiohttp.TCPConnector(limit=0, force_close=True)
            if force_close
            else aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        )
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED_BY_CLIENT,
            trace_configs=[tracing],
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
        reused = SimpleNamespace(is_reused=False)
        try:
            return await self._send(self._pooled, method, target, pairs, body, reused)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if reused.is_reused and not isinstance(error, aiohttp.ClientConnectorError):
                raise StaleConnectionError from error
            raise

    async def send_fresh(
        self, method: str, target: URL, pairs: headers.Pairs, body: bytes
    ) -> aiohttp.ClientResponse:
        """Send over a new connection."""
        return await self._send(self._fresh, method, target, pairs, body, None)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        target: URL,
        pairs: headers.Pairs,
        body: bytes,
        context: Any,
    ) -> aiohttp.ClientResponse:
        return await session.request(
            method,
            target,
            headers=CIMultiDict(headers.for_upstream(pairs, self._api_key)),
            data=io.BytesIO(body) if len(body) > _ONE_WRITE_BYTES else body or None,
            allow_redirects=False,
            trace_request_ctx=context,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pooled.close()
        await self._fresh.close()


async def _note_reuse(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.is_reused = True


def _base(url: str) -> str:
    """An address without the `/v1` that people add, as it is common elsewhere."""
    return str(URL(url.rstrip("/").removesuffix("/v1"), encoded=True)).rstrip("/")


def _read_key(settings: GatewaySettings) -> str | None:
    path = settings.upstream.api_key_file
    if path is None:
        return None
    try:
        key = path.read_text().strip()
    except OSError:
        key = ""
    if not key:
        raise ConfigError(
            f"gateway.upstream.api_key_file {path} holds no key. Write the upstream's key into it."
        )
    return key
