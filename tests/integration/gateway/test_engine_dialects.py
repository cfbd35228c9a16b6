"""The official SDKs speak Messages and Responses to our own model: vLLM serves both itself, so the
gateway translates nothing."""

from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from schemas.atdp import Exchange
from schemas.atdp.types import Outcome
from tests.integration.gateway.harness import Running, running
from tests.integration.gateway.test_real_engine import POLICY, ROOT, RunningEngine
from tests.live_engine import LiveEngine
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration

MODEL = "main"
ASK: Any = [{"role": "user", "content": "which version?"}]


async def by_anthropic(gw: Running) -> None:
    """Messages, whole and streamed, a count of tokens, and an error in the SDK's own form."""
    async with anthropic.AsyncAnthropic(
        base_url=f"{gw.url}/k/{gw.key}", api_key="none", max_retries=0
    ) as client:
        whole = await client.messages.create(model=MODEL, max_tokens=4, messages=ASK)
        assert whole.stop_reason == "max_tokens"
        assert whole.usage.output_tokens == 4
        async with client.messages.stream(model=MODEL, max_tokens=4, messages=ASK) as stream:
            streamed = await stream.get_final_message()
        assert streamed.usage.output_tokens == 4
        counted = await client.messages.count_tokens(model=MODEL, messages=ASK)
        assert counted.input_tokens == whole.usage.input_tokens
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(model="unknown", max_tokens=4, messages=ASK)


async def by_openai(gw: Running) -> None:
    """Responses, whole and streamed."""
    async with openai.AsyncOpenAI(
        base_url=f"{gw.url}/k/{gw.key}/v1", api_key="none", max_retries=0
    ) as client:
        whole = await client.responses.create(
            model=MODEL, input="which version?", max_output_tokens=4
        )
        assert whole.status == "incomplete"
        assert whole.usage is not None
        assert whole.usage.output_tokens == 4
        async with client.responses.stream(
            model=MODEL, input="which version?", max_output_tokens=4
        ) as stream:
            kinds = [event.type async for event in stream]
        assert kinds[0] == "response.created"
        assert kinds[-1] in ("response.incomplete", "response.completed")


@pytest.mark.timeout(400)
async def test_messages_and_responses_are_the_engines_own(
    tmp_path: Path, live_engine: LiveEngine
) -> None:
    live_engine.client.label({"policy": POLICY, "version": 1, "root": ROOT, "refusal": None})
    upstream = RunningEngine(live_engine.url)
    async with running(tmp_path, memory_bus(4), upstream, asks_tokens=True) as gw:
        await by_anthropic(gw)
        await by_openai(gw)
        events = [e for e in await gw.events(6) if isinstance(e, Exchange)]
    assert {e.outcome for e in events} == {Outcome.COMPLETE}
    assert sorted((e.path, e.status) for e in events) == [
        ("/v1/messages", 200), ("/v1/messages", 200), ("/v1/messages", 404),
        ("/v1/messages/count_tokens", 200), ("/v1/responses", 200), ("/v1/responses", 200),
    ]  # fmt: skip
