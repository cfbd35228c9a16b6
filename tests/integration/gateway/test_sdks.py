"""Official SDKs and agent libraries work through the gateway and leave one trajectory each.

The upstream is scripted: it fails once, then calls two tools at a time, then answers.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from multidict import CIMultiDict

from inference.capture import route
from inference.capture.identity import identify
from schemas import topics
from schemas.atdp.types import Exchange, Step
from schemas.bus import Received
from schemas.clock import ManualClock
from schemas.codec import encode
from tests.integration.gateway.harness import Connection, Running, ScriptedUpstream, running
from tests.model_answers import answer
from tests.unit.redaction_processor.test_lineage import ROOT, make_lane
from tests.unit.runtime_harness import events_of, memory_bus

pytestmark = pytest.mark.integration
CITIES = ("Oslo", "Lima")
FINAL = "Oslo is cold and Lima is mild."
QUESTION = "How is the weather in Oslo and in Lima?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"retry-after-ms: 1\r\nContent-Length: 30\r\n\r\n"
    b'{"error": {"message": "busy"}}'
)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"fine in {city}"


class Model:
    """An upstream for one conversation in any dialect."""

    def __init__(self) -> None:
        self.num_calls = 0

    async def script(self, connection: Connection) -> None:
        """Fail, then call tools, then answer."""
        self.num_calls += 1
        if self.num_calls == 1:
            await connection.send(BUSY)
            return
        path = connection.head.split(b" ", 2)[1].decode().partition("?")[0]
        request = json.loads(connection.body)
        has_results = b"fine in Lima" in connection.body
        said = _text(path) if has_results else _calls(path)
        kind, body = answer(path, request, said, f"sdk-{self.num_calls}")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        await connection.send(head.encode() + body)


def _text(path: str) -> Any:
    if "responses" in path:
        part = {"type": "output_text", "text": FINAL, "annotations": []}
        return [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                 "content": [part]}]  # fmt: skip
    return {"role": "assistant", "content": FINAL}


def _calls(path: str) -> Any:
    given = [(f"call_{city}", json.dumps({"city": city})) for city in CITIES]
    if "responses" in path:
        return [
            {"id": f"fc_{name}", "type": "function_call", "call_id": name, "name": "weather",
             "arguments": arguments, "status": "completed"}
            for name, arguments in given
        ]  # fmt: skip
    if "messages" in path:
        return {"content": [
            {"type": "tool_use", "id": name, "name": "weather", "input": json.loads(arguments)}
            for name, arguments in given
        ]}  # fmt: skip
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": name, "type": "function", "function": {"name": "weather", "arguments": arguments}}
        for name, arguments in given
    ]}  # fmt: skip


#: Enters a client, so that its connections are closed with the test.
Open = Callable[[Any], Awaitable[Any]]
Run = Callable[[str, Open], Awaitable[str]]


async def openai_chat(base: str, open_: Open) -> str:
    """Two turns, not streamed."""
    client = await open_(openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-own"))
    function: Any = {"name": "weather", "parameters": PARAMETERS}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        made = await client.chat.completions.create(
            model="m", messages=messages, tools=[{"type": "function", "function": function}]
        )
        message = made.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": weather(city)})


async def openai_chat_stream(base: str, open_: Open) -> str:
    """The same, streamed and put together by the SDK."""
    client = await open_(openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-own"))
    function: Any = {"name": "weather", "parameters": PARAMETERS}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        async with client.chat.completions.stream(
            model="m", messages=messages, tools=[{"type": "function", "function": function}]
        ) as stream:
            message = (await stream.get_final_completion()).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        calls = [
            {"id": c.id, "type": "function",
             "function": {"name": c.function.name, "arguments": c.function.arguments}}
            for c in message.tool_calls
        ]  # fmt: skip
        messages.append({"role": "assistant", "tool_calls": calls})
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": weather(city)})


async def openai_responses(base: str, open_: Open) -> str:
    """Responses, streamed, with the whole history sent each time."""
    client = await open_(openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-own"))
    tools: Any = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": None}]
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        async with client.responses.stream(model="m", input=items, tools=tools) as stream:
            made = await stream.get_final_response()
        calls = [item for item in made.output if item.type == "function_call"]
        if not calls:
            return made.output_text
        items += [item.model_dump(exclude={"parsed_arguments"}) for item in made.output]
        for call in calls:
            result = weather(json.loads(call.arguments)["city"])
            output = {"type": "function_call_output", "call_id": call.call_id, "output": result}
            items.append(output)


async def anthropic_messages(base: str, open_: Open) -> str:
    """Messages, streamed."""
    client = await open_(anthropic.AsyncAnthropic(base_url=base, api_key="sk-ant-own"))
    tools: Any = [{"name": "weather", "input_schema": PARAMETERS}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        async with client.messages.stream(
            model="m", max_tokens=99, system="Be brief.", messages=messages, tools=tools
        ) as stream:
            made = await stream.get_final_message()
        calls = [block for block in made.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in made.content if block.type == "text")
        messages.append({"role": "assistant", "content": made.content})
        results = [
            {"type": "tool_result", "tool_use_id": call.id,
             "content": weather(str(call.input["city"]))}  # type: ignore[index]
            for call in calls
        ]  # fmt: skip
        messages.append({"role": "user", "content": results})


async def pydantic_ai_openai(base: str, open_: Open) -> str:
    """An agent of pydantic-ai over Chat Completions."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = await open_(openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-own"))
    provider = OpenAIProvider(openai_client=client)
    agent = pydantic_ai.Agent(
        OpenAIChatModel("m", provider=provider), tools=[weather], instructions="Be brief."
    )
    return str((await agent.run(QUESTION)).output)


