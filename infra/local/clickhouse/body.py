"""Request bodies on their way in: decompressed, bounded, and complete before anything is inserted.

A body stays in memory up to a limit and then goes to an unnamed file. A client that dies in the
middle of its upload has therefore inserted nothing.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from aiohttp import BodyPartReader, web
from aiohttp.streams import StreamReader

from infra.local.clickhouse.encoding import CorruptBodyError, Decoder, UnknownEncodingError
from infra.local.clickhouse.errors import ClickHouseError

_MEMORY_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
#: A statement without data, or the part of a body in which the data must begin.
MAX_STATEMENT_BYTES = 16 * 1024 * 1024


class Body:
    """A received body. `close` frees its memory or file."""

    def __init__(self, file: IO[bytes], num_bytes: int) -> None:
        self._file = file
        self.num_bytes = num_bytes

    def head(self) -> bytes:
        """The first part, long enough for any statement."""
        self._file.seek(0)
        return self._file.read(MAX_STATEMENT_BYTES)

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from an offset on, in pieces."""
        self._file.seek(start)
        while chunk := self._file.read(_CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        """Free what the body holds."""
        self._file.close()


async def receive(request: web.Request, max_bytes: int, directory: Path) -> Body:
    """Read a body to its end. ClickHouseError for one that is too large or damaged."""
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    try:
        return await _receive(request.content, Decoder(encoding), max_bytes, directory)
    except UnknownEncodingError:
        raise ClickHouseError(
            48, "NOT_IMPLEMENTED", f"Unknown Content-Encoding '{encoding[:40]}'"
        ) from None
    except CorruptBodyError as error:
        raise ClickHouseError(354, "ZLIB_INFLATE_FAILED", f"Cannot decompress: {error}") from None


async def _receive(
    content: StreamReader, decoder: Decoder, max_bytes: int, directory: Path
) -> Body:
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, dir=str(directory))  # noqa: SIM115  # Body closes it
    num_bytes = 0
    try:
        async for data in content.iter_chunked(_CHUNK_BYTES):
            decoded = decoder.feed(data)
            num_bytes += len(decoded)
            _require_at_most(max_bytes, num_bytes)
            file.write(decoded)
        decoder.finish()
    except BaseException:
        file.close()
        raise
    return Body(file, num_bytes)


async def receive_form(request: web.Request, max_bytes: int) -> dict[str, str]:
    """Fields of a multipart form, as clients send them when parameters are long."""
    fields: dict[str, str] = {}
    total = 0
    reader = await request.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or part.filename is not None or part.name is None:
            raise ClickHouseError(
                48, "NOT_IMPLEMENTED", "External data tables are not served here; use a table"
            )
        value = await part.read(decode=False)
        total += len(value)
        _require_at_most(max_bytes, total)
        fields[part.name] = value.decode()
    return fields


def _require_at_most(max_bytes: int, num_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise ClickHouseError(
            131, "TOO_LARGE_STRING_SIZE",
            f"The body is larger than {max_bytes} bytes; insert in smaller batches "
            "or start the server with a larger --max-body-bytes",
        )  # fmt: skip
