"""The bytes of a captured exchange: claim checks fetched, content encodings undone.

Decompression is bounded: a small body that unfolds into gigabytes is refused, not swallowed.
"""

import zlib
from collections.abc import Callable

from schemas.atdp.types import Exchange, Header
from schemas.errors import PermanentError, Reason
from schemas.store import BlobStore

MAX_BODY_BYTES = 256 * 1024**2


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
    for coding in reversed(header(headers, "content-encoding").lower().split(",")):
        body = _DECODERS.get(coding.strip(), _refuse)(body)
    return body


def _refuse(_body: bytes) -> bytes:
    raise PermanentError(Reason.UNDECODABLE, "content_encoding")


def _zlib(window_bits: int) -> Callable[[bytes], bytes]:
    def decode(body: bytes) -> bytes:
        engine = zlib.decompressobj(window_bits)
        try:
            data = engine.decompress(body, MAX_BODY_BYTES)
        except zlib.error:
            raise PermanentError(Reason.UNDECODABLE, "content_encoding") from None
        if engine.unconsumed_tail:
            raise PermanentError(Reason.OVERSIZED, "content_encoding")
        return data

    return decode


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
        data = bytes(engine.process(body, output_buffer_limit=MAX_BODY_BYTES))
    except brotli.error:
        raise PermanentError(Reason.UNDECODABLE, "content_encoding") from None
    if not engine.can_accept_more_data() and not engine.is_finished():
        raise PermanentError(Reason.OVERSIZED, "content_encoding")
    return data


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "identity": lambda body: body,
    "gzip": _zlib(16 + zlib.MAX_WBITS),
    "x-gzip": _zlib(16 + zlib.MAX_WBITS),
    "deflate": _zlib(zlib.MAX_WBITS),
    "zstd": _zstd,
    "br": _brotli,
}