async def pydantic_ai_anthropic(base: str, open_: Open) -> str:
    """An agent of pydantic-ai over Messages."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = await open_(anthropic.AsyncAnthropic(base_url=base, api_key="sk-ant-own"))
    provider = AnthropicProvider(anthropic_client=client)
    agent = pydantic_ai.Agent(AnthropicModel("m", provider=provider), tools=[weather])
    return str((await agent.run(QUESTION)).output)


async def langchain_chat(base: str, open_: Open) -> str:
    """A chat model of LangChain with bound tools."""
    langchain = pytest.importorskip("langchain_openai")
    from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool

    model = langchain.ChatOpenAI(model="m", base_url=f"{base}/v1", api_key="sk-own")
    await open_(model.root_async_client)
    bound = model.bind_tools([tool(weather)])
    messages: list[BaseMessage] = [HumanMessage(QUESTION)]
    while True:
        made = await bound.ainvoke(messages)
        messages.append(made)
        if not made.tool_calls:
            return str(made.content)
        messages += [
            ToolMessage(weather(call["args"]["city"]), tool_call_id=call["id"])
            for call in made.tool_calls
        ]


RUNS: tuple[Run, ...] = (
    openai_chat, openai_chat_stream, openai_responses, anthropic_messages, pydantic_ai_openai,
    pydantic_ai_anthropic, langchain_chat,
)  # fmt: skip


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
async def test_a_client_uses_tools_and_leaves_one_trajectory(run: Run, tmp_path: Path) -> None:
    model = Model()
    upstream = ScriptedUpstream(model.script)
    async with running(tmp_path, memory_bus(4), upstream) as gateway:
        async with AsyncExitStack() as stack:
            base = f"{gateway.url}/k/{gateway.key}"
            assert await run(base, stack.enter_async_context) == FINAL
        events = await gateway.events(3)
    steps = await placed(events, tmp_path / "lane")
    assert model.num_calls == 3, "one failure, asked again by the SDK, and two turns"
    failed, asked, done = steps
    assert failed.lineage.attempt_of == asked.step_id
    assert [asked.lineage.parent_step_id, done.lineage.parent_step_id] == [None, asked.step_id]
    assert len({step.trajectory_id for step in steps}) == 1
    assert FINAL in done.action_and_result.output[0].body
    assert all(f"fine in {city}" in str(done.observation.new_messages) for city in CITIES)
    assert asked.harness_state.tools == ("weather",)


async def placed(events: list[Any], folder: Path) -> list[Step]:
    """The captured calls as redaction makes steps of them, in their order."""
    captured = sorted((e for e in events if isinstance(e, Exchange)), key=lambda e: e.started_at)
    bus, clock = memory_bus(), ManualClock(captured[0].started_at)
    folder.mkdir()
    lane = make_lane(bus, folder, clock=clock)
    for offset, exchange in enumerate(captured):
        names = CIMultiDict((h.name, h.value) for h in exchange.request_headers)
        called = identify("acme", ROOT, route.split(exchange.path), names, exchange.request_body)
        record = Received(topics.RAW_EVENTS, 0, offset, called.kafka_key, encode(exchange))
        await lane.process([record])
    clock.advance(timedelta(seconds=60))
    await lane.process([])
    steps = {step.step_id: step for step in events_of(bus, topics.STEPS)}
    return [steps[exchange.step_id] for exchange in captured]


async def test_errors_of_the_gateway_are_the_sdks_own(tmp_path: Path) -> None:
    async with running(tmp_path, memory_bus(4), ScriptedUpstream(Model().script)) as gateway:
        await _refused(gateway)


async def _refused(gateway: Running) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/k/nobody/v1", api_key="sk-own"
    ) as theirs:
        with pytest.raises(openai.AuthenticationError, match="unknown or revoked"):
            await theirs.models.list()
    async with anthropic.AsyncAnthropic(
        base_url=f"{gateway.url}/k/nobody", api_key="sk-own"
    ) as other:
        with pytest.raises(anthropic.AuthenticationError, match="unknown or revoked"):
            await other.messages.create(model="m", max_tokens=1, messages=[])
