"""Event streams for tests: any message cut into deltas, any deltas cut into bytes."""

import json
from collections.abc import Sequence
from typing import Any


def chunk(delta: dict[str, Any] | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    """One chat chunk. finish_reason, token_ids and logprobs go into its choice."""
    names: list[str] = [k for k in ("finish_reason", "token_ids", "logprobs") if k in fields]
    inner = {name: fields.pop(name) for name in names}
    choice: dict[str, Any] = {"index": index, "delta": delta, **inner}
    choices = [] if delta is None else [choice]
    return {"id": "chatcmpl-s", "model": "m", "choices": choices, **fields}


def sse(chunks: Sequence[Any], end: str = "\n", *, done: bool = True) -> bytes:
    """The chunks as an event stream with that line end."""
    lines = [f"data: {json.dumps(c, ensure_ascii=False)}{end}{end}" for c in chunks]
    return ("".join(lines) + (f"data: [DONE]{end}{end}" if done else "")).encode()


def tool_fragment(index: int, arguments: str, **opener: str) -> dict[str, Any]:
    """A delta that carries one piece of one tool call; `opener` holds id and name."""
    function = {"arguments": arguments}
    call: dict[str, Any] = {"index": index, "function": function}
    if opener:
        function["name"] = opener["name"]
        call |= {"id": opener["id"], "type": "function"}
    return {"tool_calls": [call]}
