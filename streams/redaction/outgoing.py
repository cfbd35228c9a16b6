"""Records on their way out: each fits its topic, or says what was left out.

A record that the broker refuses would stop the processor for ever, so size is settled here. A
step shrinks and names the gap; anything else that is too large is given up with a reason.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from schemas import topics
from schemas.atdp.types import Governance, Message, Step
from schemas.bus import Record
from schemas.codec import encode
from schemas.errors import PermanentError, Reason
from streams.redaction import gaps
from streams.redaction.chat import dumps

#: The rest is for the record's key, its headers and the frame of its batch.
MAX_VALUE_BYTES = topics.topic(topics.STEPS).max_bytes - 16 * 1024
#: Names of data classes stay; spans of texts that are gone say nothing.
_SMALL_BODY_BYTES = 256


def outgoing(topic: str, key: bytes, event: Any) -> Record:
    """The record of an event. PermanentError(OVERSIZED) where the topic cannot take it."""
    value = encode(event)
    if len(value) + len(key) > MAX_VALUE_BYTES:
        raise PermanentError(Reason.OVERSIZED)
    return Record(topic, key, value)


def outgoing_step(key: bytes, step: Step) -> Record:
    """The record of a step, without its largest texts where it would not fit."""
    for candidate in _ever_smaller(step):
        value = encode(candidate)
        if len(value) + len(key) <= MAX_VALUE_BYTES:
            return Record(topics.STEPS, key, value)
    raise PermanentError(Reason.OVERSIZED)


def _ever_smaller(step: Step) -> Iterator[Step]:
    yield step
    excess = len(encode(step)) - MAX_VALUE_BYTES + 16 * 1024
    short = replace(step, gaps=(*step.gaps, gaps.TOO_LARGE))
    yield _without_largest_bodies(short, excess)
    bare = _without_largest_bodies(short, 2**62)
    yield replace(
        bare,
        observation=replace(
            bare.observation, new_messages=(), retrieved_items=(), tool_results=(), memory_reads=()
        ),
        harness_state=replace(bare.harness_state, reasoning=None, sampling=None, tools=()),
        action_and_result=replace(
            bare.action_and_result, output=(), tool_result=None,
            prompt_token_ids=(), token_ids=(), logprobs=(), changed_tokens=(),
            approximate_from=None,
        ),
        governance=_without_spans(bare.governance),
    )  # fmt: skip


def _without_spans(governance: Governance) -> Governance:
    return replace(governance, redactions=())


def _without_largest_bodies(step: Step, excess_bytes: int) -> Step:
    """Empty the bodies of the largest messages until at least `excess_bytes` are gone."""
    seen, done = step.observation.new_messages, step.action_and_result.output
    sizes = [len(message.body.encode()) for message in (*seen, *done)]
    emptied = set()
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if excess_bytes <= 0 or sizes[index] <= _SMALL_BODY_BYTES:
            break
        emptied.add(index)
        excess_bytes -= sizes[index]
    kept = [_emptied(m) if i in emptied else m for i, m in enumerate((*seen, *done))]
    return replace(
        step,
        observation=replace(step.observation, new_messages=tuple(kept[: len(seen)])),
        action_and_result=replace(step.action_and_result, output=tuple(kept[len(seen) :])),
    )


def _emptied(message: Message) -> Message:
    return replace(message, body=dumps({"role": message.role[:64], "content": None}))
