"""From the frames of an event to the record for Kafka."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from inference.spool import frames
from inference.spool.frames import Frame, Kind
from inference.spool.source import Event
from schemas import codec, topics
from schemas.atdp import Exchange
from schemas.bus import Record
from schemas.clock import to_us
from schemas.errors import PermanentError, Reason
from schemas.store import BlobStore

#: Room in a record for everything that is not a body.
_BESIDE_BODIES_BYTES = 200_000
_AVRO = (("content-type", codec.AVRO_CONTENT_TYPE),)


def patch(fields: dict[str, Any]) -> bytes:
    """The payload of HEAD and END: fields of the exchange to replace."""
    return orjson.dumps(fields)


def _from_patch(payload: bytes) -> dict[str, Any]:
    """The same fields as the plain values of an exchange."""
    fields: dict[str, Any] = orjson.loads(payload)
    for name in ("first_byte_at", "ended_at"):
        if fields.get(name):
            fields[name] = to_us(datetime.fromisoformat(fields[name]))
    return fields


class Assembler:
    """Makes records. Bodies that do not fit into one go to the blob store first."""

    def __init__(self, blobs: BlobStore, max_record_bytes: int) -> None:
        self._blobs = blobs
        self._max_inline_bytes = max_record_bytes - _BESIDE_BODIES_BYTES

    def record(
        self, event: Event, payload: Callable[[Frame], bytes], *, refused_as_oversized: bool
    ) -> Record:
        """The record of an event.

        TransientError while the blob store refuses; PermanentError if the frames make no event.
        """
        key, value = frames.split_key(payload(event.frames[0]))
        if event.is_record:
            if refused_as_oversized:
                raise PermanentError(Reason.OVERSIZED)
            return Record(topics.RAW_EVENTS, key, value, _AVRO)
        exchange = self._exchange(value, event, payload)
        self._check(exchange, 0 if refused_as_oversized else self._max_inline_bytes)
        if refused_as_oversized:  # only headers can be that large now
            exchange |= {"request_headers": [], "response_headers": []}
        return Record(topics.RAW_EVENTS, key, codec.encode_plain(Exchange, exchange), _AVRO)

    def _exchange(
        self, value: bytes, event: Event, payload: Callable[[Frame], bytes]
    ) -> dict[str, Any]:
        """Plain values, since nobody here needs the record itself: half of its cost is its own."""
        begun = codec.decode_plain(value, (Exchange,))
        if begun is None:
            raise PermanentError(Reason.UNDECODABLE)
        _, exchange = begun
        chunks = []
        try:
            for frame in event.frames[1:]:
                if frame.kind is Kind.CHUNK:
                    chunks.append(payload(frame))
                else:
                    exchange |= _from_patch(payload(frame))
        except (ValueError, TypeError):
            raise PermanentError(Reason.UNDECODABLE) from None
        return exchange | {"response_body": b"".join(chunks)}

    def _check(self, exchange: dict[str, Any], max_inline_bytes: int) -> None:
        """Put the larger body, or both, into the blob store where they do not fit."""
        request, response = exchange["request_body"], exchange["response_body"]
        if len(request) + len(response) <= max_inline_bytes:
            return
        smaller = min(len(request), len(response))
        keep_smaller = 0 < smaller <= max_inline_bytes
        for name, body in (("request_body", request), ("response_body", response)):
            if body and not (keep_smaller and len(body) == smaller):
                uri = self._blobs.put(exchange["tenant_id"], body)
                exchange |= {name: b"", f"{name}_uri": uri}
