"""Private data in any field of any event that a client or producer fills reaches no clean topic.

The fields come from the types themselves, so a field that is added later is planted as well.
"""

import base64
import dataclasses
import io
import json
import logging
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest

from infra.bench.redaction.sessions import CERTAIN, session
from infra.demo.leaks import LeakScanner
from schemas import topics
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget, Header, Step, TrajectoryEnd
from schemas.telemetry import configure_logging
from tests.unit.redaction_processor.captures import START, exchange
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import records_of

#: The tenant is the operator's word and names every key and folder.
NOT_PLANTED = {"tenant_id"}


class Planter:
    """Fills every text with an e-mail of its own and remembers which."""

    def __init__(self) -> None:
        self.planted: list[str] = []

    def text(self) -> str:
        self.planted.append(f"jane.roe{len(self.planted)}@mail.example.com")
        return f"of {self.planted[-1]}"

    def bare(self) -> str:
        """An e-mail and nothing else, as ids are."""
        return self.text().removeprefix("of ")

    def fill(self, cls: type, **fixed: Any) -> Any:
        """An event of that type in which every field that can hold text holds private text."""
        hints = typing.get_type_hints(cls)
        values = {
            field.name: self._value(hints[field.name])
            for field in dataclasses.fields(cls)
            if field.name not in fixed and field.name not in NOT_PLANTED
        }
        if "tenant_id" in hints:
            values["tenant_id"] = "acme"
        return cls(**{**values, **fixed})

    def _value(self, hint: Any) -> Any:
        if typing.get_origin(hint) is tuple:
            return (self._value(typing.get_args(hint)[0]),)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            return self._value(next(m for m in typing.get_args(hint) if m is not type(None)))
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return list(hint)[-1]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self.fill(hint)
        makers: dict[Any, Callable[[], Any]] = {
            str: self.text, int: lambda: 1, float: lambda: 1.0, bool: lambda: True,
            bytes: lambda: self.text().encode(), datetime: lambda: START,
        }  # fmt: skip
        return makers[hint]()


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def call(planter: Planter, *, stream: bool) -> Exchange:
    """A chat call with private text at every place of its headers and bodies."""
    t = planter.text
    function = {"name": planter.bare(), "description": t(), "parameters": {t(): {"enum": [t()]}}}
    request = {
        "model": t(), "user": t(), "metadata": {t(): t()}, "stop": [t(), t()], "x_unknown": t(),
        "tools": [{"type": "function", "function": function}], "seed": t(), "tool_choice": t(),
        "response_format": {"type": "json_schema", "json_schema": {
            "name": t(), "schema": {"properties": {t(): {"const": t(), "description": t()}}}}},
        "logit_bias": {t(): 1}, "prediction": {"content": t()}, "safety_identifier": t(),
        "prompt_cache_key": t(), "service_tier": t(), "audio": {"voice": t()},
        "messages": [
            {"role": "system", "content": t()},
            {"role": t(), "content": t(), "name": t()},
            {"role": "user", "content": [
                {"type": "text", "text": t()}, {"type": t(), "x": t()},
                {"type": "file", "file": {"filename": t(), "file_id": t(),
                                          "file_data": in_base64(t())}},
            ]},
            {"role": "tool", "tool_call_id": t(), "content": json.dumps({"a": [t()], t(): 1})},
        ],
    }  # fmt: skip
    called = {"id": t(), "type": "function", "function": {
        "name": planter.bare(), "arguments": json.dumps({"to": t()})}}  # fmt: skip
    message = {"role": t(), "content": t(), "reasoning_content": t(), "tool_calls": [called],
               "annotations": [{"url": t()}], t(): t()}  # fmt: skip
    choice = {
        "index": 0, "finish_reason": t(), "delta" if stream else "message": message,
        "token_ids": [1], "logprobs": {"content": [{"token": t(), "logprob": -1.0}]},
    }  # fmt: skip
    response = {
        "id": t(), "model": t(), "choices": [choice], "usage": {t(): t()},
        "prompt_token_ids": [1], "system_fingerprint": t(), "error": {"message": t()},
    }  # fmt: skip
    body = json.dumps(response).encode()
    agent = f"{planter.bare()}/{planter.bare()} ({t()})"
    headers = (Header(name="user-agent", value=agent), Header(name=t(), value=t()))
    filled: Exchange = planter.fill(
        Exchange, method="POST", path=f"/{t()}/v1/chat/completions", request_headers=headers,
        request_body=json.dumps(request).encode(), request_body_uri=None, response_body_uri=None,
        response_headers=(Header(name="x-request-id", value=t()),),
        response_body=b"data: " + body + b"\n\n" if stream else body,
    )  # fmt: skip
    return filled


