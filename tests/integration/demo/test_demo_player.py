"""Player and upstream over real sockets with the real `openai` client, nothing in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import AsyncOpenAI, NotFoundError

from infra.demo.conversations import Conversation, generate, load_trajectories
from infra.demo.player import Player, Target, request_of
from infra.demo.recorded import canonical
from infra.demo.upstream import Upstream
from schemas.errors import TransientError


@asynccontextmanager
async def served(
    talks: list[Conversation], feedback: list[dict[str, Any]] | None = None
) -> AsyncIterator[str]:
    async def take_feedback(request: web.Request) -> web.Response:
        assert feedback is not None
        feedback.append(await request.json() | {"key": request.headers["x-headrace-key"]})
        return web.json_response({}, status=202)

    app = Upstream(talks).app()
    app.router.add_post("/v1/feedback", take_feedback)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_streaming_and_whole_answers_are_the_same_to_the_real_client() -> None:
    for talk in generate(2, 6):
        # One at a time: equal histories of several would take turns at their replies.
        async with (
            served([talk]) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client,
        ):
            for position in talk.turns:
                await assert_same_in_both_forms(client, talk, position)


async def assert_same_in_both_forms(client: AsyncOpenAI, talk: Conversation, position: int) -> None:
    request = request_of(talk, position)
    whole = await client.chat.completions.create(**request)
    async with client.chat.completions.stream(**request) as stream:
        streamed = await stream.get_final_completion()
    for completion in (whole, streamed):
        message = completion.choices[0].message.model_dump(
            exclude={"parsed", "refusal"}, exclude_none=True
        )
        assert canonical(message) == canonical(talk.messages[position])
    assert streamed.id != whole.id
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason


async def test_an_unknown_history_is_a_404_that_the_client_raises() -> None:
    async with (
        served(generate(2, 2)) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client,
    ):
        with pytest.raises(NotFoundError, match="no reply was recorded"):
            await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hello"}]
            )


async def play(talks: list[Conversation], concurrency: int) -> tuple[Player, list[dict[str, Any]]]:
    feedback: list[dict[str, Any]] = []
    async with served(talks, feedback) as url:
        target = Target(url, "agent-key", "feedback-key")
        player = Player(target, talks, seed=1, concurrency=concurrency)
        await player.play()
        await player.send_late_rewards()
    return player, feedback


def assert_complete(player: Player, talks: list[Conversation]) -> None:
    positions = defaultdict(list)
    received = {}
    for call in player.ledger.calls:
        positions[call.conversation_id].append(call.position)
        received[call.conversation_id, call.position] = canonical(call.received)
    assert positions == {talk.conversation_id: list(talk.turns) for talk in talks}
    for talk in talks:
        for position in talk.turns:
            assert received[talk.conversation_id, position] == canonical(talk.messages[position])
    assert len({call.response_id for call in player.ledger.calls}) == len(player.ledger.calls)


async def test_the_ledger_is_complete_and_half_of_the_calls_stream() -> None:
    talks = generate(1)
    player, feedback = await play(talks, concurrency=20)
    assert_complete(player, talks)
    num_streamed = sum(call.streamed for call in player.ledger.calls)
    assert 0.4 < num_streamed / len(player.ledger.calls) < 0.6
    assert player.ledger.num_rewards == len(talks)
    assert {body["key"] for body in feedback} == {"feedback-key"}
    bodies = [post.body() for post in player.ledger.rewards]
    assert [body["feedback_id"] for body in feedback] == [body["feedback_id"] for body in bodies]


async def test_conversations_swapped_on_the_way_are_each_played_once() -> None:
    # Six times the same conversations: every history has six holders that race for the replies.
    once = generate(4, 4)
    talks = [
        Conversation(f"{turn}-{talk.conversation_id}", *list(vars(talk).values())[1:])
        for turn in range(6)
        for talk in once
    ]
    player, _ = await play(talks, concurrency=24)
    assert_complete(player, talks)


async def test_early_rewards_name_a_step_that_does_not_exist_yet() -> None:
    talks = generate(1, 20)
    seen: list[tuple[str, str]] = []

    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path == "/v1/feedback":
            seen.append(("reward", (await request.json())["target"].get("step_id", "")))
        elif "Idempotency-Key" in request.headers:
            seen.append(("call", request.headers["Idempotency-Key"]))
        return await handler(request)

    async def accept(_request: web.Request) -> web.Response:
        return web.Response(status=202)

    app = Upstream(talks).app()
    app.middlewares.append(web.middleware(note))
    app.router.add_post("/v1/feedback", accept)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    player = Player(Target(url, "a", "f"), talks, seed=1, concurrency=3)
    await player.play()
    await runner.cleanup()
    calls = [step_id for what, step_id in seen if what == "call"]
    assert len(calls) == 2
    for step_id in calls:
        assert seen.index(("reward", step_id)) < seen.index(("call", step_id))


async def test_all_recorded_airline_conversations_play(shared_data: Path) -> None:
    talks = load_trajectories(shared_data / "trajectories" / "tau-bench-airline-gpt-4o.json")[:40]
    player, _ = await play(talks, concurrency=20)
    assert_complete(player, talks)


async def test_a_failed_call_ends_the_play_with_a_sentence() -> None:
    async with served(generate(1, 2)) as url:
        player = Player(Target(url, "a", "f"), generate(2, 4), seed=1, concurrency=2)
        with pytest.raises(TransientError, match="NotFoundError, status 404"):
            await player.play()
