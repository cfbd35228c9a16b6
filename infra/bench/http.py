"""A small HTTP/1.1 client on one kept-alive connection: it adds as little time as it can."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from schemas.errors import TransientError

ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """An answer and when it came, on `time.perf_counter`."""

    status: int
    body: bytes
    first_byte_at: float
    last_byte_at: float


class Connection:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        self._where = (host, port)
        lines = {"host": f"{host}:{port}", "content-type": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> Answer:
        """Send a request and read its whole answer. TransientError for one that breaks off."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._post(path, body)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.close()
            raise TransientError(
                f"No answer to a request of the benchmark ({type(error).__name__}). "
                "The logs of the stack say why; run it again."
            ) from error

    async def frames(self, path: str, body: bytes) -> AsyncIterator[tuple[bytes, float]]:
        """The pieces of a stream as they come, each with its time. TransientError as above, and
        for any other status than 200."""
        try:
            reader, writer = await self._open()
            writer.write(self._request(path, body))
            _require_stream((await reader.readuntil(b"\r\n\r\n")).lower())
            while size := int(await reader.readuntil(b"\r\n"), 16):
                data = await reader.readexactly(size + 2)
                yield data[:-2], time.perf_counter()
            await reader.readuntil(b"\r\n")
        except TransientError:
            self.close()
            raise
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise TransientError(
                f"A stream of the benchmark broke off ({type(error).__name__}). The logs of the "
                "stack say why; run it again."
            ) from error

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._where)
        return self._reader, self._writer

    def _request(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\n".encode() + self._head
        return head + f"content-length: {len(body)}\r\n\r\n".encode() + body

    async def _post(self, path: str, body: bytes) -> Answer:
        kept = self._reader is not None
        try:
            return await self._once(path, body)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            has_begun = isinstance(error, asyncio.IncompleteReadError) and bool(error.partial)
            if not kept or has_begun:
                raise
        self.close()  # the server had ended the connection while nothing was asked
        return await self._once(path, body)

    async def _once(self, path: str, body: bytes) -> Answer:
        reader, writer = await self._open()
        writer.write(self._request(path, body))
        lines = (await reader.readuntil(b"\r\n\r\n")).lower()
        first_byte_at = time.perf_counter()
        if b"transfer-encoding: chunked" in lines:
            answer = await _chunked(reader)
        else:
            length = lines.partition(b"content-length:")[2].partition(b"\r\n")[0]
            answer = await reader.readexactly(int(length))
        return Answer(int(lines[9:12]), answer, first_byte_at, time.perf_counter())

    def close(self) -> None:
        """Let go of the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def _require_stream(lines: bytes) -> None:
    if int(lines[9:12]) != 200 or b"transfer-encoding: chunked" not in lines:
        raise TransientError(
            f"The answer is no stream in chunks but one of status {int(lines[9:12])}. The logs of "
            "the stack say why."
        )


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(b"\r\n")
    return b"".join(parts)
