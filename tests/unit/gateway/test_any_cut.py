"""Ten thousand streams cut at random, in every dialect: what the client sees does not depend on the
cuts, and the record holds the upstream's bytes."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inference.capture.proof import Proof
from inference.capture.recorder import Recorder
from inference.dialects.tokens import CHAT, StreamView, ask
from inference.spool import Spool
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from inference.spool.source import Source
from schemas import codec, ids
from schemas.atdp.types import Exchange, Outcome
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from tests import model_answers as answers

NUM_CUT = 10_000
#: Each is written to a real spool; reading them back takes most of the time.
NUM_RECORDED = 1_000
_ASKED = ask(CHAT, b'{"messages":[]}')
assert _ASKED is not None
HIDDEN = _ASKED.hidden

SAID = {
    "role": "assistant",
    "content": "你好🙂 a\u2028b",
    "tool_calls": [
        {"id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": '{"é":1}'}}
        for n in range(2)
    ],
}
BLOCKS = {
    "content": [
        {"type": "thinking", "thinking": "🙂 你好", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": "é"}},
        {"type": "text", "text": "你好🙂"},
    ]
}
ITEMS = [
    {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"a":"你"}'},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "🙂 你好", "annotations": []}]},
]  # fmt: skip


def engine_events() -> list[object]:
    """A stream of an engine that was asked for tokens."""
    return [
        {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": {"content": [{}]},
                      "token_ids": [n]}], "prompt_token_ids": [1, 2] if n == 0 else None}
        for n, text in enumerate("你好🙂")
    ] + [{"choices": [], "usage": {"prompt_tokens": 2}}, "[DONE]"]  # fmt: skip


def streams() -> Iterator[bytes]:
    """Every dialect with every line end, with comments, without its last line, without `[DONE]`."""
    for events in (
        answers.chat_stream(SAID, "1"), answers.messages_stream(BLOCKS, "1"),
        answers.responses_stream(ITEMS, "1"), engine_events(),
    ):  # fmt: skip
        plain = answers.sse(events)
        for end in (b"\n", b"\r\n", b"\r"):
            yield plain.replace(b"\n", end)
        yield b": ping\n\n" + plain.replace(b"\n\n", b"\n: ping\n\n")
        yield plain[:-1]
        yield answers.sse(events[:-1])


def cut(stream: bytes, chance: random.Random) -> list[bytes]:
    """The stream in pieces: of one byte each, or cut in a few places."""
    if chance.random() < 0.02:
        return [stream[at : at + 1] for at in range(len(stream))]
    places = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.randrange(1, 8)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def seen(pieces: list[bytes], hidden: frozenset[bytes], *, hides_usage: bool) -> bytes:
    view = StreamView(hidden, hides_usage=hides_usage)
    return b"".join(view.feed(piece) for piece in pieces) + view.finish()


@pytest.mark.parametrize("hides", [False, True], ids=["nothing", "tokens and usage"])
def test_what_a_client_sees_does_not_depend_on_the_cuts(hides: bool) -> None:
    chance = random.Random(3)
    hidden = HIDDEN if hides else frozenset()
    made = list(streams())
    whole = [seen([stream], hidden, hides_usage=hides) for stream in made]
    assert hides or whole == made, "where nothing is hidden, all of it is seen"
    for number in range(NUM_CUT // 2):
        which = number % len(made)
        pieces = cut(made[which], chance)
        assert b"".join(pieces) == made[which]
        assert seen(pieces, hidden, hides_usage=hides) == whole[which]


def test_the_record_holds_the_bytes_whatever_the_cuts(tmp_path: Path) -> None:
    chance = random.Random(4)
    spool = Spool(tmp_path / "spool", max_bytes=2**30, disk=Disk())
    source = Source(spool.folder, spool)
    recorder = Recorder(spool, "block", Metrics())
    assembler = Assembler(BlobStore((tmp_path / "blobs").as_uri()), 900_000)
    made = list(streams())
    for number in range(NUM_RECORDED):
        capture = recorder.begin(call(number), b"key")
        capture.head(200, (), Proof())
        for piece in cut(made[number % len(made)], chance):
            capture.chunk(piece)
        capture.end(Outcome.COMPLETE, None, 1)
    num_read = 0
    while events := source.read(100):
        for event in events:
            record = assembler.record(event, source.payload, refused_as_oversized=False)
            exchange = codec.decode(record.value or b"")
            number = int(exchange.step_id)
            assert exchange.response_body == made[number % len(made)]
            assert exchange.outcome is Outcome.COMPLETE
            num_read += 1
        source.done(events)
    spool.close()
    source.close()
    assert num_read == NUM_RECORDED


def call(number: int) -> Exchange:
    return Exchange(
        event_id=ids.uuid7(), tenant_id="acme", step_id=str(number), method="POST", path=CHAT,
        outcome=Outcome.GATEWAY_CRASHED, started_at=datetime.now(UTC),
    )  # fmt: skip
