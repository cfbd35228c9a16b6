"""Bytes become events or a PermanentError, and nothing else ever happens."""

import contextlib
import json
import struct
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.atdp.avro import RELEASES
from schemas.atdp.internal import UnresolvedFeedback
from schemas.atdp.types import Feedback, FeedbackTarget, Reward, Step
from schemas.codec import (
    decode,
    decode_json,
    decode_plain,
    encode,
    encode_plain,
    to_json,
    validate,
)
from schemas.errors import PermanentError, Reason
from tests.unit.schemas.records import RECORD_TYPES, events, values_of

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
FEEDBACK: dict[str, Any] = {
    "type": "feedback",
    "reward_id": "r1",
    "tenant_id": "acme",
    "target": {"step_id": "s1"},
    "name": "resolved",
    "value": 1.0,
    "occurred_at": "2026-01-02T03:04:05Z",
    "received_at": "2026-01-02T03:04:05Z",
}
STEP: Step = validate(
    Step,
    {
        "step_id": "s1",
        "event_id": "e1",
        "tenant_id": "acme",
        "trajectory_id": "t1",
        "started_at": "2026-01-02T03:04:05.678901Z",
        "observation": {"new_messages": [{"role": "user", "body": '{"content":"hé🙂"}'}]},
    },
)
_relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def feedback_json(**changes: Any) -> bytes:
    return orjson.dumps({**FEEDBACK, **changes})


def reason_of(value: bytes | None) -> tuple[Reason, str | None]:
    with pytest.raises(PermanentError) as caught:
        decode(value)
    return caught.value.reason, caught.value.field


@pytest.mark.parametrize("cls", RECORD_TYPES, ids=lambda cls: cls.__name__)
def test_every_event_comes_back_as_it_was(cls: type) -> None:
    @given(values_of(cls))
    @settings(_relaxed, max_examples=25)
    def round_trip(event: Any) -> None:
        assert decode(encode(event)) == event

    round_trip()


@pytest.mark.parametrize("cls", RECORD_TYPES, ids=lambda cls: cls.__name__)
def test_plain_values_give_the_same_bytes_again(cls: type) -> None:
    @given(values_of(cls))
    @settings(_relaxed, max_examples=15)
    def round_trip(event: Any) -> None:
        value = encode(event)
        found = decode_plain(value, (cls,))
        assert found is not None
        assert found[0] is cls
        assert encode_plain(cls, found[1]) == value

    round_trip()


@pytest.mark.parametrize(
    "change", [{"step_id": 1}, {"started_at": 2**70}, {"step_id": "\ud800"}, {"no field": 1}]
)
def test_plain_values_that_the_schema_cannot_hold_are_refused(change: dict[str, Any]) -> None:
    found = decode_plain(encode(STEP), (Step,))
    assert found is not None
    with pytest.raises(PermanentError) as refused:
        encode_plain(Step, found[1] | change)
    assert refused.value.reason is Reason.WRONG_TYPE


@given(values_of(Feedback))
@_relaxed
def test_what_people_publish_as_json_comes_back_as_it_was(event: Feedback) -> None:
    plain = json.loads(to_json(event))
    assert decode(json.dumps({"type": "feedback", **plain}).encode()) == event


def test_framing_is_confluents() -> None:
    assert encode(STEP)[:5] == struct.pack(">bI", 0, 28)


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x00\x00\x00", b"\x00garbage"])
def test_what_is_no_event_is_refused(value: bytes | None) -> None:
    assert reason_of(value)[0] in (Reason.UNDECODABLE, Reason.UNKNOWN_SCHEMA)


def test_an_unknown_schema_and_a_wrong_magic_byte_have_their_reasons() -> None:
    assert reason_of(struct.pack(">bI", 0, 9999) + b"x") == (Reason.UNKNOWN_SCHEMA, None)
    assert reason_of(b"\x01" + encode(STEP)[1:]) == (Reason.UNDECODABLE, None)


def test_bytes_after_the_event_are_refused() -> None:
    assert reason_of(encode(STEP) + b"\x00") == (Reason.UNDECODABLE, None)


def outcome(value: bytes) -> None:
    """Decoding either gives an event or a PermanentError; anything else fails the test."""
    with contextlib.suppress(PermanentError):
        decode(value)


@pytest.mark.parametrize("schema_id", RELEASES)
def test_a_cut_or_a_flipped_byte_anywhere_never_does_worse_than_a_permanent_error(
    schema_id: int,
) -> None:
    cls, _ = RELEASES[schema_id]
    value = encode(example(cls))
    started = time.monotonic()
    tracemalloc.start()
    for position in range(len(value)):
        outcome(value[:position])
        for flip in (0x01, 0x40, 0x80, 0xFF):
            changed = bytearray(value)
            changed[position] ^= flip
            outcome(bytes(changed))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 50 * 1024**2
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62])
def test_a_length_that_lies_costs_neither_time_nor_memory(length: int) -> None:
    value = encode(STEP)[:5] + zigzag(length) + b"x"
    blocks = encode(STEP)[:5] + b"".join([b"\x02s"] * 4) + zigzag(length) * 40
    started = time.monotonic()
    for lie in (value, blocks):
        outcome(lie)
    assert time.monotonic() - started < 5


@given(events(), st.data())
@settings(_relaxed, max_examples=60)
def test_bytes_overwritten_at_random_are_an_event_or_a_permanent_error(
    event: Any, data: st.DataObject
) -> None:
    value = bytearray(encode(event))
    start = data.draw(st.integers(5, len(value)))
    outcome(bytes(value[:start]) + data.draw(st.binary(max_size=30)))


