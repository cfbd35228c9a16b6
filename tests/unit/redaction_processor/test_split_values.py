"""A private value that an answer's stream cuts in pieces, in events and in bytes, is found: what is
redacted is the answer put together again. Spans of traces hold nothing of a call's text."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from inference.capture.proof import Proof
from inference.capture.recorder import Recorder
from inference.spool import Spool
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from inference.spool.source import Source
from inference.spool.tracing import CallTraces
from infra.demo.leaks import LeakScanner
from infra.demo.private_data import Kind, Planted
from schemas import codec, ids, topics
from schemas.atdp.types import Exchange, Header, Outcome
from schemas.bus import Record
from schemas.settings import TracingSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.tracing import Tracing
from tests.model_answers import sse
from tests.unit.redaction_processor.captures import START, changed
from tests.unit.redaction_processor.parts import Redaction

VALUES: dict[Kind, str] = {
    "EMAIL_ADDRESS": "oriel.hawtrey77@mail.example.org",
    "CREDIT_CARD": "4539 5787 6362 1486",
    "PHONE_NUMBER": "+1-415-555-0132",
    "IBAN_CODE": "DE89370400440532013000",
    "DATE_OF_BIRTH": "1984-03-07",
    "SECRET": "sk-ant-api03-R4nD0mL3tt3rsAndD1g1tsTh4tN0b0dyGu3ss3s-AA",
    "PERSON": "Oriel Hawtrey",
}
SAID = f"My name is {VALUES['PERSON']}. " + ", ".join(f"take {each}" for each in VALUES.values())
PLANTED = tuple(Planted(kind, value, "answer") for kind, value in VALUES.items())
ARGUMENTS = json.dumps({"name": VALUES["PERSON"], "note": SAID})


def in_pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def chat(size: int) -> Iterator[Any]:
    def delta(**fields: Any) -> dict[str, Any]:
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": fields}]}

    opener = {"index": 0, "id": "call_1", "type": "function"}
    yield delta(tool_calls=[{**opener, "function": {"name": "f", "arguments": ""}}])
    for content, arguments in zip_longest(in_pieces(SAID, size), in_pieces(ARGUMENTS, size)):
        if content is not None:
            yield delta(content=content, reasoning_content=content)
        yield delta(tool_calls=[{"index": 0, "function": {"arguments": arguments}}])
    yield "[DONE]"


def messages(size: int) -> Iterator[Any]:
    yield {"type": "message_start", "message": {"id": "m", "model": "m", "role": "assistant"}}
    blocks: list[tuple[dict[str, Any], str, str, str]] = [
        ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking", SAID),
        ({"type": "text", "text": ""}, "text_delta", "text", SAID),
        ({"type": "tool_use", "id": "t", "name": "f", "input": {}}, "input_json_delta",
         "partial_json", ARGUMENTS),
    ]  # fmt: skip
    for index, (block, kind, field, text) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in in_pieces(text, size):
            delta = {"type": kind, field: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    yield {"type": "message_stop"}


def responses(size: int) -> Iterator[Any]:
    """Cut off before the events that repeat the whole: only the pieces tell."""
    message = {"id": "m", "type": "message", "role": "assistant", "content": []}
    call = {"id": "f", "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    yield {"type": "response.created", "response": {"id": "r", "model": "m", "output": []}}
    items: list[tuple[dict[str, Any], str, str]] = [
        (message, "response.output_text.delta", SAID),
        (call, "response.function_call_arguments.delta", ARGUMENTS),
    ]
    for index, (item, kind, text) in enumerate(items):
        at = {"output_index": index, "item_id": item["id"], "content_index": 0}
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        if item is message:
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **at, "part": part}
        for piece in in_pieces(text, size):
            yield {"type": kind, **at, "delta": piece}


def completions(size: int) -> Iterator[Any]:
    for piece in in_pieces(SAID, size):
        yield {"id": "c", "model": "m", "choices": [{"index": 0, "text": piece}]}
    yield "[DONE]"


DIALECTS: dict[str, tuple[Callable[[int], Iterator[Any]], dict[str, Any]]] = {
    "/v1/chat/completions": (chat, {"messages": [{"role": "user", "content": "Who is it?"}]}),
    "/v1/messages": (messages, {"messages": [{"role": "user", "content": "Who is it?"}]}),
    "/v1/responses": (responses, {"input": "Who is it?"}),
    "/v1/completions": (completions, {"prompt": "Who is it?"}),
}


def captured(folder: Path, path: str, size: int) -> Exchange:
    """The call as a gateway records it whose upstream sends its stream in pieces of any size."""
    made, request = DIALECTS[path]
    stream = sse(list(made(size)))
    chance = random.Random(size)
    spool = Spool(folder / "spool", max_bytes=2**24, disk=Disk())
    source = Source(spool.folder, spool)
    capture = Recorder(spool, "block", Metrics()).begin(
        Exchange(
            event_id=ids.uuid7(), tenant_id="acme", step_id=ids.uuid7(), method="POST", path=path,
            trajectory_id="t1",
            request_body=json.dumps({"model": "m", "stream": True, **request}).encode(),
            outcome=Outcome.GATEWAY_CRASHED, started_at=START,
        ), b"key")  # fmt: skip
    capture.head(200, (Header(name="content-type", value="text/event-stream"),), Proof())
    at = 0
    while at < len(stream):
        num_bytes = chance.randrange(1, 40)
        capture.chunk(stream[at : at + num_bytes])
        at += num_bytes
    capture.end(Outcome.COMPLETE, None, 1)
    assembler = Assembler(BlobStore((folder / "blobs").as_uri()), 900_000)
    (event,) = source.read(100)
    record = assembler.record(event, source.payload, refused_as_oversized=False)
    exchange = codec.decode(record.value or b"")
    spool.close()
    source.close()
    assert isinstance(exchange, Exchange)
    return exchange


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("path", DIALECTS)
async def test_a_value_cut_in_pieces_is_found(
    redaction: Redaction, tmp_path: Path, path: str, size: int
) -> None:
    exchange = captured(tmp_path, path, size)
    for value in VALUES.values():
        assert value.encode() not in (exchange.response_body or b""), "it is whole in the stream"
    await redaction.send(exchange)
    (step,) = redaction.events(topics.STEPS)
    assert len(step.action_and_result.output) > 0
    assert {span.kind for span in step.governance.redactions} >= set(VALUES)
    left = LeakScanner(PLANTED).scan(
        redaction.clean_bytes().decode("utf-8", "replace"), binary=True
    )
    assert left == set()


def test_the_search_finds_what_the_pieces_say(tmp_path: Path) -> None:
    text = "".join(each["choices"][0]["text"] for each in completions(3) if each != "[DONE]")
    assert LeakScanner(PLANTED).scan(text) == set(PLANTED)


def test_spans_of_a_call_hold_none_of_its_text() -> None:
    told = InMemorySpanExporter()
    settings = TracingSettings(otlp_url="http://127.0.0.1:4318", share=1.0)
    tracing = Tracing("inference.gateway", settings, told)
    names = ("method", "path", "trajectory_id", "parent_step_id", "task_key", "agent_id")
    exchange = changed(
        Exchange(event_id=ids.uuid7(), tenant_id="acme", step_id=ids.uuid7(), method="", path="",
                 outcome=Outcome.COMPLETE, started_at=START, first_byte_at=START, ended_at=START,
                 request_body=SAID.encode(), response_body=SAID.encode(), status=200,
                 request_headers=(Header(name="traceparent", value=SAID),
                                  Header(name="baggage", value=SAID))),
        dict.fromkeys(names, "jane.roe@mail.example.org"),
    )  # fmt: skip
    traces = CallTraces(tracing)
    marked = traces.marked(b"1", Record("raw.events.v1", b"key", codec.encode(exchange)))
    traces.delivered(b"1")
    tracing.flush()
    spans = told.get_finished_spans()
    assert {span.name for span in spans} == {"call", "first byte", "publish"}
    everything = "".join(span.to_json() for span in spans) + repr(marked.headers)
    assert "jane.roe" not in everything
    assert LeakScanner(PLANTED).scan(everything, binary=True) == set()
