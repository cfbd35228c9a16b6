"""The dialect of `POST /v1/messages`, Anthropic's: what was asked and what was answered.

The system prompt is a field of its own there; here it is the first message. A streamed answer is
put together into the message that the same call would have returned in one piece.
"""

from dataclasses import dataclass, field
from typing import Any

from streams.redaction.chat import (
    MAX_MESSAGES,
    ChatRequest,
    ChatResponse,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    dumps,
    feed,
    loads,
)

_SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "stop_sequences", "tool_choice", "thinking",
    "output_config", "stream",
)  # fmt: skip
_OUTSIDE_PROMPT = frozenset(_SAMPLING) - {"tool_choice"} | {
    "messages", "system", "model", "metadata", "service_tier", "context_management",
}  # fmt: skip
#: Claude Code writes its version and how it was started before its system prompt.
_BILLING = "x-anthropic-billing-header"
#: The field that each kind of delta continues.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_INPUT = "input_json_delta"
_REASONING = ("thinking", "redacted_thinking")


def parse_request(body: bytes) -> ChatRequest | None:
    """The request, or None where the body holds no list of messages."""
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    messages = value["messages"]
    if len(messages) > MAX_MESSAGES:
        return None
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        return None
    if value.get("system"):
        messages = [{"role": "system", "content": value["system"]}, *messages]
    tools = value.get("tools")
    return ChatRequest(
        messages=tuple(messages),
        model=as_text(value.get("model")),
        tools=tools if isinstance(tools, list) else [],
        sampling={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        beside_messages={n: v for n, v in value.items() if n not in _OUTSIDE_PROMPT},
        hides_reasoning=False,
    )


def parse_response(body: bytes) -> ChatResponse | None:
    """The response, JSON or event stream, or None where nothing can be read."""
    if body.lstrip()[:1] != b"{":
        return _parse_stream(body)
    try:
        value = loads(body)
    except ValueError:
        return None
    return _response(value, failed=value.get("type") == "error", damaged=False)


def _response(message: JsonObject, *, failed: bool, damaged: bool) -> ChatResponse:
    content = message.get("content")
    output = {"role": as_text(message.get("role")) or "assistant", "content": content}
    return ChatResponse(
        response_id=as_text(message.get("id")),
        model=as_text(message.get("model")),
        outputs=(output,) if content else (),
        finish_reason=as_text(message.get("stop_reason")),
        usage=_usage(as_object(message.get("usage"))),
        failed=failed,
        damaged=damaged,
    )


def _usage(usage: JsonObject) -> JsonObject:
    """In the words of the chat dialect, where the prompt's count holds the cached tokens too."""
    cached = _count(usage.get("cache_read_input_tokens"))
    parts = [_count(usage.get("input_tokens")), _count(usage.get("cache_creation_input_tokens"))]
    known = [part for part in (*parts, cached) if part is not None]
    return {
        "prompt_tokens": sum(known) if known else None,
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _parse_stream(body: bytes) -> ChatResponse | None:
    stream = _Stream()
    num_events, damaged = feed(body, stream.add)
    stream.damaged |= damaged
    return stream.response() if num_events else None


@dataclass(slots=True)
class _Block:
    """A content block while its deltas arrive."""

    start: JsonObject
    #: Pieces of each field, joined once at the end.
    pieces: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)

    def add(self, delta: JsonObject) -> None:
        kind = as_text(delta.get("type")) or ""
        if kind in _TEXTS:
            name = _TEXTS[kind]
            self.pieces.setdefault(name, []).append(as_text(delta.get(name)) or "")
        elif kind == _INPUT:
            self.pieces.setdefault("input", []).append(as_text(delta.get("partial_json")) or "")
        elif kind == "citations_delta":
            self.citations.append(delta.get("citation"))

    def block(self) -> tuple[JsonObject, bool]:
        """The block, and whether its input was cut."""
        whole, cut = dict(self.start), False
        for name, pieces in self.pieces.items():
            text = "".join(pieces)
            if name != "input":
                whole[name] = (as_text(whole.get(name)) or "") + text
                continue
            try:
                whole[name] = loads(text) if text.strip() else whole.get(name)
            except ValueError:
                whole[name], cut = text, True
        if self.citations:
            whole["citations"] = [*(whole.get("citations") or []), *self.citations]
        return whole, cut


@dataclass(slots=True)
class _Stream:
    """A message while its events arrive."""

    message: JsonObject = field(default_factory=dict)
    usage: JsonObject = field(default_factory=dict)
    blocks: dict[int, _Block] = field(default_factory=dict)
    failed: bool = False
    damaged: bool = False

    def add(self, event: JsonObject) -> None:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            self.message = as_object(event.get("message"))
            self.usage = dict(as_object(self.message.get("usage")))
        elif kind == "content_block_start" and isinstance(index, int):
            self.blocks[index] = _Block(as_object(event.get("content_block")))
        elif kind == "content_block_delta" and index in self.blocks:
            self.blocks[index].add(as_object(event.get("delta")))
        elif kind == "message_delta":
            self.message = {**self.message, **as_object(event.get("delta"))}
            # What is counted here is the total so far, not what came in addition.
            self.usage |= {
                name: value
                for name, value in as_object(event.get("usage")).items()
                if value is not None
            }
        elif kind == "error":
            self.failed = True

    def response(self) -> ChatResponse:
        made = [self.blocks[index].block() for index in sorted(self.blocks)]
        message = {**self.message, "content": [block for block, _ in made], "usage": self.usage}
        damaged = self.damaged or any(cut for _, cut in made)
        return _response(message, failed=self.failed, damaged=damaged)


def canonical(message: JsonObject) -> str:
    """A message reduced to what a client sends back of it, for the chain of digests.

    Cache marks move from turn to turn and thinking may be left out, so neither counts.
    """
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return dumps(["messages", role, [piece for b in as_objects(content) for piece in _piece(b)]])


def _piece(block: JsonObject) -> list[Any]:
    """What counts of a block: nothing, or one value."""
    kind = block.get("type")
    if kind in _REASONING:
        return []
    if kind == "text":
        text = (as_text(block.get("text")) or "").strip()
        return [text] if text and not text.startswith(_BILLING) else []
    if kind == "tool_use":
        return [["call", block.get("id"), block.get("name"), block.get("input")]]
    if kind == "tool_result":
        inner = block.get("content")
        parts = [inner.strip()] if isinstance(inner, str) else _inner(inner)
        return [["result", block.get("tool_use_id"), parts]]
    return [{name: value for name, value in block.items() if name != "cache_control"}]


def _inner(content: Any) -> list[Any]:
    return [piece for block in as_objects(content) for piece in _piece(block)]


def calls_of(output: JsonObject) -> list[Any]:
    """The inputs of the tools that an answer calls."""
    blocks = as_objects(output.get("content"))
    return [block.get("input") for block in blocks if block.get("type") == "tool_use"]
