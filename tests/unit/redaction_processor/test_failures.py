"""What redaction does when a body, a store or a detector fails; and how large a step may be."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from schemas import topics
from schemas.atdp.types import (
    Exchange,
    Feedback,
    FeedbackTarget,
    Header,
    Outcome,
    Step,
    TrajectoryEnd,
)
from schemas.codec import decode_json, encode
from schemas.errors import PermanentError, Reason, TransientError
from schemas.store import BlobStore
from streams.redaction import bodies, gaps
from streams.redaction.detect.budget import Budget
from streams.redaction.detect.contract import DetectorUnavailable, Span
from streams.redaction.detect.regex import RegexDetector
from streams.redaction.outgoing import MAX_VALUE_BYTES
from tests.unit.redaction_processor.captures import START, changed, exchange
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.redaction_processor.streams import chunk, sse
from tests.unit.runtime_harness import records_of

JANE = "jane.roe@example.com"
CALL = exchange([{"role": "user", "content": "hi"}], {"role": "assistant", "content": "yo"}, "a")
BODY = CALL.response_body
Encoder = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


ENCODERS: dict[str, Encoder] = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]) + b"\0\0",
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
    "gzip, br": lambda data: brotli.compress(gzip.compress(data)),
}


def encoded(coding: str, body: bytes) -> Exchange:
    return replace(
        CALL, response_headers=(Header(name="content-encoding", value=coding),), response_body=body
    )


@pytest.mark.parametrize("coding", list(ENCODERS))
def test_every_encoding_is_undone(coding: str, tmp_path: Path) -> None:
    call = encoded(coding, ENCODERS[coding](BODY))
    assert bodies.response_bytes(call, BlobStore(tmp_path.as_uri())) == BODY


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate", "br", "zstd"])
def test_an_encoded_body_cut_at_any_byte_is_a_prefix(coding: str, tmp_path: Path) -> None:
    blobs, whole = BlobStore(tmp_path.as_uri()), ENCODERS[coding](BODY)
    for length in range(len(whole) + 1):
        assert BODY.startswith(bodies.response_bytes(encoded(coding, whole[:length]), blobs))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate", "br", "zstd"])
def test_a_body_that_unfolds_beyond_the_limit_is_refused(
    coding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1_000_000
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", limit)
    blobs = BlobStore(tmp_path.as_uri())
    fits = bodies.response_bytes(encoded(coding, ENCODERS[coding](bytes(limit))), blobs)
    assert len(fits) == limit
    for num_bytes in (limit + 1, 20 * limit):
        bomb = encoded(coding, ENCODERS[coding](bytes(num_bytes)))
        with pytest.raises(PermanentError) as caught:
            bodies.response_bytes(bomb, blobs)
        assert caught.value.reason is Reason.OVERSIZED


def test_layers_and_members_are_bounded(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path.as_uri())
    for call in (
        encoded(", ".join(["gzip"] * 50), BODY),
        encoded("gzip", gzip.compress(b"") * 1_000),
    ):
        with pytest.raises(PermanentError) as caught:
            bodies.response_bytes(call, blobs)
        assert caught.value.reason is Reason.OVERSIZED


@pytest.mark.parametrize(
    ("coding", "body"), [("gzip", b"no"), ("br", b"\xff" * 9), ("rot13", b"x")]
)
async def test_an_answer_that_cannot_be_unfolded_is_a_gap_not_a_lost_call(
    redaction: Redaction, coding: str, body: bytes
) -> None:
    await redaction.send(encoded(coding, body))
    (step,) = redaction.events(topics.STEPS)
    assert gaps.RESPONSE_NOT_PARSED in step.gaps
    assert len(step.observation.new_messages) == 1


async def test_a_call_that_ended_before_its_first_byte_is_a_step(redaction: Redaction) -> None:
    await redaction.send(replace(encoded("gzip", b""), outcome=Outcome.CLIENT_ABORTED))
    (step,) = redaction.events(topics.STEPS)
    assert step.outcome is Outcome.CLIENT_ABORTED
    assert gaps.RESPONSE_INCOMPLETE in step.gaps


async def test_an_error_in_a_stream_is_an_upstream_error_with_the_partial_text(
    redaction: Redaction,
) -> None:
    body = sse([chunk({"content": "par"}), {"error": {"message": JANE}}], done=False)
    await redaction.send(replace(CALL, response_body=body))
    (step,) = redaction.events(topics.STEPS)
    assert step.outcome is Outcome.UPSTREAM_ERROR
    assert step.action_and_result.error_class == "error_in_stream"
    assert json.loads(step.action_and_result.output[0].body)["content"] == "par"
    assert JANE.encode() not in redaction.clean_bytes()


async def test_half_surrogates_everywhere_become_one_character_and_a_gap(
    redaction: Redaction,
) -> None:
    half = "half \ud83d done"
    messages = [{"role": "user", "content": half, "name": half}]
    answer = {"role": "assistant", "content": half, "tool_calls": [
        {"id": half, "type": "function", "function": {"name": half, "arguments": '{"a":"\\ud83d"}'}}
    ]}  # fmt: skip
    call = exchange(messages, answer, "a")
    request = json.loads(call.request_body) | {"stop": [half], "user": half, "model": half,
                                               "tools": [{"function": {"name": half}}]}  # fmt: skip
    response = json.loads(call.response_body) | {"id": half, "model": half}
    await redaction.send(
        replace(call, request_body=json.dumps(request).encode(),
                response_body=json.dumps(response).encode())
    )  # fmt: skip
    (step,) = redaction.events(topics.STEPS)
    assert gaps.SURROGATES_REPLACED in step.gaps
    assert json.loads(step.observation.new_messages[0].body)["content"] == "half \ufffd done"
    assert encode(step)


async def test_big_integers_and_floats_keep_their_values(redaction: Redaction) -> None:
    arguments = '{"big": 12345678901234567890123, "price": 0.10}'
    call = exchange([{"role": "user", "content": "hi", "x": 2**70, "y": 0.1}], {
        "role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": arguments}}]}, "a")  # fmt: skip
    body = json.loads(call.request_body) | {"seed": 12345678901234567890}
    await redaction.send(replace(call, request_body=json.dumps(body).encode()))
    (step,) = redaction.events(topics.STEPS)
    seen = json.loads(step.observation.new_messages[0].body)
    assert (seen["x"], seen["y"]) == (2**70, 0.1)
    done = json.loads(step.action_and_result.output[0].body)
    assert done["tool_calls"][0]["function"]["arguments"] == arguments
    assert json.loads(step.harness_state.sampling)["seed"] == 12345678901234567890


@pytest.mark.parametrize("depth", [250, 800, 960])
@pytest.mark.parametrize("place", ["content", "arguments", "tools", "answer", "metadata"])
async def test_deep_json_stops_one_record_and_not_the_processor(
    redaction: Redaction, depth: int, place: str
) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    request = json.loads(CALL.request_body) | {"place": 0}
    text = json.dumps(request | {"messages": [{"role": "user", "content": "@"}], place: "@"})
    body = text.replace('"@"', deep)
    if place == "arguments":
        call = {"function": {"name": "f", "arguments": deep}}
        messages = [{"role": "user", "content": "x", "tool_calls": [call]}]
        body = json.dumps(request | {"messages": messages})
    deep_call = replace(CALL, request_body=body.encode())
    if place == "answer":
        answer = BODY.replace(b'"yo"', deep.encode())
        deep_call = replace(CALL, response_body=answer)
    await redaction.send(deep_call, replace(CALL, step_id="step-next"))
    assert [s.step_id for s in redaction.events(topics.STEPS)][-1] == "step-next"
    accounted = len(redaction.events(topics.STEPS)) + len(redaction.events("dead.raw.events.v1"))
    assert accounted == 2


# --- stores and detectors ---------------------------------------------------------------------


async def test_a_missing_blob_is_dead_lettered_and_another_tenants_is_missing(
    redaction: Redaction,
) -> None:
    uri = redaction.blobs.put("umbrella", CALL.request_body)
    gone = f"sha256:acme/{'0' * 64}"
    for place in ("request_body_uri", "response_body_uri"):
        await redaction.send(changed(CALL, {place: gone}), changed(CALL, {place: uri}))
    assert [x.reason for x in redaction.events("dead.raw.events.v1")] == ["blob_missing"] * 4
    assert redaction.events(topics.STEPS) == []


async def test_a_blob_store_that_is_away_is_waited_for(redaction: Redaction) -> None:
    uri = redaction.blobs.put("acme", CALL.response_body)
    digest = uri.rpartition("/")[2]
    blob = redaction.folder / "blobs" / "acme" / digest[:2] / digest
    blob.unlink()
    blob.mkdir()  # reading a folder is an error of the store, not a missing blob
    call = replace(CALL, response_body=b"", response_body_uri=uri)
    with pytest.raises(TransientError):
        await redaction.send(call)
    assert redaction.events("dead.raw.events.v1") == []
    blob.rmdir()
    assert redaction.blobs.put("acme", CALL.response_body) == uri
    await redaction.send(call)
    assert len(redaction.events(topics.STEPS)) == 1


class Failing(RegexDetector):
    """Refuses to look at one word."""

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        if "unlucky" in text:
            raise DetectorUnavailable("the model is away")
        return super().detect(text, context=context)


@pytest.mark.parametrize("place", ["message", "answer", "task_key", "trajectory_id", "tools"])
async def test_where_the_detector_fails_the_whole_event_waits_in_quarantine(
    redaction: Redaction, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("streams.redaction.tenants.build_detector", lambda *_, **__: Failing())
    redaction.restart()
    word = f"unlucky {JANE}"
    call = exchange(
        [{"role": "user", "content": word if place == "message" else "hi"}],
        {"role": "assistant", "content": word if place == "answer" else "yo"}, "a",
    )  # fmt: skip
    if place == "tools":
        body = json.loads(call.request_body) | {"tools": [{"function": {"description": word}}]}
        call = replace(call, request_body=json.dumps(body).encode())
    elif place in ("task_key", "trajectory_id"):
        call = changed(call, {place: word})
    await redaction.send(call, replace(CALL, step_id="step-next"))
    (waiting,) = redaction.events(topics.QUARANTINE)
    assert waiting.reason == "detector_unavailable"
    assert [s.step_id for s in redaction.events(topics.STEPS)] == ["step-next"]
    assert JANE.encode() not in redaction.clean_bytes()


async def test_an_event_that_takes_the_detector_too_long_waits_in_quarantine(
    redaction: Redaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event has the whole time for itself, and one that needs more is not passed in part."""
    seconds = 0.0

    class Slow(RegexDetector):
        def __init__(self, budget: Budget) -> None:
            self._budget = budget

        def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
            nonlocal seconds
            for _ in range(text.count("slow")):
                self._budget.check()
                seconds += 10.0
            return super().detect(text, context=context)

    budget = Budget(120.0, lambda: seconds)
    monkeypatch.setattr("streams.redaction.tenants.Budget", lambda: budget)
    monkeypatch.setattr("streams.redaction.tenants.build_detector", lambda *_, **__: Slow(budget))
    redaction.restart()

    def call(name: str, text: str) -> Exchange:
        messages = [{"role": "user", "content": f"{name} {text} {JANE}"}]
        return exchange(messages, {"role": "assistant", "content": "yo"}, name)

    await redaction.send(call("a", "slow " * 2), call("b", "slow " * 90), call("c", "slow " * 2))
    (waiting,) = redaction.events(topics.QUARANTINE)
    assert waiting.reason == "detector_timeout"
    assert [s.step_id for s in redaction.events(topics.STEPS)] == ["step-a", "step-c"]
    assert JANE.encode() not in redaction.clean_bytes()


