"""The agent of the demo: the real `openai` client, pointed at the gateway by its base URL.

It sends what an ordinary agent sends: messages, tools, and its key in `x-headrace-key`. No
session or trajectory header. Rewards go to `POST /v1/feedback` with a key of its own, since an
agent's key may not rate. A reward can only reach headrace before its step where the client chose
the step's id: for those calls it sends an `Idempotency-Key`, which the gateway takes as step id.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from infra.demo.casting import Casting
from infra.demo.conversations import Conversation
from infra.demo.draft import Message
from infra.demo.ledger import Call, Ledger, RewardPlan, RewardPost, plan_rewards, reward_posts
from infra.demo.recorded import assistant_message
from infra.demo.upstream import MODEL
from schemas.errors import HeadraceError, TransientError

_CALL_TIMEOUT_SECONDS = 120.0
_FEEDBACK_ATTEMPTS = 8
STEP_HEADER = "x-headrace-step-id"


@dataclass(frozen=True)
class Target:
    """Where the player sends to. `gateway_url` ends before `/v1`."""

    gateway_url: str
    agent_key: str
    feedback_key: str


@dataclass(frozen=True)
class Answer:
    """What one call gave back."""

    response_id: str
    step_id: str | None
    message: Message
    finished_at: float


class Player:
    """Plays conversations against one target and keeps the ledger."""

    def __init__(
        self,
        target: Target,
        conversations: Sequence[Conversation],
        *,
        seed: int,
        concurrency: int,
        on_call: Callable[[Call], None] = lambda _call: None,
        some_rewards_early: bool = True,
    ) -> None:
        self._target = target
        self._conversations = conversations
        self._casting = Casting(conversations)
        self._rng = random.Random(seed)
        self._plan = self._plan_rewards(early=some_rewards_early)
        self._limit = asyncio.Semaphore(concurrency)
        self._on_call = on_call
        planted = {item: None for talk in conversations for item in talk.planted}
        self.ledger = Ledger(planted=tuple(planted))

    def _plan_rewards(self, *, early: bool) -> RewardPlan:
        alone = (
            []
            if not early
            else [
                item.conversation_id
                for index, item in enumerate(self._conversations)
                if self._casting.ends_alone(index)
            ]
        )
        return plan_rewards(self._conversations, alone, self._rng)

    async def play(self) -> None:
        """Make every call of every conversation; rewards of the early ones go out on the way.

        Raises `TransientError` for a call that fails: one ends the demo, since the ledger and
        the store could not be compared any more.
        """
        try:
            await self._play_all()
        except ExceptionGroup as group:
            raise _explained(group) from group

    async def _play_all(self) -> None:
        async with (
            _feedback_session() as http,
            AsyncOpenAI(
                base_url=f"{self._target.gateway_url}/v1",
                api_key="the-agents-own-provider-key",
                default_headers={"x-headrace-key": self._target.agent_key},
                timeout=_CALL_TIMEOUT_SECONDS,
                max_retries=0,  # a retried call would be a second call in the ledger's eyes
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for player in range(len(self._conversations)):
                tasks.create_task(self._play_one(client, http, player))

    async def _play_one(
        self, client: AsyncOpenAI, http: aiohttp.ClientSession, player: int
    ) -> None:
        async with self._limit:
            calls: list[Call] = []
            turns = self._casting.playing(player).turns
            while len(calls) < len(turns):
                position = turns[len(calls)]
                calls.append(await self._call(client, http, player, position))
                turns = self._casting.playing(player).turns
            # A conversation may have changed hands on the way; only now is it known which it was.
            played = self._casting.playing(player).conversation_id
            self.ledger.calls.extend(_renamed(call, played) for call in calls)

    async def _call(
        self, client: AsyncOpenAI, http: aiohttp.ClientSession, player: int, position: int
    ) -> Call:
        talk = self._casting.playing(player)
        is_early = position == talk.turns[-1] and talk.conversation_id in self._plan.early
        chosen_id = str(uuid.uuid4()) if is_early else None
        if chosen_id is not None:
            await self._reward(http, talk, {"step_id": chosen_id})
        streamed = (player + position) % 2 == 0
        ask = _ask_streaming if streamed else _ask_whole
        answer = await ask(client, request_of(talk, position, chosen_id))
        followed = self._casting.follow(player, position, answer.message)
        call = Call(
            conversation_id=followed.conversation_id,
            position=position,
            streamed=streamed,
            response_id=answer.response_id,
            step_id=answer.step_id,
            sent=talk.messages[:position],
            received=answer.message,
            finished_at=answer.finished_at,
        )
        self._on_call(call)
        return call

    async def send_late_rewards(self, on_sent: Callable[[], None] = lambda: None) -> None:
        """Send the rewards of all other conversations, in random order.

        Half name the response id, half the step id that the gateway's header gave.
        """
        last = self.ledger.last_calls()
        waiting = [talk for talk in self._conversations if self._is_late(talk)]
        posts = []
        for index, talk in enumerate(waiting):
            call = last[talk.conversation_id]
            by_step = index % 2 == 1 and call.step_id is not None
            target = {"step_id": call.step_id or ""} if by_step else {
                "response_id": call.response_id
            }  # fmt: skip
            posts += reward_posts(talk, target, self._plan, str(uuid.uuid4()))
        self._rng.shuffle(posts)
        async with _feedback_session() as http:
            for post in posts:
                await self._post(http, post.body())
                self.ledger.rewards.append(post)
                on_sent()

    @property
    def num_late_posts(self) -> int:
        """Posts that `send_late_rewards` makes."""
        late = sum(self._is_late(talk) for talk in self._conversations)
        return late + len(self._plan.twice) + len(self._plan.revised)

    def _is_late(self, talk: Conversation) -> bool:
        return talk.conversation_id not in self._plan.early

    async def send_again(self, posts: Sequence[RewardPost]) -> None:
        """Send rewards that were sent before once more, unchanged."""
        async with _feedback_session() as http:
            for post in posts:
                await self._post(http, post.body())

    async def _reward(
        self, http: aiohttp.ClientSession, talk: Conversation, target: dict[str, str]
    ) -> None:
        for post in reward_posts(talk, target, self._plan, str(uuid.uuid4())):
            await self._post(http, post.body())
            self.ledger.rewards.append(post)

    async def _post(self, http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
        """Raises `TransientError` when the gateway does not accept it within the attempts."""
        headers = {"x-headrace-key": self._target.feedback_key}
        for attempt in range(1, _FEEDBACK_ATTEMPTS + 1):
            url = f"{self._target.gateway_url}/v1/feedback"
            async with http.post(url, json=body, headers=headers) as answer:
                status = answer.status
            if status == 202:
                return
            if status not in (429, 503):
                break
            await asyncio.sleep(0.2 * attempt)
        raise TransientError(
            f"the gateway answered {status} to a reward. `headrace logs gateway` shows why."
        )


def _explained(group: ExceptionGroup[Exception]) -> Exception:
    """What a person should read of several failed calls; a bug stays what it is."""
    first = group.exceptions[0]
    if isinstance(first, HeadraceError):
        return first
    if isinstance(first, OpenAIError):
        status = getattr(first, "status_code", None)
        return TransientError(
            f"A call failed ({type(first).__name__}{f', status {status}' if status else ''}). "
            "`headrace logs gateway` with the --data-dir of the demo shows why."
        )
    return group


def _feedback_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_TIMEOUT_SECONDS))


def _renamed(call: Call, conversation_id: str) -> Call:
    return Call(**(vars(call) | {"conversation_id": conversation_id}))


def request_of(talk: Conversation, position: int, step_id: str | None = None) -> dict[str, Any]:
    """Arguments of `chat.completions.create` for the call at `position`."""
    request: dict[str, Any] = {"model": MODEL, "messages": list(talk.messages[:position])}
    if talk.tools:
        request["tools"] = list(talk.tools)
    if step_id is not None:
        request["extra_headers"] = {"Idempotency-Key": step_id}
    return request


async def _ask_whole(client: AsyncOpenAI, request: dict[str, Any]) -> Answer:
    raw = await client.chat.completions.with_raw_response.create(**request)
    finished_at = time.time()
    completion = raw.parse()
    assert isinstance(completion, ChatCompletion)
    message = completion.choices[0].message
    calls = [
        _call_dict(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or []
        if call.type == "function"
    ]
    return Answer(
        completion.id,
        raw.headers.get(STEP_HEADER),
        assistant_message(message.content, calls),
        finished_at,
    )


async def _ask_streaming(client: AsyncOpenAI, request: dict[str, Any]) -> Answer:
    # Every other stream asks for the usage chunk: gateways must show it to those, only those.
    if len(request["messages"]) % 4 < 2:
        request = request | {"stream_options": {"include_usage": True}}
    raw = await client.chat.completions.with_raw_response.create(**request, stream=True)
    chunks: list[ChatCompletionChunk] = [chunk async for chunk in raw.parse()]
    finished_at = time.time()
    return Answer(chunks[0].id, raw.headers.get(STEP_HEADER), assembled(chunks), finished_at)


def _call_dict(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def assembled(chunks: Sequence[ChatCompletionChunk]) -> Message:
    """The message that the chunks of one choice add up to."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        text.append(choice.delta.content or "")
        for delta in choice.delta.tool_calls or []:
            call = calls.setdefault(delta.index, _call_dict("", "", ""))
            call["id"] += delta.id or ""
            if delta.function is not None:
                call["function"]["name"] += delta.function.name or ""
                call["function"]["arguments"] += delta.function.arguments or ""
    content = "".join(text)
    ordered = [calls[index] for index in sorted(calls)]
    return assistant_message(content or (None if ordered else ""), ordered)
