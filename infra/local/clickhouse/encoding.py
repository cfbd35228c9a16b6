"""Compression of request and response bodies, as named in Content-Encoding.

clickhouse-connect sends one complete frame a block, so a body is **several frames in a row**.
A decoder that stops after the first one loses the rest without an error; these go on.
"""

import zlib
from collections.abc import Callable
from typing import Protocol

import brotli
import lz4.frame
import zstandard

#: In the order of preference for responses; all of them are understood in requests.
RESPONSE_ENCODINGS = ("lz4", "zstd", "gzip", "deflate", "br")


class UnknownEncodingError(ValueError):
    """The named encoding is none of ours."""


class CorruptBodyError(ValueError):
    """The bytes are no such stream, or end in the middle of a frame."""


class _Frame(Protocol):
    """One frame being decoded."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes) -> bytes: ...


class _BrotliFrame:
    """Brotli's decoder refuses bytes after the end of a stream and does not say where it was.

    Feeding single bytes finds the end; slow (about 2 MB/s), and hardly any client sends this.
    """

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes) -> bytes:
        decoded = bytearray()
        for index in range(len(data)):
            decoded += self._decoder.process(data[index : index + 1])
            if self._decoder.is_finished():
                self.unused_data = data[index + 1 :]
                break
        return bytes(decoded)


_FRAMES: dict[str, Callable[[], _Frame]] = {
    "lz4": lz4.frame.LZ4FrameDecompressor,
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    "gzip": lambda: zlib.decompressobj(31),
    "deflate": lambda: zlib.decompressobj(15),
    "br": _BrotliFrame,
}
_DECODE_ERRORS = (zlib.error, zstandard.ZstdError, brotli.error, RuntimeError, EOFError)


class Decoder:
    """Decodes a body piece by piece, frame after frame."""

    def __init__(self, encoding: str) -> None:
        if encoding not in {"", "identity", *_FRAMES}:
            raise UnknownEncodingError(encoding)
        self._make = _FRAMES.get(encoding)
        self._frame: _Frame | None = None

    def feed(self, data: bytes) -> bytes:
        """Decode what these bytes complete. CorruptBodyError when they cannot be decoded."""
        if self._make is None:
            return data
        decoded = []
        while data:
            frame = self._frame or self._make()
            try:
                decoded.append(frame.decompress(data))
            except _DECODE_ERRORS as error:
                raise CorruptBodyError("the body is not what Content-Encoding says") from error
            data = (frame.unused_data or b"") if frame.eof else b""
            self._frame = None if frame.eof else frame
        return b"".join(decoded)

    def finish(self) -> None:
        """CorruptBodyError when the body ended in the middle of a frame."""
        if self._frame is not None:
            raise CorruptBodyError("the body ends in the middle of a compressed frame")


class Encoder(Protocol):
    """Compresses a response piece by piece into one frame."""

    def feed(self, data: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class IdentityEncoder:
    """No compression."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class Lz4Encoder:
    """One LZ4 frame."""

    def __init__(self) -> None:
        self._compressor = lz4.frame.LZ4FrameCompressor()
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        header = b"" if self._begun else self._compressor.begin()
        self._begun = True
        return bytes(header + self._compressor.compress(data))

    def finish(self) -> bytes:
        return self.feed(b"") + bytes(self._compressor.flush())


class ObjectEncoder:
    """zlib's and zstd's compression objects, which have the same two methods."""

    def __init__(self, compress: Callable[[bytes], bytes], flush: Callable[[], bytes]) -> None:
        self._compress = compress
        self._flush = flush

    def feed(self, data: bytes) -> bytes:
        return self._compress(data)

    def finish(self) -> bytes:
        return self._flush()


def make_encoder(encoding: str | None) -> Encoder:
    """An encoder for one response."""
    if encoding is None:
        return IdentityEncoder()
    if encoding == "lz4":
        return Lz4Encoder()
    if encoding == "zstd":
        zstd = zstandard.ZstdCompressor(level=1).compressobj()
        return ObjectEncoder(zstd.compress, zstd.flush)
    if encoding == "br":
        compressor = brotli.Compressor(quality=3)
        return ObjectEncoder(compressor.process, compressor.finish)
    zipped = zlib.compressobj(level=1, wbits=31 if encoding == "gzip" else 15)
    return ObjectEncoder(zipped.compress, zipped.flush)


def choose_encoding(accept_encoding: str) -> str | None:
    """The encoding we prefer among those the client accepts; None for none."""
    accepted = set()
    for part in accept_encoding.split(","):
        name, _, parameter = part.strip().partition(";")
        if parameter.replace(" ", "") not in {"q=0", "q=0.0"}:
            accepted.add(name.strip().lower())
    return next((name for name in RESPONSE_ENCODINGS if name in accepted), None)
