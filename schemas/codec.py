"""Bytes ↔ event.

Events travel as Avro in Confluent framing (magic byte 0, schema id as four bytes, body), so any
Avro client can read them. Raw topics also accept JSON, so that a ten-line script can publish.
Decoding raises `PermanentError` with a closed reason and no text of the record.
"""

import base64
import functools
import io
import json
import math
import struct
from collections.abc import Collection
from typing import Any

import fastavro
import orjson
from pydantic import TypeAdapter, ValidationError

from schemas.atdp import avro
from schemas.atdp.internal import UnresolvedFeedback
from schemas.atdp.types import Exchange, Feedback, Reward, Step, TrajectoryEnd
from schemas.errors import PermanentError, Reason

MAGIC = 0
HEADER = struct.Struct(">bI")
AVRO_CONTENT_TYPE = b"application/avro"

#: What producers may publish on `raw.events.v1`, by the value of the JSON field `type`.
PUBLISHABLE: dict[str, type] = {
    "step": Step,
    "feedback": Feedback,
    "trajectory_end": TrajectoryEnd,
}

#: What reading bytes that somebody else wrote may raise.
_NOT_THAT_SCHEMA = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, MemoryError,
)  # fmt: skip
_SCHEMA_IDS = {cls: schema_id for schema_id, (cls, _) in sorted(avro.RELEASES.items())}


@functools.cache
def _writer(schema_id: int) -> Any:
    return fastavro.parse_schema(json.loads(avro.released_file(schema_id).read_text()))


def encode(event: Any) -> bytes:
    """The event as framed Avro. Raises PermanentError for a value that its schema cannot hold."""
    schema_id = _SCHEMA_IDS[type(event)]
    buffer = io.BytesIO()
    buffer.write(HEADER.pack(MAGIC, schema_id))
    try:
        fastavro.schemaless_writer(buffer, _writer(schema_id), avro.to_plain(event), strict=True)
    except (ValueError, TypeError, OverflowError):
        # Also surrogates, which have no UTF-8 (whoever takes text from outside replaces them
        # before), and integers of more than 64 bits.
        raise PermanentError(Reason.WRONG_TYPE) from None
    return buffer.getvalue()


def decode(value: bytes | None) -> Any:
    """The event in a framed Avro or JSON value, told apart by the first byte."""
    if not value:
        raise PermanentError(Reason.UNDECODABLE)
    if value[0] == MAGIC:
        return _finite(_decode_avro(value))
    return _finite(decode_json(value))


def _decode_avro(value: bytes) -> Any:
    if len(value) < HEADER.size:
        raise PermanentError(Reason.UNDECODABLE)
    _, schema_id = HEADER.unpack_from(value)
    if schema_id not in avro.RELEASES:
        raise PermanentError(Reason.UNKNOWN_SCHEMA)
    cls, _ = avro.RELEASES[schema_id]
    latest = _SCHEMA_IDS[cls]
    body = io.BytesIO(value)
    body.seek(HEADER.size)
    try:
        readers = () if latest == schema_id else (_writer(latest),)
        plain: Any = fastavro.schemaless_reader(body, _writer(schema_id), *readers)
        event = avro.from_plain(cls, plain)
    except _NOT_THAT_SCHEMA:
        raise PermanentError(Reason.UNDECODABLE) from None
    if body.read(1):
        raise PermanentError(Reason.UNDECODABLE)
    return event


@functools.cache
def _plain_schema(schema_id: int) -> Any:
    """The same schema with times as the numbers that they are on the wire."""
    return fastavro.parse_schema(
        _without_times(json.loads(avro.released_file(schema_id).read_text()))
    )


def _without_times(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_times(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "timestamp-micros":
        return schema["type"]
    return {name: _without_times(value) for name, value in schema.items()}


def decode_plain(value: bytes, classes: Collection[type]) -> tuple[type, dict[str, Any]] | None:
    """Type and plain values of framed Avro, for whoever does not need the record itself.

    Times are microseconds since 1970 and enumerations are texts. None for what is not framed Avro
    of one of `classes`, or not whole: `decode` says why.
    """
    if len(value) < HEADER.size or value[0] != MAGIC:
        return None
    _, schema_id = HEADER.unpack_from(value)
    cls, _ = avro.RELEASES.get(schema_id, (None, 0))
    if cls is None or cls not in classes:
        return None
    latest = _SCHEMA_IDS[cls]
    readers = () if latest == schema_id else (_plain_schema(latest),)
    body = io.BytesIO(value)
    body.seek(HEADER.size)
    try:
        plain: Any = fastavro.schemaless_reader(body, _plain_schema(schema_id), *readers)
    except _NOT_THAT_SCHEMA:
        return None
    return None if body.read(1) else (cls, plain)


def encode_plain(cls: type, plain: dict[str, Any]) -> bytes:
    """The bytes that `encode` makes of the record, from values as `decode_plain` gives them.

    All fields must be there. Raises PermanentError for a value that the schema cannot hold.
    """
    schema_id = _SCHEMA_IDS[cls]
    buffer = io.BytesIO()
    buffer.write(HEADER.pack(MAGIC, schema_id))
    try:
        fastavro.schemaless_writer(buffer, _plain_schema(schema_id), plain, strict=True)
    except (ValueError, TypeError, OverflowError):
        raise PermanentError(Reason.WRONG_TYPE) from None
    return buffer.getvalue()


@functools.cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def decode_json(value: bytes) -> Any:
    """The publishable event in a JSON object with a `type`. Unknown fields are refused."""
    try:
        plain = orjson.loads(value)
    except (orjson.JSONDecodeError, RecursionError):
        raise PermanentError(Reason.UNDECODABLE) from None
    kind = plain.pop("type", None) if isinstance(plain, dict) else None
    if not isinstance(kind, str) or kind not in PUBLISHABLE:
        raise PermanentError(Reason.WRONG_TYPE, "type")
    return validate(PUBLISHABLE[kind], plain)


def validate(cls: type, plain: dict[str, Any]) -> Any:
    """The record of that type made from JSON values; PermanentError names the first bad field."""
    try:
        return _adapter(cls).validate_json(orjson.dumps(plain), strict=True)
    except (TypeError, orjson.JSONEncodeError):
        raise PermanentError(Reason.WRONG_TYPE) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        names = [part for part in first["loc"] if isinstance(part, str) and part.isidentifier()]
        finite = first["type"] == "finite_number"
        reason = Reason.NOT_FINITE if finite else Reason.WRONG_TYPE
        raise PermanentError(reason, ".".join(names[:4]) or None) from None


def _finite(event: Any) -> Any:
    """Refuse NaN and infinities in learning signals, whichever door they came through."""
    signal = event.feedback if isinstance(event, UnresolvedFeedback) else event
    if isinstance(signal, Feedback | Reward):
        for field in ("value", "confidence"):
            number = getattr(signal, field)
            if isinstance(number, float) and not math.isfinite(number):
                raise PermanentError(Reason.NOT_FINITE, field)
    return event


def to_json(event: Any) -> bytes:
    """The event as one JSON object, for people: bytes as base64, times as ISO 8601."""
    return orjson.dumps(event, default=_json_default, option=orjson.OPT_UTC_Z)


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


__all__ = [
    "PUBLISHABLE",
    "Exchange",
    "decode",
    "decode_json",
    "decode_plain",
    "encode",
    "encode_plain",
    "to_json",
    "validate",
]
