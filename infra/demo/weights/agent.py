"""An agent that asks the same question again and again, whatever happens to the weights."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from schemas.errors import TransientError

_PAUSE_SECONDS = 0.3
_CALL_SECONDS = 120.0
_MAX_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Reply:
    """One call. `begun_at` is on `time.monotonic`; `version` is what the answer says of itself."""

    begun_at: float
    status: int
    version: int | None
    text: str

    @property
    def is_answer(self) -> bool:
        """Whether the call succeeded."""
        return self.status == 200


class Agent:
    """A thread. `on_change` hears of every reply that differs from the one before."""

    def __init__(
        self, url: str, key: str, model: str, question: str, on_change: Callable[[Reply], None]
    ) -> None:
        self._url, self._key = f"{url}/v1/chat/completions", key
        self._body = {
            "model": model, "messages": [{"role": "user", "content": question}],
            "temperature": 0, "max_tokens": _MAX_TOKENS,
        }  # fmt: skip
        self._on_change = on_change
        self._stopping = threading.Event()
        self._told = threading.Condition()
        self._replies: list[Reply] = []
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(_CALL_SECONDS)

    @property
    def replies(self) -> list[Reply]:
        """All so far."""
        with self._told:
            return list(self._replies)

    def next_answer(self) -> Reply:
        """The answer to the first successful call that begins from now on."""
        since, deadline = time.monotonic(), time.monotonic() + _CALL_SECONDS
        with self._told:
            while True:
                late = [r for r in self._replies if r.begun_at >= since and r.is_answer]
                if late:
                    return late[0]
                if not self._told.wait(deadline - time.monotonic()):
                    raise TransientError(
                        "The model did not answer in time. `headrace logs worker` says why."
                    )

    def _run(self) -> None:
        before: Reply | None = None
        while not self._stopping.is_set():
            reply = self._call()
            with self._told:
                self._replies.append(reply)
                self._told.notify_all()
            if before is None or _seen(before) != _seen(reply):
                self._on_change(reply)
            before = reply
            self._stopping.wait(_PAUSE_SECONDS)

    def _call(self) -> Reply:
        begun_at = time.monotonic()
        headers = {"x-headrace-key": self._key, "content-type": "application/json"}
        request = urllib.request.Request(  # noqa: S310  # our own URL
            self._url, json.dumps(self._body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=_CALL_SECONDS) as answer:  # noqa: S310
                version = answer.headers.get("x-headrace-policy-version")
                text = json.load(answer)["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            with error:
                return Reply(begun_at, error.code, None, "")
        except OSError:
            return Reply(begun_at, 0, None, "")
        return Reply(begun_at, 200, None if version is None else int(version), text.strip())


def _seen(reply: Reply) -> tuple[int, int | None, str]:
    return reply.status, reply.version, reply.text