@given(st.binary(max_size=60))
@_relaxed
def test_any_bytes_are_an_event_or_a_permanent_error(value: bytes) -> None:
    outcome(value)


def zigzag(number: int) -> bytes:
    number, parts = number << 1, []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def example(cls: type) -> Any:
    """One event of a type, the same each time, with no optional field left out if possible."""
    found: list[Any] = []

    @given(values_of(cls))
    @settings(database=None, derandomize=True, max_examples=8, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    def collect(event: Any) -> None:
        found.append(event)

    collect()
    return max(found, key=lambda event: len(encode(event)))


# --- the JSON door -------------------------------------------------------------------------


def test_a_feedback_event_needs_no_more_than_its_essentials() -> None:
    event = decode(feedback_json())
    assert (event.target, event.value) == (FeedbackTarget(step_id="s1"), 1.0)


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"valeu": 1}, Reason.WRONG_TYPE, "valeu"),
        ({"target": {"step": "s"}}, Reason.WRONG_TYPE, "target.step"),
        ({"value": "1.0"}, Reason.WRONG_TYPE, "value"),
        ({"name": 7}, Reason.WRONG_TYPE, "name"),
        ({"revision": "1"}, Reason.WRONG_TYPE, "revision"),
        ({"revision": 1.5}, Reason.WRONG_TYPE, "revision"),
        ({"confidence": True}, Reason.WRONG_TYPE, "confidence"),
        ({"final": 1}, Reason.WRONG_TYPE, "final"),
        ({"kind": "telepathy"}, Reason.WRONG_TYPE, "kind"),
        ({"occurred_at": "yesterday"}, Reason.WRONG_TYPE, "occurred_at"),
        ({"target": None}, Reason.WRONG_TYPE, "target"),
        ({"type": "exchange"}, Reason.WRONG_TYPE, "type"),
        ({"type": None}, Reason.WRONG_TYPE, "type"),
    ],
)
def test_a_fault_is_named_by_its_field(changes: dict[str, Any], reason: Reason, field: str) -> None:
    found, named = reason_of(feedback_json(**changes))
    assert found == reason
    assert named is not None
    assert named.startswith(field)


def test_a_missing_field_is_named() -> None:
    without = {name: value for name, value in FEEDBACK.items() if name != "name"}
    assert reason_of(orjson.dumps(without)) == (Reason.WRONG_TYPE, "name")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_json_has_no_such_numbers(number: str) -> None:
    text = feedback_json().replace(b'"value":1.0', f'"value":{number}'.encode())
    assert number.encode() in text
    assert reason_of(text)[0] is Reason.UNDECODABLE


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
@pytest.mark.parametrize("name", ["value", "confidence"])
def test_a_number_beyond_all_bounds_is_refused(number: str, name: str) -> None:
    text = feedback_json(**{name: 0.125}).replace(b"0.125", number.encode())
    assert number.encode() in text
    assert reason_of(text)[0] in (Reason.NOT_FINITE, Reason.UNDECODABLE)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_avro_can_carry_such_numbers_and_they_are_refused_too(number: float) -> None:
    feedback = decode(feedback_json())
    spoiled = replace(feedback, value=number)
    assert reason_of(encode(spoiled)) == (Reason.NOT_FINITE, "value")
    wrapped = UnresolvedFeedback(alias="a", feedback=replace(feedback, confidence=number))
    assert reason_of(encode(wrapped)) == (Reason.NOT_FINITE, "confidence")


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_stays_a_boolean(value: bool) -> None:
    event = decode(encode(decode(feedback_json(value=value))))
    assert event.value is value


def test_a_whole_number_is_a_number() -> None:
    event = decode(encode(decode(feedback_json(value=1))))
    assert (type(event.value), event.value) == (float, 1.0)


def test_a_reward_given_as_a_whole_number_is_written_as_a_number() -> None:
    reward = Reward(
        reward_id="r", tenant_id="t", trajectory_id="j", name="n", value=3, occurred_at=AT,
        received_at=AT, digest="d",
    )  # fmt: skip
    assert decode(encode(reward)).value == 3.0


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"feedback","name":"\\ud83d"}',
        b'{"type":"feedback","name":"\xed\xa0\xbd"}',
        b"[" * 100_000,
        b'{"type":' * 2_000,
        b"[1]",
        b"null",
        b'"feedback"',
        b'{"type":["step"]}',
        b'{"type":"step","step_id":123456789012345678901234567890}',
    ],
)
def test_json_that_is_no_event_is_a_permanent_error(text: bytes) -> None:
    assert reason_of(text)[0] in (Reason.UNDECODABLE, Reason.WRONG_TYPE)


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                               max_size=3),
    max_leaves=6,
), st.sampled_from([*FEEDBACK, "kind", "confidence", "label"]))  # fmt: skip
@_relaxed
def test_any_json_in_any_field_is_an_event_or_a_permanent_error(value: Any, name: str) -> None:
    outcome(json.dumps({**FEEDBACK, name: value}).encode())


def test_text_that_has_no_utf8_cannot_be_encoded() -> None:
    with pytest.raises(PermanentError) as caught:
        encode(replace(STEP, task_key="\ud83d"))
    assert caught.value.reason is Reason.WRONG_TYPE
    with pytest.raises(PermanentError):
        validate(Feedback, {**FEEDBACK, "name": "\ud83d"})


def test_the_text_of_an_error_holds_nothing_of_the_record() -> None:
    secret = "alice@example.com"
    for changes in ({"value": secret}, {secret: 1}, {"kind": secret}, {"target": secret}):
        with pytest.raises(PermanentError) as caught:
            decode_json(feedback_json(**changes))
        assert secret not in str(caught.value)
        assert secret not in (caught.value.field or "")
        assert caught.value.__cause__ is None
