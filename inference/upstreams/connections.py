"""Connections to upstreams: opened, kept for a while, one request at a time over each.

The parser and the flow control are those of aiohttp's client. Its session is left out: cookies,
redirects, proxies, tracing and a request object cost more for each call than all of our own code,
and none of it may happen here.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from inference.capture.headers import Pairs

#: Engines close idle connections after 5 s; a kept one that is older would meet a reset.
KEEP_ALIVE_SECONDS = 4.0
_MAX_HEADER_BYTES = 65_536
#: Of several addresses of a host the next one is tried after this long.
_NEXT_ADDRESS_SECONDS = 0.25
#: Up to here head and body leave in one write.
_ONE_WRITE_BYTES = 1024**2
#: Without a body these say nothing of its length.
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class UnreachableError(ConnectionError):
    """No connection could be opened."""


class StaleConnectionError(Exception):
    """A kept connection was closed before a byte of the answer came."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections lead. `prefix` is put before every path."""

    host: str
    port: int
    is_secure: bool
    #: As the header `Host` names it.
    name: str
    prefix: str


@lru_cache(maxsize=1_024)
def origin_of(base: str) -> Origin:
    """The origin of a base URL."""
    url = URL(base, encoded=True)
    return Origin(
        url.host or "", url.port or 80, url.scheme == "https", url.host_port_subcomponent or "",
        url.raw_path.rstrip("/"),
    )  # fmt: skip


class Answer:
    """The beginning of an answer. Released, its connection is kept if all of it was read."""

    def __init__(
        self, status: int, reason: str | None, headers: CIMultiDictProxy[str],
        content: aiohttp.StreamReader, release: Callable[[], None],
    ) -> None:  # fmt: skip
        self.status, self.reason, self.headers = status, reason, headers
        self.content = content
        self._release = release

    @property
    def content_length(self) -> int | None:
        """Bytes of the body; None where the head does not say."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

    async def read(self) -> bytes:
        """All of the body."""
        return await self.content.read()

    def release(self) -> None:
        """Let go of the connection. More than once does nothing."""
        self._release()

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.release()


class Connections:
    """Of one event loop. There is no limit: each connection of a client holds at most one."""

    def __init__(self, connect_seconds: float, read_seconds: float) -> None:
        """`read_seconds` bounds how long nothing may come, before an answer and within it."""
        self._connect_seconds, self._read_seconds = connect_seconds, read_seconds
        self._idle: dict[Origin, list[tuple[ResponseHandler, float]]] = {}
        self._busy: set[ResponseHandler] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def send(
        self, origin: Origin, method: str, target: str, pairs: Pairs, body: bytes, *,
        fresh: bool = False,
    ) -> Answer:  # fmt: skip
        """The beginning of the answer. With `fresh` over a new connection that is not kept.

        StaleConnectionError if a kept connection was dead already, UnreachableError or
        `aiohttp.ConnectionTimeoutError` where none opens, `aiohttp.ServerDisconnectedError` or
        `ClientOSError` where it breaks, `SocketTimeoutError` where nothing comes.
        """
        kept = None if fresh else self._kept(origin)
        # A connection from which nothing is to be read counts as false.
        protocol = await self._open(origin) if kept is None else kept
        self._busy.add(protocol)
        try:
            return await self._exchange(
                protocol, origin, method,
                head_of(origin, method, target, pairs, len(body), closes=fresh), body,
            )  # fmt: skip
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            self._end(protocol)
            if kept is not None:
                raise StaleConnectionError from error
            raise
        except HttpProcessingError as error:
            self._end(protocol)
            raise aiohttp.ClientPayloadError("the upstream's answer is no HTTP") from error
        except BaseException:
            self._end(protocol)
            raise

    async def _exchange(
        self, protocol: ResponseHandler, origin: Origin, method: str, head: bytes, body: bytes
    ) -> Answer:
        protocol.set_response_params(
            skip_payload=method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=self._read_seconds,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )
        transport = protocol.transport
        if transport is None:  # it was closed as soon as it was opened
            raise aiohttp.ServerDisconnectedError
        if len(body) > _ONE_WRITE_BYTES:
            transport.write(head)
            transport.write(memoryview(body))
        else:
            transport.write(head + body)
        protocol.start_timeout()
        message, content = await protocol.read()
        while message.code < 200 and message.code != 101:  # 100 Continue and the like
            message, content = await protocol.read()

        def release() -> None:
            if protocol in self._busy:
                self._busy.discard(protocol)
                self._keep(origin, protocol)

        return Answer(message.code, message.reason, message.headers, content, release)

    def _kept(self, origin: Origin) -> ResponseHandler | None:
        """The connection that was used last, if it still stands."""
        idle = self._idle.get(origin, [])
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_SECONDS
        while idle:
            protocol, since = idle.pop()
            if protocol.is_connected() and not protocol.should_close and since > oldest:
                return protocol
            protocol.close()
        return None

    def _keep(self, origin: Origin, protocol: ResponseHandler) -> None:
        if protocol.should_close or not protocol.is_connected():
            self._end(protocol)
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(origin, []).append((protocol, loop.time()))
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEEP_ALIVE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """End what was not used for long enough."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEP_ALIVE_SECONDS
        self._sweeping = None
        for origin, idle in list(self._idle.items()):
            for protocol, since in idle:
                if since <= oldest:
                    protocol.close()
            left = [(protocol, since) for protocol, since in idle if since > oldest]
            if left:
                self._idle[origin] = left
            else:
                del self._idle[origin]
        if self._idle:
            self._sweeping = loop.call_later(KEEP_ALIVE_SECONDS, self._sweep)

    def _end(self, protocol: ResponseHandler) -> None:
        """Close a connection. What was not sent yet is not sent any more."""
        self._busy.discard(protocol)
        transport = protocol.transport
        if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
            protocol.abort()
        else:
            protocol.close()

    async def _open(self, origin: Origin) -> ResponseHandler:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, protocol = await loop.create_connection(
                    lambda: ResponseHandler(loop), origin.host, origin.port,
                    ssl=self._context() if origin.is_secure else None,
                    happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                )  # fmt: skip
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error
        except OSError as error:
            raise UnreachableError from error
        return protocol

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    async def close(self) -> None:
        """Close all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        kept = [protocol for idle in self._idle.values() for protocol, _ in idle]
        for protocol in [*kept, *self._busy]:
            protocol.close()
        self._idle.clear()
        self._busy.clear()
        await asyncio.sleep(0)  # the transports close in the next turn of the loop


def head_of(
    origin: Origin, method: str, target: str, pairs: Pairs, num_bytes: int, *, closes: bool = False
) -> bytes:
    """The head of a request. ValueError for a header that would be more than one."""
    lines = [f"{method} {origin.prefix}{target} HTTP/1.1", f"Host: {origin.name}"]
    lines += [f"{name}: {value}" for name, value in pairs]
    if num_bytes or method not in _WITHOUT_BODY:
        lines.append(f"Content-Length: {num_bytes}")
    if closes:
        lines.append("Connection: close")
    text = "\r\n".join([*lines, "", ""])
    if text.count("\n") != len(lines) + 1 or text.count("\r") != len(lines) + 1:
        raise ValueError("a header holds the end of a line")
    return text.encode()
