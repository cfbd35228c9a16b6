"""vLLM behind the gateway: the client sees what vLLM alone would say; steps carry the tokens."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from inference.worker.client import EngineClient
from inference.worker.process import EngineCommand, EngineProcess
from inference.worker.site import make_site
from infra.local.ports import free_ports
from schemas import topics
from schemas.atdp.types import Exchange, Step
from streams.redaction import gaps
from tests.integration.gateway.harness import ScriptedUpstream, running
from tests.tiny_model import first_version, letter_of, write_model
from tests.unit.redaction_processor.parts import Redaction

pytestmark = pytest.mark.integration

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = b'"messages":[{"role":"user","content":"which version?"}],"max_tokens":3,"seed":1'
START_SECONDS = 240.0
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


@pytest.fixture(scope="module")
def engine(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("engine")
    (port,) = free_ports(1)
    command = EngineCommand(
        python=engine_python, model=write_model(folder / "model", first_version()),
        served_model_name="tiny", host="127.0.0.1", port=port, site=make_site(folder / "site"),
        secret="s" * 32, kv_cache_gib=1, num_threads=1, scratch=folder / "scratch",
        engine_args=("--max-model-len", "512"),
    )  # fmt: skip
    process = EngineProcess(command, folder / "engine.log")
    try:
        client = EngineClient(port, "s" * 32)
        _wait_for(client, process, folder / "engine.log")
        client.label({"policy": "tiny", "version": 1, "root": ROOT, "refusal": None})
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def _wait_for(client: EngineClient, process: EngineProcess, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not client.is_healthy():
        assert process.exit_code() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, f"vLLM is not ready after {START_SECONDS:.0f} s"


def without_ids(answer: bytes) -> bytes:
    return re.sub(rb'"id":"[^"]*"|"created":\d+', b"", answer)


async def direct(url: str, path: str, body: bytes) -> tuple[int, bytes]:
    headers = {"content-type": "application/json"}
    async with ClientSession(headers=headers) as http, http.post(url + path, data=body) as answer:
        return answer.status, await answer.read()


BODIES = [
    (CHAT, b'{"model":"tiny",' + MESSAGES + b"}"),
    (CHAT, b'{"model":"tiny","stream":true,"stream_options":{"include_usage":true},'
     + MESSAGES + b"}"),
    (CHAT, b'{"model":"tiny","logprobs":false,"n":2,"temperature":0.7,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"tiny","logprobs":true,"top_logprobs":1,"stream":true,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"tiny","top_logprobs":2,' + MESSAGES + b"}"),
    (CHAT, b'{"model":"unknown",' + MESSAGES + b"}"),
    (COMPLETIONS, b'{"model":"tiny","prompt":"hi>","max_tokens":3,"temperature":0}'),
    (COMPLETIONS, b'{"model":"tiny","prompt":"hi>","max_tokens":3,"temperature":0,"stream":true}'),
    (COMPLETIONS, b'{"model":"tiny","prompt":"hi>","max_tokens":3,"temperature":0,"echo":true}'),
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
    tmp_path: Path, kafka: str, engine: str, stream: bytes
) -> None:
    body = b'{"model":"tiny","temperature":0,"stream":' + stream + b"," + MESSAGES + b"}"
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
    letter = letter_of(1).encode()
    assert bytes(result.token_ids[:1]) == letter  # a token of this model is a byte
    assert letter.decode() in result.output[0].body
    prompt = bytes(result.prompt_token_ids)
    assert b"which version?" in prompt
    assert len(result.logprobs) == len(result.token_ids) == 3
    assert all(number <= 0 for number in result.logprobs)
    for step in (clean, redacted):
        model = step.model_version
        assert (model.policy, model.policy_version, model.weights_root) == ("tiny", 1, ROOT)
    assert gaps.TOKENS_WITHHELD in redacted.gaps
    assert redacted.action_and_result.token_ids == redacted.action_and_result.logprobs == ()


async def steps_of(folder: Path, events: list[Exchange]) -> tuple[Step, Step]:
    """The steps of a clean and a private call, in that order."""
    redaction = Redaction(folder / "redaction")
    await redaction.send(*events)
    first, second = redaction.events(topics.STEPS)
    return (second, first) if first.governance.redactions else (first, second)
