"""A recorded reply in the two forms of the chat completions API: one object, or chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import orjson

from infra.demo.draft import Message

_PIECE_LENGTHS = (5, 11, 3, 24, 8)


@dataclass(frozen=True)
class Completion:
    """One answer of the upstream: a recorded message with the frame the API puts around it."""

    response_id: str
    created_seconds: int
    model: str
    message: Message
    num_prompt_tokens: int

    @property
    def finish_reason(self) -> str:
        """`tool_calls` where the message calls tools, else `stop`."""
        return "tool_calls" if self.message.get("tool_calls") else "stop"

    @property
    def usage(self) -> dict[str, int]:
        """Token counts by a rule of thumb (four characters each); the replies have no tokenizer."""
        num_completion = len(orjson.dumps(self.message)) // 4 + 1
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": num_completion,
            "total_tokens": self.num_prompt_tokens + num_completion,
        }

    def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        return {
            "id": self.response_id,
            "object": "chat.completion",
            "created": self.created_seconds,
            "model": self.model,
            "choices": [{"index": 0, "message": self.message, "finish_reason": self.finish_reason}],
            "usage": self.usage,
        }

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """The answer as server-sent events, the closing `[DONE]` included."""
        opening = {"role": "assistant", "content": None if self._calls else ""}
        yield self._event([_choice(opening)])
        for piece in pieces(self.message.get("content") or ""):
            yield self._event([_choice({"content": piece})])
        for delta in tool_call_deltas(self._calls):
            yield self._event([_choice({"tool_calls": [delta]})])
        yield self._event([_choice({}, self.finish_reason)])
        if include_usage:
            yield self._event([], usage=self.usage)
        yield b"data: [DONE]\n\n"

    @property
    def _calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []

    def _event(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        chunk = {
            "id": self.response_id,
            "object": "chat.completion.chunk",
            "created": self.created_seconds,
            "model": self.model,
            "choices": choices,
        }
        return b"data: " + orjson.dumps(chunk | extra) + b"\n\n"


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def pieces(text: str) -> Iterator[str]:
    """`text` in parts of uneven length, as models send it."""
    start, turn = 0, 0
    while start < len(text):
        end = start + _PIECE_LENGTHS[turn % len(_PIECE_LENGTHS)]
        yield text[start:end]
        start, turn = end, turn + 1


def tool_call_deltas(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Deltas of parallel calls: ids and names first, then the arguments in turn, interleaved."""
    for index, call in enumerate(calls):
        opener = {"name": call["function"]["name"], "arguments": ""}
        yield {"index": index, "id": call["id"], "type": "function", "function": opener}
    fragments = [list(pieces(call["function"]["arguments"])) for call in calls]
    for same_turn in zip_longest(*fragments):
        for index, fragment in enumerate(same_turn):
            if fragment is not None:
                yield {"index": index, "function": {"arguments": fragment}}