def everything(planter: Planter) -> Iterator[Any]:
    yield call(planter, stream=False)
    yield call(planter, stream=True)
    for path in ("/v1/messages", "/v1/chat/completions", f"/{planter.text()}"):
        yield planter.fill(
            Exchange, path=path, request_body_uri=None, response_body_uri=None, request_headers=(),
            response_headers=(),
        )  # fmt: skip
    yield planter.fill(Step)
    yield planter.fill(TrajectoryEnd)
    for kind in ("trajectory_id", "step_id", "response_id"):
        yield planter.fill(Feedback, target=FeedbackTarget(**{kind: planter.bare()}))
    yield planter.fill(Feedback)  # three targets: a dead letter


def topic_values(redaction: Redaction) -> Iterator[tuple[str, bytes]]:
    for topic in topics.all_topics():
        if not topic.holds_original_text:
            for record in records_of(redaction.bus, topic.name):
                yield topic.name, (record.key or b"") + b"\x00" + (record.value or b"")


async def test_nothing_planted_anywhere_leaves_on_a_clean_topic_or_in_the_log(
    redaction: Redaction,
) -> None:
    planter, said = Planter(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        configure_logging("test", "debug")
        for event in everything(planter):
            await redaction.send(event)
        logging.getLogger().handlers.clear()
    found = {name for name, _ in topic_values(redaction)}
    assert found >= {topics.STEPS, topics.REWARDS, topics.ENDS, "dead.raw.events.v1"}
    assert len(redaction.events(topics.STEPS)) == 6
    assert len(redaction.events(topics.REWARDS)) == 3
    leaks = [
        (topic, value[max(0, at - 30) : at + 40])
        for topic, value in topic_values(redaction)
        for text in (b"jane.roe", b"mail.example", b"amFuZS5yb2", b"phbmUucm9l", b"qYW5lLnJvZ")
        if (at := value.find(text)) >= 0
    ]
    assert leaks == []
    assert "record_dead_lettered" in said.getvalue()
    assert "jane.roe" not in said.getvalue()
    assert len(planter.planted) > 150


async def test_nothing_with_a_form_of_forty_sessions_leaves(redaction: Redaction) -> None:
    """The short form of `tests/soak/test_generated_sessions.py`."""
    made = [session(seed) for seed in range(40)]
    for number, each in enumerate(made):
        turns = [i for i, m in enumerate(each.messages) if m["role"] == "assistant"]
        for turn in turns:
            before, answer = each.messages[:turn], each.messages[turn]
            await redaction.send(exchange(before, answer, f"s{number}t{turn}"))
    assert len(redaction.events(topics.STEPS)) == 3 * len(made)
    planted = [item for each in made for item in each.planted if item.kind in CERTAIN]
    scanner, left = LeakScanner(planted), set()
    for _, value in topic_values(redaction):
        left |= scanner.scan(value.decode("utf-8", "replace"), binary=True)
    assert left == set()
    assert scanner.scan(json.dumps([each.messages for each in made])) == set(planted)


async def test_the_search_itself_finds_what_the_private_topics_hold(redaction: Redaction) -> None:
    planter = Planter()
    await redaction.send(planter.fill(Feedback, target=FeedbackTarget(step_id=planter.bare())))
    (waiting,) = records_of(redaction.bus, topics.RAW_UNRESOLVED)
    assert b"jane.roe" in (waiting.value or b"")


@pytest.mark.parametrize("times", [1, 2])
async def test_redacting_what_was_redacted_changes_nothing(
    redaction: Redaction, times: int
) -> None:
    call = exchange([{"role": "user", "content": "I am a@mail.example.com"}],
                    {"role": "assistant", "content": "ok"}, "a")  # fmt: skip
    await redaction.send(call)
    (step,) = redaction.events(topics.STEPS)
    for _ in range(times):
        await redaction.send(step)
    assert (
        redaction.events(topics.STEPS)[-1].observation.new_messages == step.observation.new_messages
    )
