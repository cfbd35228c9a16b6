"""The dialect of `POST /v1/responses`, OpenAI's: what was asked and what was answered.

A request holds a list of items: messages, calls of tools, their results, reasoning. Each item is
one message here, the instructions are the first. An answer is one message whose content is the
list of its output items, since together they are what the model decided.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from streams.redaction.chat import (
    MAX_MESSAGES,
    ChatRequest,
    ChatResponse,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    content_text,
    dumps,
    feed,
    loads,
    same_json,
)

_SAMPLING = (
    "temperature", "top_p", "max_output_tokens", "max_tool_calls", "reasoning", "tool_choice",
    "parallel_tool_calls", "top_logprobs", "truncation", "stream",
)  # fmt: skip
_OUTSIDE_PROMPT = frozenset(_SAMPLING) - {"tool_choice"} | {
    "input", "instructions", "model", "metadata", "client_metadata", "user", "store", "include",
    "service_tier", "safety_identifier", "prompt_cache_key", "previous_response_id",
    "stream_options", "background",
}  # fmt: skip
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
#: Pieces of text: the field of the item, the list field and index that it may lie under.
_DELTAS = {
    "response.function_call_arguments.delta": ("arguments", None, None),
    "response.custom_tool_call_input.delta": ("input", None, None),
    "response.output_text.delta": ("text", "content", "content_index"),
    "response.refusal.delta": ("refusal", "content", "content_index"),
    "response.reasoning_text.delta": ("text", "content", "content_index"),
    "response.reasoning_summary_text.delta": ("text", "summary", "summary_index"),
}
_PART_TYPES = {
    "response.output_text.delta": "output_text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning_text",
    "response.reasoning_summary_text.delta": "summary_text",
}
_MAX_PARTS = 1_000


def parse_request(body: bytes) -> ChatRequest | None:
    """The request, or None where the body holds no input."""
    try:
        value = loads(body)
    except ValueError:
        return None
    items = _items(value.get("input")) if isinstance(value, dict) else None
    if items is None or len(items) > MAX_MESSAGES:
        return None
    if isinstance(value.get("instructions"), str) and value["instructions"]:
        items = [{"role": "system", "content": value["instructions"]}, *items]
    tools = value.get("tools")
    return ChatRequest(
        messages=tuple(items),
        model=as_text(value.get("model")),
        tools=tools if isinstance(tools, list) else [],
        sampling={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        beside_messages={n: v for n, v in value.items() if n not in _OUTSIDE_PROMPT},
        hides_reasoning=False,
        previous_response_id=as_text(value.get("previous_response_id")),
    )


def _items(given: Any) -> list[JsonObject] | None:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        return None
    return given


def parse_response(body: bytes) -> ChatResponse | None:
    """The response, JSON or event stream, or None where nothing can be read."""
    if body.lstrip()[:1] != b"{":
        return _parse_stream(body)
    try:
        value = loads(body)
    except ValueError:
        return None
    return _response(value, as_objects(value.get("output")), damaged=False)


def _response(response: JsonObject, items: list[JsonObject], *, damaged: bool) -> ChatResponse:
    status = as_text(response.get("status"))
    why = as_text(as_object(response.get("incomplete_details")).get("reason"))
    usage = as_object(response.get("usage"))
    return ChatResponse(
        response_id=as_text(response.get("id")),
        model=as_text(response.get("model")),
        outputs=({"role": "assistant", "content": items},) if items else (),
        finish_reason=why or status,
        usage={
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        },
        failed=bool(response.get("error")) or status == "failed",
        damaged=damaged,
    )


def _parse_stream(body: bytes) -> ChatResponse | None:
    stream = _Stream()
    num_events, damaged = feed(body, stream.add)
    stream.damaged |= damaged
    return stream.answer() if num_events else None


@dataclass(slots=True)
class _Item:
    """An output item while its deltas arrive."""

    start: JsonObject
    is_done: bool = False
    #: Pieces by (field, list field, index in the list, kind of part).
    pieces: dict[tuple[str, str | None, int, str], list[str]] = field(default_factory=dict)

    def whole(self) -> JsonObject:
        """The item as far as it came."""
        if self.is_done:
            return self.start
        made = dict(self.start)
        for (name, under, index, kind), pieces in self.pieces.items():
            text = "".join(pieces)
            if under is None:
                made[name] = text
                continue
            parts = list(as_objects(made.get(under)))
            parts += [{"type": kind, name: ""} for _ in range(index + 1 - len(parts))]
            parts[index] = {**parts[index], name: text}
            made[under] = parts
        return made


@dataclass(slots=True)
class _Stream:
    """A response while its events arrive."""

    response: JsonObject = field(default_factory=dict)
    items: dict[int, _Item] = field(default_factory=dict)
    failed: bool = False
    damaged: bool = False

    def add(self, event: JsonObject) -> None:
        kind = as_text(event.get("type")) or ""
        index = event.get("output_index")
        if kind in ("response.created", "response.in_progress", *_TERMINAL):
            self.response = {**self.response, **as_object(event.get("response"))}
        elif kind == "error" or "error" in event:
            self.failed = True
        elif not isinstance(index, int):
            return
        elif kind == "response.output_item.added":
            self.items[index] = _Item(as_object(event.get("item")))
        elif kind == "response.output_item.done":
            self.items[index] = _Item(as_object(event.get("item")), is_done=True)
        elif kind in _DELTAS:
            self._add_delta(kind, index, event)

    def _add_delta(self, kind: str, index: int, event: JsonObject) -> None:
        name, under, position = _DELTAS[kind]
        number = event.get(position, 0) if position else 0
        if type(number) is not int or not 0 <= number < _MAX_PARTS:
            self.damaged = True
            return
        item = self.items.setdefault(index, _Item({}))
        key = (name, under, number, _PART_TYPES.get(kind, ""))
        item.pieces.setdefault(key, []).append(as_text(event.get("delta")) or "")

    def answer(self) -> ChatResponse:
        # The last event repeats the whole answer; some servers leave its output empty.
        items = as_objects(self.response.get("output"))
        items = items or [self.items[index].whole() for index in sorted(self.items)]
        found = _response(self.response, items, damaged=self.damaged)
        return replace(found, failed=found.failed or self.failed)


#: Items that only their own provider can read again, and that clients may leave out.
_LEFT_OUT = frozenset({"reasoning", "item_reference"})
_MADE_HERE = frozenset({"id", "status", "internal_chat_message_metadata_passthrough"})


def canonical(item: JsonObject) -> str | None:
    """An item reduced to what a client sends back of it. None where it does not count at all."""
    kind = item.get("type", "message")
    if kind in _LEFT_OUT:
        return None
    if kind == "message":
        return dumps(["responses", item.get("role"), _message_text(item.get("content"))])
    if kind == "function_call":
        arguments = same_json(item.get("arguments"))
        return dumps(["responses", kind, item.get("call_id"), item.get("name"), arguments])
    if kind == "function_call_output":
        return dumps(["responses", kind, item.get("call_id"), item.get("output")])
    kept = {name: value for name, value in item.items() if name not in _MADE_HERE}
    return dumps(["responses", kept])


def _message_text(content: Any) -> str:
    parts = as_objects(content)
    texts = [as_text(part.get("text")) for part in parts]
    if parts and all(text is not None for text in texts):
        return "".join(text or "" for text in texts).strip()
    return content_text(content)


def is_answer(item: JsonObject) -> bool:
    """Whether the model wrote an item."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in _LEFT_OUT and kind.endswith("_call")


def ends_of(output: JsonObject) -> tuple[str, ...]:
    """What an answer adds to the chain of digests."""
    made = [canonical(item) for item in as_objects(output.get("content"))]
    return tuple(text for text in made if text is not None)


def calls_of(output: JsonObject) -> list[Any]:
    """The arguments of the tools that an answer calls."""
    items = as_objects(output.get("content"))
    return [item.get("arguments") for item in items if item.get("type") == "function_call"]
