"""Bodies of several compressed frames are decoded whole, however they are cut into pieces."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from infra.local.clickhouse.encoding import (
    RESPONSE_ENCODINGS,
    CorruptBodyError,
    Decoder,
    UnknownEncodingError,
    choose_encoding,
    make_encoder,
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "lz4": lz4.frame.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
}


def _decode(encoding: str, body: bytes) -> bytes:
    decoder = Decoder(encoding)
    decoded = decoder.feed(body)
    decoder.finish()
    return decoded


@pytest.mark.parametrize("encoding", COMPRESS)
@given(blocks=st.lists(st.binary(max_size=300), min_size=1, max_size=6), step=st.integers(1, 400))
def test_every_frame_is_decoded(encoding: str, blocks: list[bytes], step: int) -> None:
    body = b"".join(COMPRESS[encoding](block) for block in blocks)
    decoder = Decoder(encoding)
    decoded = b"".join(decoder.feed(body[i : i + step]) for i in range(0, len(body), step))
    decoder.finish()
    assert decoded == b"".join(blocks)


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_cut_body_is_an_error(encoding: str) -> None:
    body = COMPRESS[encoding](b"first" * 100) + COMPRESS[encoding](b"second" * 100)
    decoder = Decoder(encoding)
    decoder.feed(body[:-3])
    with pytest.raises(CorruptBodyError):
        decoder.finish()


@pytest.mark.parametrize("encoding", COMPRESS)
def test_rubbish_is_an_error(encoding: str) -> None:
    with pytest.raises(CorruptBodyError):
        _decode(encoding, b"this is no compressed data at all" * 10)


def test_no_encoding_passes_bytes_on() -> None:
    decoder = Decoder("")
    assert decoder.feed(b"abc") == b"abc"
    decoder.finish()


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(UnknownEncodingError):
        Decoder("snappy")


@pytest.mark.parametrize("encoding", RESPONSE_ENCODINGS)
@given(blocks=st.lists(st.binary(max_size=300), max_size=5))
def test_responses_come_back(encoding: str, blocks: list[bytes]) -> None:
    encoder = make_encoder(encoding)
    body = b"".join(encoder.feed(block) for block in blocks) + encoder.finish()
    assert _decode(encoding, body) == b"".join(blocks)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("lz4,zstd,br,gzip,deflate", "lz4"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0, deflate", "deflate"),
        ("identity", None),
        ("", None),
    ],
)
def test_the_preferred_accepted_encoding_is_chosen(accept: str, chosen: str | None) -> None:
    assert choose_encoding(accept) == chosen
