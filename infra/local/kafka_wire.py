"""One Kafka metadata request by hand, to learn whether a broker is ready.

A client library retries, logs and keeps threads; a readiness probe wants one honest answer.
Metadata version 4, from the protocol guide: the oldest layout that tells the controller and
still exists in Kafka 4.
"""

import socket
import struct
from dataclasses import dataclass

_METADATA_KEY = 3
_METADATA_VERSION = 4
_CORRELATION_ID = 7
_CLIENT_ID = b"headrace-probe"
_MAX_RESPONSE_BYTES = 1 << 20


@dataclass(frozen=True)
class ClusterMetadata:
    """What one broker says of its cluster; `controller_id` is -1 while there is no controller."""

    cluster_id: str | None
    controller_id: int
    num_brokers: int


def request_metadata(host: str, port: int, timeout_seconds: float) -> ClusterMetadata | None:
    """Ask once. None when nobody answers in time or the answer is no Kafka answer."""
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            connection.sendall(encode_request())
            (size,) = struct.unpack(">i", _read_exactly(connection, 4))
            if not 0 < size <= _MAX_RESPONSE_BYTES:
                return None
            return decode_response(_read_exactly(connection, size))
    except (OSError, EOFError, struct.error, UnicodeDecodeError):
        return None


def encode_request() -> bytes:
    """Request header version 1 and a body that asks for no topic and creates none."""
    header = struct.pack(
        ">hhih", _METADATA_KEY, _METADATA_VERSION, _CORRELATION_ID, len(_CLIENT_ID)
    )
    num_topics, may_create = 0, 0
    body = struct.pack(">ib", num_topics, may_create)
    message = header + _CLIENT_ID + body
    return struct.pack(">i", len(message)) + message


def decode_response(message: bytes) -> ClusterMetadata:
    """Read brokers, cluster id and controller. EOFError or struct.error for anything else."""
    correlation_id, _throttle_ms, num_brokers = struct.unpack_from(">iii", message)
    if correlation_id != _CORRELATION_ID:
        raise EOFError("not the answer to our request")
    offset = 12
    for _ in range(num_brokers):
        offset += 4
        _, offset = _string(message, offset)
        offset += 4
        _, offset = _string(message, offset)
    cluster_id, offset = _string(message, offset)
    (controller_id,) = struct.unpack_from(">i", message, offset)
    return ClusterMetadata(cluster_id, controller_id, num_brokers)


def _string(message: bytes, offset: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", message, offset)
    start = offset + 2
    if length < 0:
        return None, start
    return message[start : start + length].decode(), start + length


def _read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < num_bytes:
        chunk = connection.recv(num_bytes - len(received))
        if not chunk:
            raise EOFError("the broker closed the connection")
        received += chunk
    return bytes(received)
