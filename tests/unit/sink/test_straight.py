"""The straight way from bytes to a row gives what the long way gives, or leaves it to that."""

import io
import struct
from dataclasses import replace
from datetime import UTC, datetime

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.atdp import avro
from schemas.atdp.internal import TrajectorySummary
from schemas.atdp.limits import MAX_INT64
from schemas.atdp.types import Coordinates, Reward, Step
from schemas.codec import decode, encode
from schemas.errors import PermanentError
from streams.sink.rows import Row, to_row
from streams.sink.straight import straight_row
from tests.sink_events import NOON, day, decision, reward, step
from tests.unit.schemas.records import values_of

AT = Coordinates(topic="trajectory.steps.v1", partition=1, offset=7)
STRAIGHT = (Step, Reward, TrajectorySummary)


def long_way(value: bytes) -> Row | PermanentError:
    try:
        return to_row(decode(value), AT, NOON)
    except PermanentError as error:
        return error


@given(st.sampled_from(STRAIGHT).flatmap(values_of))
def test_both_ways_give_the_same_row_or_the_long_one_decides(
    event: Step | Reward | TrajectorySummary,
) -> None:
    value = encode(event)
    straight, other = straight_row(value, AT, NOON), long_way(value)
    assert (straight is None) is isinstance(other, PermanentError)
    if straight is not None:
        assert straight == other
        assert isinstance(other, Row)
        assert list(straight.cells) == list(other.cells), "the digest goes by their order"
        assert list(map(type, straight.cells.values())) == list(map(type, other.cells.values()))


def test_ordinary_events_of_a_day_take_it() -> None:
    ordinary = [event for event in day("a") if isinstance(event, STRAIGHT)]
    assert {type(event) for event in ordinary} == set(STRAIGHT)
    assert all(straight_row(encode(event), AT, NOON) for event in ordinary)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\0",
        b"\0\0\0\0\x7f",
        b'{"type": "step"}',
        encode(step("a"))[:-1],
        encode(step("a")) + b"x",
        encode(decision("a", "t-0")),
        encode(reward("a", value=float("nan"))),
        encode(replace(step("a"), started_at=datetime(1970, 1, 2, tzinfo=UTC))),
        encode(replace(step("a"), replay_epoch=-1)),
        encode(replace(step("a"), replay_epoch=-MAX_INT64 - 1)),
    ],
)
def test_what_is_not_ordinary_is_left_to_the_long_way(value: bytes | None) -> None:
    assert straight_row(value, AT, NOON) is None


def test_an_older_schema_version_is_read_as_the_latest() -> None:
    oldest = 1
    schema = fastavro.schema.load_schema(avro.released_file(oldest))
    plain = avro.to_plain(step("a"))
    known = {field["name"] for field in schema["fields"]}
    written = _written(schema, {name: plain[name] for name in plain if name in known})
    value = struct.pack(">bI", 0, oldest) + written
    straight = straight_row(value, AT, NOON)
    assert straight is not None
    assert straight == long_way(value)


def _written(schema: object, plain: object) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, plain)
    return buffer.getvalue()
