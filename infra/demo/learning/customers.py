"""The customers: they know what they wanted, and say so later through `POST /v1/feedback`."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass

import aiohttp

from infra.demo.learning.tasks import Task

_MAX_ITEMS = 200
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class _Due:
    at: float
    item: dict[str, object]


class Customers:
    """Rates answers some time after they were given. For one event loop."""

    def __init__(self, gateway_url: str, key: str, delay_seconds: float) -> None:
        self._url = f"{gateway_url}/v1/feedback"
        self._headers = {"x-headrace-key": key}
        self._delay_seconds = delay_seconds
        self._due: deque[_Due] = deque()
        self.num_sent = 0
        self.num_failed = 0

    def judge(self, task: Task, response_id: str, text: str) -> float:
        """1 for the right call, else 0; to be sent when it is time."""
        reward = float(text.strip() == task.answer.strip())
        item: dict[str, object] = {
            "target": {"response_id": response_id}, "name": "served", "value": reward,
            "task_key": task.key, "final": True,
        }  # fmt: skip
        self._due.append(_Due(time.monotonic() + self._delay_seconds, item))
        return reward

    async def send(self, stop: asyncio.Event) -> None:
        """Send what is due until `stop` is set and nothing is left."""
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while self._due or not stop.is_set():
                now = time.monotonic()
                items: list[dict[str, object]] = []
                while self._due and self._due[0].at <= now and len(items) < _MAX_ITEMS:
                    items.append(self._due.popleft().item)
                if items:
                    await self._post(session, items)
                else:
                    await asyncio.sleep(0.1)

    async def _post(self, session: aiohttp.ClientSession, items: list[dict[str, object]]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                async with session.post(self._url, json=items) as answer:
                    if answer.status < 300:
                        self.num_sent += len(items)
                        return
                    if answer.status < 500:
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(min(2.0, 0.1 * 2**attempt))
        self.num_failed += len(items)
