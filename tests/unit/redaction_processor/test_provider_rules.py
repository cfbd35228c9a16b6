"""What providers sign stays as it is in the record; what they embed is not repeated in it."""

import json
from dataclasses import replace
from typing import Any

from schemas import topics
from schemas.atdp.types import StepKind
from schemas.codec import encode
from tests.unit.redaction_processor.captures import exchange
from tests.unit.redaction_processor.parts import Redaction

JANE = "jane.roe@example.com"
#: Base64 with the digits of a card in it. A signature that was changed is refused.
SIGNED = "ErUBCkYIBhgC+4111111111111111/aB3dEfGh+4155550199="


async def test_signatures_and_sealed_thoughts_stay_and_thoughts_are_redacted(
    redaction: Redaction,
) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": f"ask {JANE}", "signature": SIGNED},
        {"type": "redacted_thinking", "data": SIGNED},
        {"type": "thinking", "thinking": "", "signature": SIGNED},
        {"type": "text", "text": f"I wrote to {JANE}"},
    ]
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": blocks,
              "stop_reason": "end_turn", "usage": {"input_tokens": 1}}  # fmt: skip
    call = exchange([], None, "a", path="/v1/messages")
    await redaction.send(
        replace(
            call, request_body=json.dumps(asked).encode(), response_body=json.dumps(answer).encode()
        )
    )
    (step,) = redaction.events(topics.STEPS)
    kept = json.loads(step.action_and_result.output[0].body)["content"]
    assert [block.get("signature") for block in kept] == [SIGNED, None, SIGNED, None], kept
    assert kept[1]["data"] == SIGNED
    assert kept[2]["thinking"] == ""
    assert JANE not in kept[0]["thinking"] + kept[3]["text"]


async def test_vectors_are_in_no_step(redaction: Redaction) -> None:
    vectors = [{"object": "embedding", "index": n, "embedding": [0.125] * 3072} for n in range(64)]
    body = json.dumps({"object": "list", "data": vectors, "usage": {"prompt_tokens": 9}}).encode()
    call = exchange([], None, "a", path="/v1/embeddings", trajectory_id="t")
    uri = redaction.blobs.put("acme", body)
    asked = json.dumps({"model": "m", "input": ["a"] * 64}).encode()
    await redaction.send(
        replace(call, request_body=asked, response_body=b"", response_body_uri=uri)
    )
    (step,) = redaction.events(topics.STEPS)
    assert step.kind is StepKind.RETRIEVAL
    assert step.action_and_result.output == ()
    assert len(encode(step)) < 2_000
    assert b"0.125" not in redaction.clean_bytes()


async def test_a_step_names_the_upstream_that_answered(redaction: Redaction) -> None:
    said = {"role": "assistant", "content": "yo"}
    await redaction.send(
        exchange([{"role": "user", "content": "hi"}], said, "a", upstream="spare"),
        exchange([{"role": "user", "content": "ho"}], said, "b"),
    )
    steps = redaction.events(topics.STEPS)
    assert [step.model_version.upstream for step in steps] == ["spare", None]
