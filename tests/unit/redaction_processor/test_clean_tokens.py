"""Calls with redacted text keep clean token ids where the policy's tokenizer is known."""

import asyncio
import json
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from schemas import topics
from schemas.atdp.types import Header, Step
from streams.batching.tokens import has_logprobs, has_tokens, sequences
from streams.redaction import gaps
from streams.redaction.huggingface import HuggingFaceTokenizer
from tests.unit.redaction.tokenizer_families import END, EXACT, LOSSY, ids_of, prompt_ids
from tests.unit.redaction_processor.captures import JSON_HEADERS, exchange
from tests.unit.redaction_processor.parts import Redaction

EMAIL, PHONE, CARD = "alice.jones@example.com", "+44 20 7946 0958", "4111 1111 1111 1111"
SSN, HANDLE, NAME = "536-90-4399", "mia_li_3668", "Oluwaseun"
PROFILE = json.dumps({"first_name": NAME, "email": EMAIL, "user_id": HANDLE, "total": 12})
PLANTED = (EMAIL, PHONE, CARD, SSN, HANDLE, NAME)

Message = dict[str, Any]


@cache
def engine_of(family: str) -> Engine:
    return (EXACT | LOSSY)[family]()


@dataclass
class Talk:
    """Calls of one conversation, answered by an engine with this tokenizer."""

    family: str
    engine: Engine
    redaction: Redaction

    @classmethod
    def of(cls, family: str, folder: Path, known_as: str | None = None) -> "Talk":
        """`known_as` is the family whose tokenizer redaction has; by default the engine's own."""
        tokenizer = HuggingFaceTokenizer(engine_of(known_as or family))
        return cls(family, engine_of(family), Redaction(folder, tokenizers={"main": tokenizer}))

    async def step(
        self, messages: list[Message], answer: Message, name: str, **fields: Any
    ) -> Step:
        call = self.call(messages, answer, name, **fields)
        await self.redaction.send(call)
        step: Step = self.redaction.events(topics.STEPS)[-1]
        return step

    def call(self, messages: list[Message], answer: Message, name: str, **fields: Any) -> Any:
        call = exchange(messages, answer, name, policy="main", policy_version=3, **fields)
        body = json.loads(call.response_body)
        sampled = self.sampled(answer)
        body["prompt_token_ids"] = prompt_ids(
            self.engine, [(m["role"], _text(m)) for m in messages]
        )
        body["choices"][0] |= {
            "token_ids": sampled,
            "logprobs": {"content": [{"logprob": -i / 1000} for i in range(len(sampled))]},
        }
        return replace(call, response_body=json.dumps(body).encode())

    def sampled(self, answer: Message) -> list[int]:
        return ids_of(self.engine, _text(answer) + END)

    def spelt(self, step: Step) -> str:
        """Everything that the ids of a step can be turned into, in both ways."""
        result = step.action_and_result
        ids = [*result.prompt_token_ids, *result.token_ids]
        tokenizer = HuggingFaceTokenizer(self.engine)
        joined = b"".join(tokenizer.piece(i) or b"" for i in ids).decode(errors="replace")
        return self.engine.decode(ids, skip_special_tokens=False) + "\n" + joined


def _text(message: Message) -> str:
    """As a template writes a message: a call of a tool as JSON, written anew."""
    calls = [c["function"] for c in message.get("tool_calls", ())]
    written = [
        json.dumps({"name": c["name"], "arguments": json.loads(c["arguments"])}) for c in calls
    ]
    return str(message.get("content") or "") + "".join(written)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


@pytest.fixture(params=EXACT)
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Talk:
    return Talk.of(request.param, tmp_path)


async def test_a_redacted_prompt_keeps_the_answer_for_training(talk: Talk) -> None:
    answer = said("your flight to Oslo leaves at nine")
    step = await talk.step([user(f"Write to {EMAIL} please")], answer, "a")
    result = step.action_and_result
    assert list(result.token_ids) == talk.sampled(answer)
    assert len(result.logprobs) == len(result.token_ids)
    assert (result.changed_tokens, result.approximate_from) == ((), 0)
    assert EMAIL not in talk.spelt(step)
    (span,) = step.governance.redactions
    assert span.placeholder in talk.spelt(step)
    assert gaps.TOKENS_CHANGED in step.gaps
    assert gaps.TOKENS_WITHHELD not in step.gaps
    (trained,) = sequences([step], {step.step_id})
    assert trained.num_trained == len(result.token_ids)
    assert all(s.approximate for s in trained.trained)


