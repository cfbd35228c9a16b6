"""The bytes of a spool file: frames, each with its length and checksum.

    length:4  crc32:4  kind:1  id:16  payload:length

The checksum covers kind, id and payload. A frame that was cut short by a kill fails its
checksum; nothing after it in that file was ever released.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

_HEADER = struct.Struct(">II")
_IDENTITY = struct.Struct(">B16s")
OVERHEAD_BYTES = _HEADER.size + _IDENTITY.size


class Kind(IntEnum):
    """What a frame holds."""

    BEGIN = 1
    """Key length (2 bytes), Kafka key, then the exchange so far as framed Avro."""
    HEAD = 2
    """Status and headers of the answer, as a JSON object of fields to replace."""
    CHUNK = 3
    """Bytes of the answer's body."""
    END = 4
    """The last fields to replace, as a JSON object."""
    RECORD = 5
    """Key length (2 bytes), Kafka key, then a whole event as framed Avro."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame lies. `offset` is that of its payload."""

    kind: Kind
    exchange_id: bytes
    segment: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The file cannot be read further from here."""

    segment: int
    offset: int


def header(kind: Kind, exchange_id: bytes, payload: bytes) -> bytes:
    """The bytes that stand before `payload` in the file."""
    identity = _IDENTITY.pack(kind, exchange_id)
    checksum = zlib.crc32(payload, zlib.crc32(identity))
    return _HEADER.pack(len(payload), checksum) + identity


#: Bytes of a file: how many, from which offset. Fewer where the file ends before.
Read = Callable[[int, int], bytes]


def scan(read: Read, segment: int, start: int, end: int) -> Iterator[Frame | Torn]:
    """The frames between two offsets of a file; `Torn` is the last item if one is broken."""
    offset = start
    while offset < end:
        frame = _frame_at(read, segment, offset, end)
        yield frame
        if isinstance(frame, Torn):
            return
        offset = frame.offset + frame.num_bytes


def _frame_at(read: Read, segment: int, offset: int, end: int) -> Frame | Torn:
    torn = Torn(segment, offset)
    head = read(OVERHEAD_BYTES, offset)
    if len(head) < OVERHEAD_BYTES:
        return torn
    num_bytes, checksum = _HEADER.unpack_from(head)
    body_offset = offset + OVERHEAD_BYTES
    if body_offset + num_bytes > end:
        return torn
    identity = head[_HEADER.size :]
    payload = read(num_bytes, body_offset)
    if len(payload) < num_bytes or zlib.crc32(payload, zlib.crc32(identity)) != checksum:
        return torn
    kind, exchange_id = _IDENTITY.unpack(identity)
    return Frame(Kind(kind), exchange_id, segment, body_offset, num_bytes)


def with_key(key: bytes, value: bytes) -> bytes:
    """The payload of BEGIN and RECORD."""
    return len(key).to_bytes(2, "big") + key + value


def split_key(payload: bytes) -> tuple[bytes, bytes]:
    """Kafka key and value of a BEGIN or RECORD payload."""
    length = int.from_bytes(payload[:2], "big")
    return payload[2 : 2 + length], payload[2 + length :]