# --- size -------------------------------------------------------------------------------------


def sized(num_bytes: int, count: int = 1, text: str = "x") -> Exchange:
    messages = [{"role": "user", "content": text * (num_bytes // len(text))} for _ in range(count)]
    return exchange([{"role": "user", "content": "small"}, *messages], {"role": "assistant",
                    "content": "answer"}, "a")  # fmt: skip


def via_blobs(call: Exchange, blobs: BlobStore) -> Exchange:
    uri = blobs.put("acme", call.request_body)
    return replace(call, request_body=b"", request_body_uri=uri)


CASES: list[Any] = [
    ("one of 3 MB", sized(3_000_000)), ("many of 200 kB", sized(200_000, 8)),
    ("30,000 small", sized(40, 30_000)),
    ("spans", sized(1_500_000, text=f"{JANE} and ")),
]  # fmt: skip


@pytest.mark.parametrize("call", [c for _, c in CASES], ids=[n for n, _ in CASES])
async def test_a_call_too_large_for_a_record_is_a_smaller_step_that_says_so(
    redaction: Redaction, call: Exchange
) -> None:
    await redaction.send(via_blobs(call, redaction.blobs), replace(CALL, step_id="step-next"))
    steps: list[Step] = redaction.events(topics.STEPS)
    assert [s.step_id for s in steps] == ["step-a", "step-next"]
    assert gaps.TOO_LARGE in steps[0].gaps
    assert gaps.TOO_LARGE not in steps[1].gaps
    record = records_of(redaction.bus, topics.STEPS)[0]
    assert len(record.value or b"") <= MAX_VALUE_BYTES
    assert JANE.encode() not in redaction.clean_bytes()


async def test_what_is_small_stays_when_one_message_is_too_large(redaction: Redaction) -> None:
    await redaction.send(via_blobs(sized(3_000_000), redaction.blobs))
    (step,) = redaction.events(topics.STEPS)
    seen = [json.loads(m.body)["content"] for m in step.observation.new_messages]
    assert seen == ["small", None]
    assert json.loads(step.action_and_result.output[0].body)["content"] == "answer"


# --- tenants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant_id", ["", JANE, "acme/x", "Acme Inc.", "-acme", "a" * 64])
@pytest.mark.parametrize("event", ["exchange", "step", "feedback", "end"])
async def test_an_event_of_what_cannot_be_a_tenant_is_dead_lettered(
    redaction: Redaction, tenant_id: str, event: str
) -> None:
    """A tenant's id is the one id that stays as it came: no private text, no part of a key."""
    events: dict[str, Any] = {
        "exchange": CALL,
        "step": decode_json(
            b'{"type":"step","step_id":"s","event_id":"e","tenant_id":"x","trajectory_id":"t",'
            b'"started_at":"2026-01-01T12:00:00Z"}'
        ),
        "feedback": Feedback(
            reward_id="r", tenant_id="", target=FeedbackTarget(step_id="s"), name="resolved",
            value=1.0, occurred_at=START, received_at=START,
        ),
        "end": TrajectoryEnd(event_id="e", tenant_id="", trajectory_id="t", occurred_at=START),
    }  # fmt: skip
    await redaction.send(replace(events[event], tenant_id=tenant_id), CALL)
    (letter,) = redaction.events("dead.raw.events.v1")
    assert (letter.reason, letter.field) == ("unknown_tenant", "tenant_id")
    assert [s.step_id for s in redaction.events(topics.STEPS)] == ["step-a"]
    assert JANE.encode() not in redaction.clean_bytes()
