"""From the frames of an event to the record for Kafka."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from inference.spool import frames
from inference.spool.frames import Frame, Kind
from inference.spool.source import Event
from schemas import codec, topics
from schemas.atdp import Exchange
from schemas.atdp.types import Header, Outcome
from schemas.bus import Record
from schemas.errors import PermanentError, Reason
from schemas.store import BlobStore

#: Room in a record for everything that is not a body.
_BESIDE_BODIES_BYTES = 200_000
_AVRO = (("content-type", codec.AVRO_CONTENT_TYPE),)


def patch(fields: dict[str, Any]) -> bytes:
    """The payload of HEAD and END: fields of the exchange to replace."""
    return orjson.dumps(fields)


def _from_patch(payload: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(payload)
    for name in ("first_byte_at", "ended_at"):
        if fields.get(name):
            fields[name] = datetime.fromisoformat(fields[name])
    if "outcome" in fields:
        fields["outcome"] = Outcome(fields["outcome"])
    if "added_fields" in fields:
        fields["added_fields"] = tuple(fields["added_fields"])
    if "response_headers" in fields:
        fields["response_headers"] = tuple(Header(**h) for h in fields["response_headers"])
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
        limit = 0 if refused_as_oversized else self._max_inline_bytes
        exchange = self._checked(exchange, limit)
        if refused_as_oversized:  # only headers can be that large now
            exchange = replace(exchange, request_headers=(), response_headers=())
        return Record(topics.RAW_EVENTS, key, codec.encode(exchange), _AVRO)

    def _exchange(self, value: bytes, event: Event, payload: Callable[[Frame], bytes]) -> Exchange:
        changes: dict[str, Any] = {}
        chunks = []
        try:
            for frame in event.frames[1:]:
                if frame.kind is Kind.CHUNK:
                    chunks.append(payload(frame))
                else:
                    changes |= _from_patch(payload(frame))
            exchange: Exchange = codec.decode(value)
            return replace(exchange, response_body=b"".join(chunks), **changes)
        except (ValueError, TypeError, KeyError):
            raise PermanentError(Reason.UNDECODABLE) from None

    def _checked(self, exchange: Exchange, max_inline_bytes: int) -> Exchange:
        """The exchange with its larger body, or both, as claim checks where they do not fit."""
        request, response = exchange.request_body, exchange.response_body
        if len(request) + len(response) <= max_inline_bytes:
            return exchange
        tenant = exchange.tenant_id
        smaller = min(len(request), len(response))
        keep_smaller = 0 < smaller <= max_inline_bytes
        if request and not (keep_smaller and len(request) == smaller):
            uri = self._blobs.put(tenant, request)
            exchange = replace(exchange, request_body=b"", request_body_uri=uri)
        if response and not (keep_smaller and len(response) == smaller):
            uri = self._blobs.put(tenant, response)
            exchange = replace(exchange, response_body=b"", response_body_uri=uri)
        return exchange
