"""What the written readers read is what fastavro reads; of the rest they say that they cannot."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.atdp import avro
from schemas.atdp.internal import TrajectorySummary
from schemas.atdp.plain import NotPlain, reader
from schemas.atdp.types import Reward, Step
from schemas.codec import HEADER, decode_plain, encode
from tests.unit.schemas.records import values_of

CLASSES = (Step, Reward, TrajectorySummary)
_IDS = {cls: number for number, (cls, _) in sorted(avro.RELEASES.items()) if cls in CLASSES}
READERS = {
    cls: reader(json.loads(avro.released_file(number).read_text())) for cls, number in _IDS.items()
}
LONG = 2**63 - 1


def record(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "namespace": "n", "fields": listed}


def written(schema: dict[str, Any], values: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), values)
    return buffer.getvalue()


@given(st.sampled_from(CLASSES).flatmap(values_of))
@settings(deadline=None)
def test_events_are_read_as_fastavro_reads_them(event: Step | Reward | TrajectorySummary) -> None:
    value = encode(event)
    assert decode_plain(value, CLASSES) == (type(event), READERS[type(event)](value, HEADER.size))


@given(values_of(Step), st.data())
@settings(max_examples=50, deadline=None)
def test_broken_bytes_are_left_alone_or_read_as_fastavro_reads_them(
    event: Step, data: st.DataObject
) -> None:
    value = bytearray(encode(event))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER.size, len(value) - 1))
        value[at] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 0x7F, 0x80, 0xFE, 0xFF]))
    value = value[: data.draw(st.integers(HEADER.size, len(value)))]
    try:
        plain = READERS[Step](bytes(value), HEADER.size)
    except NotPlain:
        return
    assert decode_plain(bytes(value), CLASSES) == (Step, plain)


@pytest.mark.parametrize("number", [0, 1, -1, 63, 64, -64, -65, 2**31, LONG, -LONG - 1])
def test_whole_numbers_of_any_size(number: int) -> None:
    schema = record(a="long", b=["null", {"type": "long", "logicalType": "timestamp-micros"}])
    value = written(record(a="long", b=["null", "long"]), {"a": number, "b": number})
    assert reader(schema)(value, 0) == {"a": number, "b": number}


def test_named_types_are_known_again() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["x", "y"]}
    part = {"type": "record", "name": "Part", "fields": [{"name": "k", "type": "n.Kind"}]}
    schema = record(
        kind=kind, parts={"type": "array", "items": part}, last=["null", "Part"],
        value=["null", "boolean", "double"], text="string",
    )  # fmt: skip
    values = {
        "kind": "y", "parts": [{"k": "x"}, {"k": "y"}], "last": {"k": "y"}, "value": 1.5,
        "text": "ä" * 100,
    }  # fmt: skip
    read = reader(schema)
    assert read(written(schema, values), 0) == values
    for value in (None, True, False):
        assert read(written(schema, values | {"value": value}), 0)["value"] is value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", b""), ("long", b"\x80" * 9), ("long", b"\xff" * 9 + b"\x7f"),
        ("long", b"\xff" * 9 + b"\x02"), ("long", b"\0\0"),
        ("string", b"\x02"), ("string", b"\x01"), ("string", b"\x02\xff"), ("string", b"\x81\x00"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("boolean", b"\x02"), ("double", b"\0" * 7),
        (["null", "long"], b"\x04\x02"), (["null", "long"], b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["x"]}, b"\x02"),
        ({"type": "enum", "name": "E", "symbols": ["x"]}, b"\x01"),
        ({"type": "array", "items": "long"}, b"\x01\x02\x02\x00"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
    ],
)  # fmt: skip
def test_what_is_not_whole_or_not_as_written_here_is_not_read(kind: Any, value: bytes) -> None:
    with pytest.raises(NotPlain):
        reader(record(a=kind))(value, 0)


@pytest.mark.parametrize("kind", ["bytes", "Unknown", {"type": "map", "values": "long"}])
def test_a_schema_of_other_types_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="has no plain reader"):
        reader(record(a=kind))


def test_no_text_of_a_schema_is_run() -> None:
    name = "f'] or exit(\\'\n"
    assert reader(record(**{name: "long"}))(b"\x02", 0) == {name: 1}
