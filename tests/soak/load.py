"""The client of the soak: plays talks, tries again what fails, and keeps the ledger.

It goes on while the gateway is dead. A call that broke off is made again as a new call, as an
agent would; half of the talks send an `Idempotency-Key`, and the same one with the second try.
The ledger holds every attempt with what the client saw of it, and every reward.
"""

import asyncio
import itertools
import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from infra.demo.conversations import Conversation
from infra.demo.player import STEP_HEADER, Target
from tests.soak.model import NAME
from tests.soak.talks import Talk

_CALL_SECONDS = 60.0
_GIVE_UP_SECONDS = 300.0
#: Nobody listens: such an attempt leaves nothing behind.
REFUSED = aiohttp.ClientConnectorError.__name__
_DONE = b"data: [DONE]\n\n"
_RESPONSE_ID = re.compile(rb'"id":\s*"(chatcmpl-[0-9a-f]+)"')


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a call. `complete`: the client got all of the answer."""

    talk: int
    position: int
    step_id: str | None
    response_id: str | None
    complete: bool
    num_bytes: int
    why: str
    ended_at: float


@dataclass(frozen=True, slots=True)
class RewardSent:
    """A reward that was accepted. `key` is the step id that the client chose, if it did."""

    talk: int
    feedback_id: str
    value: float
    revision: int
    key: str | None


@dataclass
class Ledger:
    """What the client knows."""

    attempts: list[Attempt] = field(default_factory=list)
    rewards: list[RewardSent] = field(default_factory=list)

    @property
    def completed(self) -> list[Attempt]:
        """Calls whose answer the client got whole."""
        return [attempt for attempt in self.attempts if attempt.complete]

    @property
    def failed(self) -> list[Attempt]:
        """Attempts that the client saw fail."""
        return [attempt for attempt in self.attempts if not attempt.complete]

    @property
    def broken(self) -> list[Attempt]:
        """Those among the failed that reached the gateway, as far as the client can tell."""
        return [attempt for attempt in self.failed if attempt.why != REFUSED]


class GaveUpError(Exception):
    """The gateway stayed away for longer than any recovery takes."""


class Load:
    """Plays talks against one target, `concurrency` at a time."""

    def __init__(
        self,
        target: Target,
        conversations: Sequence[Conversation],
        *,
        seed: int,
        concurrency: int,
        pause_seconds: float,
    ) -> None:
        """Between the calls of a conversation `pause_seconds` pass, as with a real agent."""
        self._target = target
        self._conversations = conversations
        self._pause_seconds = pause_seconds
        self._rng = random.Random(seed)
        self._limit = asyncio.Semaphore(concurrency)
        self.gateway_url = target.gateway_url
        self.ledger = Ledger()
        self.num_open = 0
        self.num_steps = 0
        self.is_done = False
        #: Cleared while the pipeline is too far behind.
        self.may_call = asyncio.Event()
        self.may_call.set()

    async def play(self, is_enough: Callable[[], bool]) -> None:
        """Begin talk after talk until it is enough, and play all of them to their rewards.

        GaveUpError when the gateway does not come back.
        """
        connector = aiohttp.TCPConnector(limit=0)
        numbers = itertools.count()
        async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as tasks:
            while not is_enough():
                await self._limit.acquire()
                number = next(numbers)
                talk = Talk(number, self._conversations[number % len(self._conversations)])
                tasks.create_task(self._play(http, talk))
        self.is_done = True

    async def _play(self, http: aiohttp.ClientSession, talk: Talk) -> None:
        try:
            messages = talk.encoded()
            keyed = talk.number % 2 == 0
            key: str | None = None
            early = keyed and self._rng.random() < 0.1
            feedback_id = str(uuid.uuid4())
            last: Attempt | None = None
            for turn, position in enumerate(talk.turns):
                key = str(uuid.uuid4()) if keyed else None
                if early and position == talk.turns[-1]:
                    await self._reward(http, talk, feedback_id, {"step_id": key}, key)
                body = request_body(messages[:position], stream=(talk.number + turn) % 2 == 0)
                last = await self._call(http, talk.number, position, body, key)
                await asyncio.sleep(self._pause_seconds)
            assert last is not None
            if not early:
                await self._reward_late(http, talk, feedback_id, last, key)
        finally:
            self._limit.release()

    async def _call(
        self, http: aiohttp.ClientSession, talk: int, position: int, body: bytes, key: str | None
    ) -> Attempt:
        gives_up_at = time.monotonic() + _GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            paused_at = time.monotonic()
            await self.may_call.wait()
            gives_up_at += time.monotonic() - paused_at
            self.num_open += 1
            try:
                attempt = await self._attempt(http, talk, position, body, key)
            finally:
                self.num_open -= 1
            self.ledger.attempts.append(attempt)
            if attempt.complete:
                self.num_steps += 1
                return attempt
            await asyncio.sleep(self._rng.uniform(0.1, 0.5))
        raise GaveUpError(attempt.why)

    async def _attempt(
        self, http: aiohttp.ClientSession, talk: int, position: int, body: bytes, key: str | None
    ) -> Attempt:
        headers = {"x-headrace-key": self._target.agent_key, "content-type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        data, status, step_id, why = bytearray(), 0, None, ""
        streamed = b'"stream":true' in body[:60]
        try:
            async with (
                asyncio.timeout(_CALL_SECONDS),
                http.post(
                    f"{self._target.gateway_url}/v1/chat/completions", data=body, headers=headers
                ) as answer,
            ):
                status, step_id = answer.status, answer.headers.get(STEP_HEADER)
                async for chunk in answer.content.iter_any():
                    data += chunk
            why = "" if status == 200 else f"status {status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = type(error).__name__
        # A client of the API stops reading at this line, whatever becomes of the connection.
        complete = status == 200 and (data.endswith(_DONE) if streamed else not why)
        found = _RESPONSE_ID.search(data)
        return Attempt(
            talk, position, step_id, found[1].decode() if found else None,
            complete, len(data), why, time.time(),
        )  # fmt: skip

    async def _reward_late(
        self,
        http: aiohttp.ClientSession,
        talk: Talk,
        feedback_id: str,
        last: Attempt,
        key: str | None,
    ) -> None:
        """Half by response id, half by the step id that the answer's header gave."""
        by_step = talk.number % 4 < 2
        target = {"step_id": last.step_id} if by_step else {"response_id": last.response_id}
        await self._reward(http, talk, feedback_id, target, key if by_step else None)

    async def _reward(
        self,
        http: aiohttp.ClientSession,
        talk: Talk,
        feedback_id: str,
        target: dict[str, Any],
        key: str | None,
    ) -> None:
        """One post; 5 % come twice and 5 % are corrected."""
        value, kind = talk.conversation.reward, self._rng.random()
        posts = [(value, 1)]
        if kind < 0.05:
            posts = [(value, 1), (value, 1)]
        elif kind < 0.1:
            posts = [(1.0 - value, 1), (value, 2)]
        judged_at = datetime.now(UTC).isoformat()
        for number, revision in posts:
            await self._post(http, {
                "target": target, "name": "resolved", "kind": "scalar", "value": number,
                "feedback_id": feedback_id, "revision": revision, "final": True,
                "task_key": talk.conversation.task_key, "occurred_at": judged_at,
            })  # fmt: skip
            self.ledger.rewards.append(RewardSent(talk.number, feedback_id, number, revision, key))

    async def _post(self, http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
        """Until it is accepted: the same body under the same id, so that no try counts twice."""
        headers = {"x-headrace-key": self._target.feedback_key}
        gives_up_at = time.monotonic() + _GIVE_UP_SECONDS
        why = ""
        while time.monotonic() < gives_up_at:
            try:
                url = f"{self._target.gateway_url}/v1/feedback"
                async with (
                    asyncio.timeout(_CALL_SECONDS),
                    http.post(url, json=body, headers=headers) as answer,
                ):
                    if answer.status == 202:
                        return
                    why = f"status {answer.status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why = type(error).__name__
            await asyncio.sleep(self._rng.uniform(0.1, 0.5))
        raise GaveUpError(why)


def request_body(messages: Sequence[bytes], *, stream: bool) -> bytes:
    """A chat completion request over messages that are JSON already."""
    head = b'{"stream":true,"model":"' if stream else b'{"model":"'
    return head + NAME.encode() + b'","messages":[' + b",".join(messages) + b"]}"
