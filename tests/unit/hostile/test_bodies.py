"""Bodies that say little and unfold into much: a step with a gap, in bounded time and memory."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from schemas.atdp.types import Step
from schemas.codec import decode
from streams.redaction import chat, gaps
from streams.redaction.sse import data_of_events
from streams.runtime import Effects
from tests.unit.redaction_processor.captures import exchange, record
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import DictTable

MB = 1024**2


@pytest.fixture
def redaction(tmp_path_factory: pytest.TempPathFactory) -> Redaction:
    return Redaction(tmp_path_factory.mktemp("bodies"))


def step_of(redaction: Redaction, asked: bytes, answered: bytes = b"") -> Step:
    """The step of a call with these bodies, which lie beside the topic."""
    call = replace(
        exchange([], None, "a"),
        request_body=b"",
        request_body_uri=redaction.blobs.put("acme", asked),
        response_body=answered,
    )
    processor = redaction.raw_lane._processor
    effects = processor.handle(record(call, 0, b"key"), DictTable(), overdue=True)
    assert isinstance(effects, Effects)
    step = decode(effects.outputs[0].value)
    assert isinstance(step, Step)
    return step


@contextmanager
def at_most(num_bytes: int) -> Iterator[None]:
    """Fail where the block holds more memory than that at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "unit", [b"{},", b"[],", b"1,", b'{"a":1},'], ids=["objects", "lists", "numbers", "members"]
)
def test_a_body_of_millions_of_values_is_not_parsed(redaction: Redaction, unit: bytes) -> None:
    body = b'{"messages":[],"x":[' + unit * (chat.MAX_MARKS + 1) + b"0]}"
    with at_most(5 * len(body)):  # parsed it takes thirty times its size
        step = step_of(redaction, body)
    assert gaps.REQUEST_NOT_PARSED in step.gaps


def test_a_call_of_too_many_messages_is_not_parsed(redaction: Redaction) -> None:
    messages = [{"role": "user"}] * (chat.MAX_MESSAGES + 1)
    step = step_of(redaction, json.dumps({"messages": messages}).encode())
    assert gaps.REQUEST_NOT_PARSED in step.gaps


def test_as_much_as_is_allowed_is_parsed(redaction: Redaction) -> None:
    messages = [{"role": "user"}] * chat.MAX_MESSAGES
    assert chat.parse_request(json.dumps({"messages": messages}).encode()) is not None
    prose = "one, two, three. " * (4 * MB // 17)
    step = step_of(
        redaction, json.dumps({"messages": [{"role": "user", "content": prose}]}).encode()
    )
    assert gaps.TOO_LARGE in step.gaps, "parsed, redacted, and then too large for its topic"


def test_an_answer_of_blank_lines_is_nothing(redaction: Redaction) -> None:
    asked = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    with at_most(20 * MB):
        assert list(data_of_events(b"\n" * (4 * MB))) == []
    step = step_of(redaction, asked, b"\n" * 500_000 + b'data: {"id":"r"}' + b"\r\n" * 1_000)
    assert step.response_id == "r"
