"""Token data leaves only where nothing that it could spell was redacted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import (
    ActionResult,
    Exchange,
    Gap,
    HarnessState,
    Header,
    Lineage,
    Message,
    Observation,
    Step,
    TokenSpan,
    Usage,
    VersionSpan,
)
from streams.redaction import gaps
from streams.redaction.answered_by import spans_of
from tests.unit.redaction_processor.captures import JSON_HEADERS, START, exchange
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.redaction_processor.streams import chunk, sse

PRIVATE = "jane.roe@example.com"
TOKENS = (881_234_567, 881_234_568)
PROMPT = (881_234_569, 881_234_570)
LOGPROBS = (-0.123456789, -0.987654321)


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def with_tokens(call: Exchange, **request: Any) -> Exchange:
    """The call as an engine answers it that was asked for tokens."""
    body = json.loads(call.response_body)
    entries = [
        {"token": f"tok-{PRIVATE}", "bytes": [106, 97], "logprob": p,
         "top_logprobs": [{"token": PRIVATE, "logprob": p, "bytes": [1]}]}
        for p in LOGPROBS
    ]  # fmt: skip
    body["prompt_token_ids"] = PROMPT
    body["choices"][0] |= {"token_ids": TOKENS, "logprobs": {"content": entries}}
    asked = json.loads(call.request_body) | request
    return replace(
        call, response_body=json.dumps(body).encode(), request_body=json.dumps(asked).encode()
    )


async def last_step(redaction: Redaction, *calls: Any) -> Step:
    await redaction.send(*calls)
    step: Step = redaction.events(topics.STEPS)[-1]
    return step


def assert_withheld(step: Step) -> None:
    result = step.action_and_result
    assert (result.token_ids, result.prompt_token_ids, result.logprobs) == ((), (), ())
    assert gaps.TOKENS_WITHHELD in step.gaps


def assert_given(step: Step) -> None:
    result = step.action_and_result
    assert (result.token_ids, result.prompt_token_ids) == (TOKENS, PROMPT)
    assert result.logprobs == LOGPROBS
    assert gaps.TOKENS_WITHHELD not in step.gaps


async def test_clean_text_keeps_its_tokens_but_never_token_strings(redaction: Redaction) -> None:
    assert_given(await last_step(redaction, with_tokens(exchange([user("hi")], said("yo"), "a"))))
    assert PRIVATE.encode() not in redaction.clean_bytes()


TOOL = {"type": "function", "function": {"name": "f", "description": f"ask {PRIVATE}"}}


@pytest.mark.parametrize(
    ("message", "answer", "request_fields"),
    [
        (user(PRIVATE), said("yo"), {}),
        (user("hi"), said(PRIVATE), {}),
        (user("hi", name=PRIVATE), said("yo"), {}),
        (user("hi"), said("yo", reasoning_content=f"so {PRIVATE}"), {}),
        (user("hi"), said("half \ud83d"), {}),
        (user("hi"), said("yo"), {"tools": [TOOL]}),
        (user("hi"), said("yo"), {"functions": [TOOL["function"]]}),
        (user("hi"), said("yo"), {"documents": [{"text": PRIVATE}]}),
        (user("hi"), said("yo"), {"chat_template_kwargs": {"who": PRIVATE}}),
        (user("hi"), said("yo"), {"include_reasoning": False}),
        (user("hi"), None, {}),
    ],
    ids=["request", "answer", "name", "reasoning", "surrogate", "tools", "functions", "documents",
         "template", "hidden reasoning", "no message"],
)  # fmt: skip
async def test_private_text_anywhere_in_the_prompt_or_answer_withholds_all_tokens(
    redaction: Redaction, message: dict[str, Any], answer: Any, request_fields: dict[str, Any]
) -> None:
    call = exchange([message], answer or said(""), "a")
    call = with_tokens(call, **request_fields)
    if answer is None:
        body = json.loads(call.response_body)
        del body["choices"][0]["message"]
        call = replace(call, response_body=json.dumps(body).encode())
    assert_withheld(await last_step(redaction, call))
    assert PRIVATE.encode() not in redaction.clean_bytes()


async def test_who_the_caller_says_its_user_is_does_not_cost_the_tokens(
    redaction: Redaction,
) -> None:
    call = with_tokens(
        exchange([user("hi")], said("yo"), "a"), user=PRIVATE, metadata={"a": PRIVATE}
    )
    assert_given(await last_step(redaction, call))
    assert PRIVATE.encode() not in redaction.clean_bytes()


HISTORY = [user(f"I am {PRIVATE}"), said("hello"), user("and?"), said("fine"), user("ok")]


@pytest.mark.parametrize("restarted", [False, True])
async def test_descendants_of_a_redacted_step_withhold_theirs(
    redaction: Redaction, restarted: bool
) -> None:
    await redaction.send(with_tokens(exchange(HISTORY[:1], HISTORY[1], "a")))
    if restarted:
        redaction.restart()
    await redaction.send(with_tokens(exchange(HISTORY[:3], HISTORY[3], "b")))
    if restarted:
        redaction.restart()
    await redaction.send(with_tokens(exchange(HISTORY, said("done"), "c")))
    steps = redaction.events(topics.STEPS)
    assert [s.lineage.step_index for s in steps] == [0, 1, 2]
    for step in steps:
        assert_withheld(step)
    assert len(steps[2].governance.redactions) == 0


async def test_a_named_parent_does_not_vouch_for_what_another_step_held(
    redaction: Redaction,
) -> None:
    clean = exchange([user("hi")], said("hello"), "clean", trajectory_id="t")
    private = exchange(HISTORY[:1], HISTORY[1], "private", trajectory_id="t")
    call = exchange(HISTORY[:3], said("fine"), "c", trajectory_id="t", parent_step_id="step-clean")
    step = await last_step(redaction, clean, private, with_tokens(call))
    assert step.lineage.parent_step_id == "step-clean"
    assert len(step.observation.new_messages) == 3
    assert_withheld(step)


async def test_a_history_that_only_looks_the_same_is_looked_at_again(redaction: Redaction) -> None:
    first = exchange([user("hi")], said("hello"), "a")
    again = exchange([user("hi", name=PRIVATE), said("hello"), user("so")], said("yes"), "b")
    key = b"acme/~same"
    from tests.unit.redaction_processor.captures import record

    step = await last_step(redaction, record(first, 0, key), record(with_tokens(again), 1, key))
    assert step.lineage.parent_step_id == "step-a"
    assert_withheld(step)


async def test_a_step_cannot_be_its_own_parent(redaction: Redaction) -> None:
    call = exchange([user("hi")], said("yo"), "a", parent_step_id="step-a")
    step = await last_step(redaction, call)
    assert step.lineage.parent_step_id is None


async def test_token_data_inside_messages_is_taken_out_and_said(redaction: Redaction) -> None:
    inside = {"token_ids": TOKENS, "prompt_token_ids": PROMPT, "logprobs": {"content": LOGPROBS}}
    call = exchange([user("hi", **inside)], said(PRIVATE, **inside), "a")
    step = await last_step(redaction, call)
    assert gaps.TOKENS_IN_MESSAGES_DROPPED in step.gaps
    for number in (*TOKENS, *PROMPT):
        assert str(number).encode() not in redaction.clean_bytes()


async def test_a_stream_withholds_like_a_whole_answer(redaction: Redaction) -> None:
    call = exchange([user("hi")], said("x"), "a")
    for text, check in (("fine", assert_given), (PRIVATE, assert_withheld)):
        logprobs = [{"content": [{"token": text, "logprob": p}]} for p in LOGPROBS]
        body = sse([
            chunk({"role": "assistant", "content": ""}, prompt_token_ids=PROMPT),
            chunk({"content": text[:2]}, token_ids=[TOKENS[0]], logprobs=logprobs[0]),
            chunk({"content": text[2:]}, token_ids=[TOKENS[1]], logprobs=logprobs[1]),
            chunk({}, finish_reason="stop"),
        ])  # fmt: skip
        check(await last_step(redaction, replace(call, response_body=body)))


ROOT_HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize("parsed", [True, False])
async def test_a_step_says_which_weights_answered(redaction: Redaction, parsed: bool) -> None:
    path = "/v1/chat/completions" if parsed else "/v1/completions"
    proved: dict[str, Any] = {"policy": "main", "policy_version": 7, "weights_root": ROOT_HEX}
    call = exchange([user("hi")], said("yo"), "a", path=path, **proved)
    model = (await last_step(redaction, call)).model_version
    assert (model.policy, model.policy_version, model.weights_root) == ("main", 7, ROOT_HEX)


async def test_a_change_in_the_middle_of_an_answer_is_told_by_spans(redaction: Redaction) -> None:
    headers = (*JSON_HEADERS, Header(name="x-headrace-policy-spans", value="0:,1:6"))
    call = with_tokens(exchange([user("hi")], said("yo"), "a", response_headers=headers))
    model = (await last_step(redaction, call)).model_version
    assert model.policy_version is None
    assert model.spans == (VersionSpan(start=1, end=2, policy_version=6),)


@pytest.mark.parametrize(
    ("text", "num_tokens", "spans"),
    [
        ("0:5,3:6", 5, [(0, 3, 5), (3, 5, 6)]), ("0:5,3:,4:7", 6, [(0, 3, 5), (4, 6, 7)]),
        ("0:5,0:6", 2, [(0, 2, 6)]), ("0:5", 0, []), ("0:5,9:6", 3, []), ("4:5,3:6", 9, []),
        ("", 3, []), ("x", 3, []), ("0:5,", 3, []), ("0:-5", 3, []),
        ("0:5," * 2_000 + "0:5", 3, []),
    ],
)  # fmt: skip
def test_boundaries_that_do_not_fit_the_tokens_say_nothing(
    text: str, num_tokens: int, spans: list[tuple[int, int, int]]
) -> None:
    found = spans_of(text, num_tokens)
    assert [(s.start, s.end, s.policy_version) for s in found] == spans


async def test_a_root_that_is_none_is_absent(redaction: Redaction) -> None:
    call = exchange([user("hi")], said("yo"), "a", policy=PRIVATE, weights_root=PRIVATE)
    model = (await last_step(redaction, call)).model_version
    assert model.weights_root is None
    assert PRIVATE.encode() not in redaction.clean_bytes()


async def test_what_the_client_saw_unasked_is_a_gap(redaction: Redaction) -> None:
    call = with_tokens(exchange([user("hi")], said("yo"), "a"))
    step = await last_step(redaction, replace(call, extras_shown=True))
    assert gaps.TOKENS_SHOWN in step.gaps
    assert_given(step)


# --- published steps --------------------------------------------------------------------------


def published(name: str, text: str, parent: str | None = None, **fields: Any) -> Step:
    values: dict[str, Any] = {
        "step_id": name, "event_id": f"e-{name}", "tenant_id": "acme", "trajectory_id": "t",
        "started_at": START, "ended_at": START, "lineage": Lineage(parent_step_id=parent),
        "observation": Observation(
            new_messages=(Message(role="user", body=json.dumps(user(text))),), context_messages=1),
        "action_and_result": ActionResult(
            token_ids=TOKENS, prompt_token_ids=PROMPT, logprobs=LOGPROBS, usage=Usage()),
    }  # fmt: skip
    return Step(**{**values, **fields})


async def test_published_steps_withhold_down_the_chain_also_after_a_restart(
    redaction: Redaction,
) -> None:
    assert_given(await last_step(redaction, published("a", "hi")))
    assert_given(await last_step(redaction, published("b", "hi", "a")))
    assert_withheld(await last_step(redaction, published("c", PRIVATE, "b")))
    redaction.restart()
    assert_withheld(await last_step(redaction, published("d", "hi", "c")))
    assert_withheld(await last_step(redaction, published("e", "hi", "never seen")))
    assert_given(await last_step(redaction, published("f", "hi", "b")))


@pytest.mark.parametrize(
    ("start", "end", "check"),
    [(0, 1, assert_given), (1, 3, assert_withheld), (1, 1, assert_withheld)],
)
async def test_changed_tokens_of_a_producer_have_to_be_among_its_tokens(
    redaction: Redaction, start: int, end: int, check: Any
) -> None:
    spans = (TokenSpan(start=start, end=end),)
    result = replace(published("a", "hi").action_and_result, changed_tokens=spans)
    step = await last_step(redaction, published("a", "hi", action_and_result=result))
    check(step)
    assert step.action_and_result.changed_tokens == (spans if check is assert_given else ())


@pytest.mark.parametrize(("index", "check"), [(2, assert_given), (3, assert_withheld)])
async def test_a_change_before_the_tokens_of_a_producer_has_to_be_before_one_of_them(
    redaction: Redaction, index: int, check: Any
) -> None:
    result = replace(published("a", "hi").action_and_result, approximate_from=index)
    check(await last_step(redaction, published("a", "hi", action_and_result=result)))


async def test_what_was_decided_for_a_published_step_holds(redaction: Redaction) -> None:
    child = published("b", "hi", "a")
    first = await last_step(redaction, child)
    assert_withheld(first)
    await redaction.send(published("a", "hi"))
    again = await last_step(redaction, child)
    assert replace(again, source=None) == replace(first, source=None)


async def test_a_published_step_vouches_only_for_text_it_carries(redaction: Redaction) -> None:
    unseen = published("a", "hi", observation=Observation(context_messages=3))
    assert_withheld(await last_step(redaction, unseen))
    tools = published("b", "hi", harness_state=HarnessState(tools=(PRIVATE,)))
    assert_withheld(await last_step(redaction, tools))
    body = json.dumps(user("hi", token_ids=TOKENS))
    inside = published("c", "x", observation=Observation(
        new_messages=(Message(role="user", body=body),), context_messages=1))  # fmt: skip
    step = await last_step(redaction, inside)
    assert str(TOKENS[0]) not in step.observation.new_messages[0].body
    assert gaps.TOKENS_IN_MESSAGES_DROPPED in step.gaps


def test_every_gap_of_the_code_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "gaps.md").read_text()
    known = [value for value in vars(gaps).values() if isinstance(value, Gap)]
    assert len(known) > 8
    for gap in known:
        assert f"| `{gap.field}` | `{gap.reason}` |" in text