async def test_a_redacted_answer_trains_around_what_was_changed(talk: Talk) -> None:
    answer = said(f"your flight to {EMAIL} leaves at nine")
    headers = (*JSON_HEADERS, Header(name="x-headrace-policy-spans", value="0:3,2:4"))
    call = talk.call([user("another one, try here")], answer, "a", response_headers=headers)
    await talk.redaction.send(replace(call, policy_version=None))
    step = talk.redaction.events(topics.STEPS)[-1]
    result = step.action_and_result
    assert EMAIL not in talk.spelt(step)
    (changed,) = result.changed_tokens
    assert result.approximate_from == changed.end
    sampled = talk.sampled(answer)
    assert list(result.token_ids[: changed.start]) == sampled[: changed.start]
    behind = len(result.token_ids) - changed.end
    assert list(result.token_ids[changed.end :]) == sampled[-behind:]
    expected = [-i / 1000 for i in range(len(sampled))]
    assert list(result.logprobs) == expected[: changed.start] + expected[-behind:]
    assert has_tokens(step)
    assert has_logprobs(step)
    (trained,) = sequences([step], {step.step_id})
    assert trained.num_trained == len(result.logprobs) == len(trained.logprobs)
    assert [(s.version, s.approximate) for s in trained.trained] == [
        (3, False), (4, False), (4, True)
    ]  # fmt: skip
    first, last = len(result.prompt_token_ids), len(result.prompt_token_ids) + changed.end
    assert [s.first for s in trained.trained] == [first, first + 2, last]


