"""The bytes of a captured exchange: claim checks fetched, content encodings undone.

Decompression is bounded: a small body that unfolds into gigabytes is refused, not swallowed.
"""

import re
import zlib
from collections.abc import Callable

import orjson

from schemas.atdp.types import Exchange, Header
from schemas.errors import PermanentError, Reason
from schemas.store import BlobStore

#: What a body may unfold to. A gateway takes bodies up to its own, equal limit.
MAX_BODY_BYTES = 64 * 1024**2
#: Encodings on top of each other; real ones use one, and each is work of its own.
MAX_CODINGS = 3
#: Members of one gzip body: each costs a copy of what follows it.
MAX_MEMBERS = 64
_GZIP_MAGIC = b"\x1f\x8b"


def request_bytes(exchange: Exchange, blobs: BlobStore) -> bytes:
    """The request body as the client meant it. PermanentError where it cannot be had."""
    stored = _stored(exchange.request_body, exchange.request_body_uri, exchange.tenant_id, blobs)
    return _decoded(stored, exchange.request_headers)


def response_bytes(exchange: Exchange, blobs: BlobStore) -> bytes:
    """The response body as the upstream meant it, cut short where the exchange was."""
    stored = _stored(exchange.response_body, exchange.response_body_uri, exchange.tenant_id, blobs)
    return _decoded(stored, exchange.response_headers)


def header(headers: tuple[Header, ...], name: str) -> str:
    """The value of the first header of that lower-case name, else the empty string."""
    return next((h.value for h in headers if h.name == name), "")


def _stored(inline: bytes, uri: str | None, tenant_id: str, blobs: BlobStore) -> bytes:
    return inline if uri is None else blobs.get(tenant_id, uri)


def _decoded(body: bytes, headers: tuple[Header, ...]) -> bytes:
    codings = header(headers, "content-encoding").lower().split(",")
    if len(codings) > MAX_CODINGS:
        raise PermanentError(Reason.OVERSIZED, "content_encoding")
    for coding in reversed(codings):
        if body:  # an exchange that ended before its first byte names an encoding all the same
            body = _DECODERS.get(coding.strip(), _refuse)(body)
    return body


def _refuse(_body: bytes) -> bytes:
    raise PermanentError(Reason.UNDECODABLE, "content_encoding")


def _gzip(body: bytes) -> bytes:
    """All members in a row; some servers flush by starting a new one."""
    data, rest = _inflated(body, 16 + zlib.MAX_WBITS, MAX_BODY_BYTES)
    pieces, num_bytes = [data], len(data)
    while rest.startswith(_GZIP_MAGIC):  # anything else behind a member is padding
        if len(pieces) == MAX_MEMBERS:
            raise PermanentError(Reason.OVERSIZED, "content_encoding")
        data, rest = _inflated(rest, 16 + zlib.MAX_WBITS, MAX_BODY_BYTES - num_bytes)
        pieces.append(data)
        num_bytes += len(data)
    return b"".join(pieces)


def _deflate(body: bytes) -> bytes:
    """With the zlib wrapper that HTTP asks for, or without it as many servers send."""
    wrapped = body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
    return _inflated(body, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS, MAX_BODY_BYTES)[0]


def _inflated(body: bytes, window_bits: int, max_bytes: int) -> tuple[bytes, bytes]:
    """As much as there is of one member, and what follows it."""
    engine = zlib.decompressobj(window_bits)
    try:
        data = engine.decompress(body, max_bytes + 1)
    except zlib.error:
        raise PermanentError(Reason.UNDECODABLE, "content_encoding") from None
    if len(data) > max_bytes:
        raise PermanentError(Reason.OVERSIZED, "content_encoding")
    return data, engine.unused_data


def _zstd(body: bytes) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            data = bytes(reader.read(MAX_BODY_BYTES + 1))
    except zstandard.ZstdError:
        raise PermanentError(Reason.UNDECODABLE, "content_encoding") from None
    if len(data) > MAX_BODY_BYTES:
        raise PermanentError(Reason.OVERSIZED, "content_encoding")
    return data


def _brotli(body: bytes) -> bytes:
    import brotli

    engine = brotli.Decompressor()
    try:
        data = bytes(engine.process(body, output_buffer_limit=MAX_BODY_BYTES + 1))
    except brotli.error:
        raise PermanentError(Reason.UNDECODABLE, "content_encoding") from None
    # The engine fills whole buffers: it may stop short of the limit or a little past it.
    if len(data) > MAX_BODY_BYTES or not (engine.is_finished() or engine.can_accept_more_data()):
        raise PermanentError(Reason.OVERSIZED, "content_encoding")
    return data


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "identity": lambda body: body,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}


#: The last event of a stream of the Messages or the Responses dialect.
_LAST_EVENT = re.compile(
    rb'data: ?\{"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)


def is_whole(answer: bytes) -> bool:
    """Whether an answer shows by itself that nothing of it is missing: a stream by its last event,
    an object by its closing brace."""
    text = answer.strip()
    if text.startswith(b"{"):
        try:
            return isinstance(orjson.loads(text), dict)
        except orjson.JSONDecodeError:
            return False
    last = text.rpartition(b"\n")[2]
    return last == b"data: [DONE]" or _LAST_EVENT.match(last) is not None
