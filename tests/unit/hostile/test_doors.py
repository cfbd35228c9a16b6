"""What a client posts to the doors is taken or refused with a sentence; nothing else is raised.

What is taken can also be written, read back and stored: a 202 is no dead letter in disguise.
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from inference.capture import events, feedback
from inference.capture.feedback import InvalidError, Keyed
from schemas import codec
from schemas.atdp import limits
from schemas.atdp.internal import KeyRecord
from schemas.errors import PermanentError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = KeyRecord(key_id="key_1", tenant_id="acme", key_hash="h", scopes=("admin",), created_at=NOW)
DEEP = 100_000

RATING: dict[str, Any] = {"target": {"step_id": "s"}, "name": "n", "value": 1}
STEP: dict[str, Any] = {
    "type": "step", "step_id": "s", "trajectory_id": "t", "started_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
TOLD: dict[str, Any] = {
    "type": "feedback", "reward_id": "r", "target": {"step_id": "s"}, "name": "n", "value": 1,
    "occurred_at": "2026-01-01T00:00:00Z", "received_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
END: dict[str, Any] = {
    "type": "trajectory_end", "trajectory_id": "t", "occurred_at": "2026-01-01T00:00:00Z",
}  # fmt: skip

TIMES = [
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00", "2500-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01",
    -1, 0, 1e300, 1767225600000, None, "now", "",
]  # fmt: skip


def posted_feedback(body: bytes) -> list[Keyed]:
    return [feedback.feedback_of(item, KEY, NOW) for item in feedback.parse(body)]


def posted_events(body: bytes) -> list[Keyed]:
    plain = events.parse(body)
    return [events.event_of(p, KEY, NOW, training_eligible=False) for p in plain]


def taken_or_refused(post: Any, body: bytes) -> bool:
    """Whether it was taken. Whatever was taken survives the way to Kafka and back."""
    try:
        keyed = post(body)
        values = [codec.encode(item.event) for item in keyed]
    except (InvalidError, events.ForeignTenantError, PermanentError):
        return False
    for item, value in zip(keyed, values, strict=True):
        event = codec.decode(value)
        assert event == item.event
        limits.check(event)
        assert event.tenant_id == "acme"
    return True


@pytest.mark.parametrize("time", TIMES)
def test_a_time_that_nothing_can_hold_is_refused_at_every_door(time: Any) -> None:
    given_times = [
        (posted_feedback, RATING | {"occurred_at": time}),
        (posted_events, STEP | {"started_at": time}),
        (posted_events, STEP | {"ended_at": time}),
        (posted_events, TOLD | {"occurred_at": time}),
        (posted_events, END | {"occurred_at": time}),
    ]
    for post, body in given_times:
        field = next(name for name, value in body.items() if value == time and name != "value")
        if time is None and (field == "ended_at" or post is posted_feedback):
            continue  # absent is fine where it is optional
        with pytest.raises(InvalidError) as refused:
            post(json.dumps(body).encode())
        assert refused.value.field == field


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**70, -(2**63) - 1, -1, 2**32, 1.5, True])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda n: STEP | {"lineage": {"step_index": n}},
        lambda n: STEP | {"action_and_result": {"token_ids": [n]}},
        lambda n: STEP | {"action_and_result": {"usage": {"prompt_tokens": n}}},
        lambda n: TOLD | {"revision": n},
    ],
)
def test_a_number_that_no_column_holds_is_refused(number: Any, wrong: Any) -> None:
    with pytest.raises(InvalidError) as refused:
        posted_events(json.dumps(wrong(number)).encode())
    assert refused.value.field is not None


@pytest.mark.parametrize(
    "target",
    [{}, {"step_id": "s", "trajectory_id": "t"}, {"trajectory_id": "a/b"}, {"step_id": ""},
     {"response_id": "x" * 300}],
)  # fmt: skip
def test_feedback_as_an_event_names_one_target(target: dict[str, str]) -> None:
    with pytest.raises(InvalidError) as refused:
        posted_events(json.dumps(TOLD | {"target": target}).encode())
    assert str(refused.value.field).startswith("target")


@pytest.mark.parametrize("post", [posted_feedback, posted_events])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b"\xff\xfe", b"\x00", b'"\xed\xa0\x80"', b'{"name":"\\ud800"}', b"\xef\xbb\xbf{}",
        '{"name":"n"}'.encode("utf-16"), b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"",
        b"\n\n\n", b"null", b"true", b"[null]", b"[[]]", b"{" * 9 + b"\n" + b"{" * 9,
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(post: Any, body: bytes) -> None:
    with pytest.raises(InvalidError):
        post(body)


def test_a_key_given_twice_means_its_last_value() -> None:
    body = b'{"target":{"step_id":"s"},"name":"first","name":"last","value":1}'
    (keyed,) = posted_feedback(body)
    assert keyed.event.name == "last"
    with pytest.raises(events.ForeignTenantError):
        posted_events(
            b'{"type":"trajectory_end","tenant_id":"acme","tenant_id":"umbrella",'
            b'"trajectory_id":"t","occurred_at":"2026-01-01T00:00:00Z"}'
        )


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
    | st.sampled_from([*map(str, TIMES), "\x00", "a/b", "é", "{", "s", "t", "acme", "umbrella"])
)  # fmt: skip
NAMES = st.sampled_from([*RATING, *STEP, *TOLD, *END, "tenant_id", "step_id", "lineage", "kind"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
BODIES = st.builds(
    lambda base, changes: json.dumps(base | changes).encode(),
    st.sampled_from([RATING, STEP, TOLD, END]),
    st.dictionaries(NAMES, VALUES, max_size=3),
)


@seed(4)
@settings(max_examples=400, deadline=None, database=None)
@given(BODIES | VALUES.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=40))
def test_any_body_is_taken_whole_or_refused(body: bytes) -> None:
    for post in (posted_feedback, posted_events):
        taken_or_refused(post, body)


def test_the_search_itself_takes_what_is_right() -> None:
    assert taken_or_refused(posted_feedback, json.dumps(RATING).encode())
    for right in (STEP, TOLD, END):
        assert taken_or_refused(posted_events, json.dumps(right).encode())
