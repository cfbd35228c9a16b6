"""vLLM behind the gateway: the client sees what vLLM alone would say; steps carry the tokens."""

import re
from pathlib import Path

import pytest
from aiohttp import ClientSession

from schemas import topics
from schemas.atdp.types import Exchange, Step
from streams.redaction import gaps
from tests.integration.gateway.harness import ScriptedUpstream, running
from tests.live_engine import LiveEngine, ask
from tests.tiny_model import letter_of
from tests.unit.redaction_processor.parts import Redaction

pytestmark = pytest.mark.integration

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = b'"messages":[{"role":"user","content":"which version?"}],"max_tokens":3,"seed":1'
POLICY = "tiny"
ROOT = "5a" * 32


class RunningEngine(ScriptedUpstream):
    """An upstream that is up already."""

    def __init__(self, url: str) -> None:
        self.address = url

    @property
    def url(self) -> str:
        return self.address

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """It ends with the module."""


@pytest.fixture
def engine(live_engine: LiveEngine) -> str:
    """The engine of all tests, with a label of this one's; whoever comes next proves it anew."""
    live_engine.client.label({"policy": POLICY, "version": 1, "root": ROOT, "refusal": None})
    # The first request for log-probabilities waits until torch has compiled what counts them.
    ask(live_engine.url, tokens=3, timeout_seconds=300.0, logprobs=1)
    return live_engine.url


def without_ids(answer: bytes) -> bytes:
    return re.sub(rb'"id":"[^"]*"|"created":\d+', b"", answer)


async def direct(url: str, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"content-type": "application/json"}
    async with ClientSession(headers=headers) as http, http.post(url + path, data=body) as answer:
        return answer.status, await answer.read()


BODIES = [
    (CHAT, b'{"model":"main",' + MESSAGES + b"}"),
    (CHAT, b'{"model":"main","stream":true,"stream_options":{"include_usage":true},'
     + MESSAGES + b"}"),
    (CHAT, b'{"model":"main","logprobs":false,"n":2,"temperature":0.7,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"main","logprobs":true,"top_logprobs":1,"stream":true,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"main","top_logprobs":2,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"unknown",' + MESSAGES + b"}"),
    (COMPLETIONS, b'{"model":"main","prompt":"hi>","max_tokens":3,"temperature":0}'),
    (COMPLETIONS, b'{"model":"main","prompt":"hi>","max_tokens":3,"temperature":0,"stream":true}'),
    (COMPLETIONS, b'{"model":"main","prompt":"hi>","max_tokens":3,"temperature":0,"echo":true}'),
]  # fmt: skip


@pytest.mark.timeout(400)
async def test_the_client_sees_what_the_engine_alone_says(
    tmp_path: Path, kafka: str, engine: str
) -> None:
    statuses = []
    async with running(tmp_path, kafka, RunningEngine(engine), asks_tokens=True) as gw:
        for path, body in BODIES:
            async with gw.http.post(
                gw.url + path, data=body, headers=gw.headers | {"content-type": "application/json"}
            ) as answer:
                shown = await answer.read()
            status, expected = await direct(engine, path, body)
            assert answer.status == status
            assert without_ids(shown) == without_ids(expected), body
            statuses.append(status)
        events = await gw.events(len(BODIES))
    assert statuses == [200, 200, 200, 200, 400, 404, 200, 200, 200]
    assert not any(event.extras_shown for event in events)
    assert sum(bool(event.added_fields) for event in events) == len(BODIES) - 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("stream", [b"false", b"true"])
async def test_steps_carry_the_tokens_of_prompt_and_answer(
    tmp_path: Path, kafka: str, engine: str, live_engine: LiveEngine, stream: bytes
) -> None:
    body = b'{"model":"main","temperature":0,"stream":' + stream + b"," + MESSAGES + b"}"
    private = body.replace(b"which version?", b"I am jane.roe@example.com")
    async with running(tmp_path, kafka, RunningEngine(engine), asks_tokens=True) as gw:
        headers = {"content-type": "application/json"}
        for asked in (body, private):
            async with gw.post(CHAT, asked, **headers) as answer:
                assert answer.status == 200
                await answer.read()
        events = await gw.events(2)
    clean, redacted = await steps_of(tmp_path, events)
    result = clean.action_and_result
    letter = letter_of(live_engine.answers).encode()
    assert bytes(result.token_ids[:1]) == letter  # a token of this model is a byte
    assert letter.decode() in result.output[0].body
    prompt = bytes(result.prompt_token_ids)
    assert b"which version?" in prompt
    assert len(result.logprobs) == len(result.token_ids) == 3
    assert all(number <= 0 for number in result.logprobs)
    for step in (clean, redacted):
        model = step.model_version
        assert (model.policy, model.policy_version, model.weights_root) == (POLICY, 1, ROOT)
    assert gaps.TOKENS_WITHHELD in redacted.gaps
    assert redacted.action_and_result.token_ids == redacted.action_and_result.logprobs == ()


async def steps_of(folder: Path, events: list[Exchange]) -> tuple[Step, Step]:
    """The steps of a clean and a private call, in that order."""
    redaction = Redaction(folder / "redaction")
    await redaction.send(*events)
    first, second = redaction.events(topics.STEPS)
    return (second, first) if first.governance.redactions else (first, second)