async def test_turns_of_a_redacted_conversation_are_one_sequence(talk: Talk) -> None:
    first = [user(f"I am at {EMAIL}")]
    one = await talk.step(first, said("your flight leaves"), "a")
    call = {"id": "c", "function": {"name": "find", "arguments": json.dumps({"email": EMAIL})}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    second = [*first, said("your flight leaves"), user("find me")]
    two = await talk.step(second, asks, "b")
    third = [*second, asks, {"role": "tool", "tool_call_id": "c", "content": PROFILE}]
    three = await talk.step(third, said(f"Dear {NAME}, one card."), "c")
    for step in (one, two, three):
        assert [v for v in PLANTED if v in talk.spelt(step)] == []
    made = sequences([one, two, three], {s.step_id for s in (one, two, three)})
    trained = [span.step_id for sequence in made for span in sequence.trained]
    assert list(dict.fromkeys(trained)) == ["step-a", "step-b", "step-c"]
    # Other families split an answer differently when they read it as history.
    assert len(made) == 1 or "byte-level" not in talk.family


@pytest.mark.parametrize("family", LOSSY)
async def test_a_tokenizer_that_does_not_tell_its_bytes_withholds(
    family: str, tmp_path: Path
) -> None:
    step = await Talk.of(family, tmp_path).step([user(f"Write to {EMAIL}")], said("yes"), "a")
    assert step.action_and_result.token_ids == step.action_and_result.prompt_token_ids == ()
    assert gaps.TOKENS_NOT_ALIGNED in step.gaps


async def test_the_wrong_tokenizer_withholds(tmp_path: Path) -> None:
    talk = Talk.of("byte-level BPE", tmp_path, known_as="byte-level BPE of digits")
    step = await talk.step([user(f"Write to {EMAIL}")], said("your flight leaves"), "a")
    assert step.action_and_result.token_ids == step.action_and_result.prompt_token_ids == ()
    assert gaps.TOKENS_NOT_ALIGNED in step.gaps


KINDRED = ("byte-level BPE", "byte-level BPE of digits")


@pytest.mark.parametrize(("family", "known_as"), [KINDRED, KINDRED[::-1]])
@pytest.mark.parametrize(
    "before",
    [
        [user(f"Write to {EMAIL} and {PHONE} please, {NAME}"), said("yes")],
        [user("hi"), said(f"Write to {EMAIL} and {PHONE} please, {NAME}")],
        [],
    ],
)
async def test_a_wrong_tokenizer_that_spells_short_texts_withholds(
    family: str, known_as: str, before: list[Message], tmp_path: Path
) -> None:
    talk = Talk.of(family, tmp_path, known_as=known_as)
    call = {"id": "c", "function": {"name": "n", "arguments": json.dumps({"email": EMAIL})}}
    answer = said("n") if before else said("n") | {"tool_calls": [call]}
    step = await talk.step([*before, user("y")], answer, "a")
    assert [v for v in PLANTED if v in talk.spelt(step)] == []
    assert step.action_and_result.token_ids == step.action_and_result.prompt_token_ids == ()
    assert gaps.TOKENS_NOT_ALIGNED in step.gaps


@pytest.mark.parametrize("depth", [2, 7, 9])
async def test_what_goes_with_a_placeholder_inside_goes_whole(talk: Talk, depth: int) -> None:
    """Texts nested too deep are not read but taken out, also with what was redacted before."""
    one = await talk.step([user(f"Write to {EMAIL} please")], said("your flight"), "a")
    (span,) = one.governance.redactions
    text = f"from {span.placeholder} to {PHONE} and {CARD}"
    for _ in range(depth):
        text = json.dumps({"a": text})
    step = await talk.step([user(text)], said("your flight leaves"), "b")
    assert [v for v in PLANTED if v in talk.spelt(step)] == []
    assert step.action_and_result.token_ids
    assert gaps.TOKENS_CHANGED in step.gaps


async def test_text_that_the_upstream_kept_to_itself_withholds(talk: Talk) -> None:
    call = talk.call([user(f"Write to {EMAIL}")], said("yes"), "a")
    asked = json.loads(call.request_body) | {"include_reasoning": False}
    await talk.redaction.send(replace(call, request_body=json.dumps(asked).encode()))
    step = talk.redaction.events(topics.STEPS)[-1]
    assert step.action_and_result.token_ids == ()
    assert gaps.TOKENS_WITHHELD in step.gaps


async def test_another_policys_tokenizer_is_not_taken(talk: Talk) -> None:
    call = talk.call([user(f"Write to {EMAIL}")], said("yes"), "a")
    await talk.redaction.send(replace(call, policy="other"))
    step = talk.redaction.events(topics.STEPS)[-1]
    assert step.action_and_result.token_ids == ()
    assert gaps.TOKENS_WITHHELD in step.gaps


PIECES = st.sampled_from(
    [*PLANTED, PROFILE, "Dear Mia", "é 🙂客\n", "\\n", '"', "\u0000", "the card", " ", "user\n",
     EMAIL.upper(), f"({PHONE})", f"{NAME}'s", "<|im_end|>", "<unk>", "<0x41>", "▁"]
) | st.text(max_size=5)  # fmt: skip
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map(" ".join)


@pytest.mark.parametrize("family", [*EXACT, *LOSSY])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(TEXTS, min_size=2, max_size=4), arguments=TEXTS, also_tool=st.booleans())
def test_no_tokens_of_a_clean_event_spell_a_planted_value(
    family: str, texts: list[str], arguments: str, also_tool: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk.of(family, Path(folder))
        messages: list[Message] = [
            {"role": "tool" if also_tool and i else "user", "content": text}
            for i, text in enumerate(texts[:-1])
        ]
        answer = said(texts[-1])
        if also_tool:
            call = {"name": "send", "arguments": json.dumps({"to": arguments})}
            answer["tool_calls"] = [{"id": "c", "function": call}]
        first = asyncio.run(talk.step(messages, answer, "a"))
        later = [*messages, answer, user("so?")]
        second = asyncio.run(talk.step(later, said("Dear Mia"), "b"))
        bodies = " ".join(
            message.body
            for step in (first, second)
            for message in (*step.observation.new_messages, *step.action_and_result.output)
        )
        for step in (first, second):
            spelt = talk.spelt(step)
            # What redaction does not find in the messages is its own matter, not the tokens'.
            assert [v for v in PLANTED if v in spelt and v not in bodies] == []
            result = step.action_and_result
            if result.token_ids:
                num_changed = sum(s.end - s.start for s in result.changed_tokens)
                assert len(result.logprobs) == len(result.token_ids) - num_changed
