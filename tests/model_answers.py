"""Answers of a model in every dialect, whole and as streams, as its provider writes them."""

import json
from collections.abc import Iterator
from typing import Any

JSON_TYPE, SSE_TYPE = "application/json", "text/event-stream"


def answer(path: str, request: dict[str, Any], said: Any, name: str) -> tuple[str, bytes]:
    """Content type and body of the answer to a request. `said` is a message, or items of output
    in the dialect of responses."""
    stream = bool(request.get("stream"))
    if "responses" in path:
        made = responses_stream(said, name) if stream else responses_object(said, name)
    elif "messages" in path:
        made = messages_stream(said, name) if stream else messages_object(said, name)
    elif "chat" in path:
        made = chat_stream(said, name) if stream else chat_object(said, name)
    else:
        made = completion_object(said, name)
    return (SSE_TYPE, sse(made)) if isinstance(made, list) else (JSON_TYPE, dumps(made))


def dumps(value: Any) -> bytes:
    """JSON bytes."""
    return json.dumps(value, ensure_ascii=False).encode()


def sse(events: list[Any]) -> bytes:
    """An event stream. Events with a type are named by it, a text stands for itself."""
    return b"".join(_event(event) for event in events)


def _event(event: Any) -> bytes:
    named = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    return f"{named}data: {data}\n\n".encode()


def chat_object(said: dict[str, Any], name: str) -> dict[str, Any]:
    """A chat completion."""
    reason = "tool_calls" if said.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{name}", "object": "chat.completion", "created": 1, "model": "stub-model",
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }  # fmt: skip


def chat_stream(said: dict[str, Any], name: str) -> list[Any]:
    """The chunks of a chat completion, texts and arguments cut in two."""
    base = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": 1,
            "model": "stub-model"}  # fmt: skip
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    content = said.get("content")
    deltas += [{"content": piece} for piece in _cut(content if isinstance(content, str) else "")]
    for index, call in enumerate(said.get("tool_calls") or []):
        function = {"name": call["function"]["name"], "arguments": ""}
        opener = {"index": index, "id": call["id"], "type": "function", "function": function}
        deltas.append({"tool_calls": [opener]})
        for piece in _cut(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    reason = "tool_calls" if said.get("tool_calls") else "stop"
    chunks = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    end = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return [*chunks, end, "[DONE]"]


def messages_object(said: dict[str, Any], name: str) -> dict[str, Any]:
    """A message of Anthropic's API."""
    content = said["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": f"msg_{name}", "type": "message", "role": "assistant", "model": "stub-model",
        "content": blocks, "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip


_EMPTIED = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


def messages_stream(said: dict[str, Any], name: str) -> list[Any]:
    """The events of a message of Anthropic's API."""
    whole = messages_object(said, name)
    opened = {**whole, "content": [], "stop_reason": None,
              "usage": {"input_tokens": 5, "output_tokens": 1}}  # fmt: skip
    events: list[Any] = [{"type": "message_start", "message": opened}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        start = {**block, **_EMPTIED.get(block["type"], {})}
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for delta in _deltas(block)
        ]
        events.append({"type": "content_block_stop", "index": index})
    stopped = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        *events, {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]  # fmt: skip


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in _cut(block["text"]))
    elif block["type"] == "thinking":
        for piece in _cut(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        for piece in _cut(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}


def responses_object(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """A response of OpenAI's newer API."""
    return {
        "id": f"resp_{name}", "object": "response", "created_at": 1, "status": "completed",
        "model": "stub-model", "output": items, "error": None, "incomplete_details": None,
        "instructions": None, "metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [], "temperature": 1.0, "top_p": 1.0,
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7,
                  "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens_details": {"reasoning_tokens": 0}},
    }  # fmt: skip


def responses_stream(items: list[dict[str, Any]], name: str) -> list[Any]:
    """The events of a response, numbered."""
    whole = responses_object(items, name)
    opened = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": opened}]
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item.get("id", f"item_{index}")}
        start = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            start["arguments"] = ""
            events.append({"type": "response.output_item.added", **at, "item": start})
            for piece in _cut(item["arguments"]):
                kind = "response.function_call_arguments.delta"
                events.append({"type": kind, **at, "delta": piece})
        elif item["type"] == "message":
            start["content"] = []
            events.append({"type": "response.output_item.added", **at, "item": start})
            events += _text_events(item, at)
        events.append({"type": "response.output_item.done", **at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _text_events(item: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(item["content"]):
        place = {**at, "content_index": number}
        empty = {**part, "text": ""}
        yield {"type": "response.content_part.added", **place, "part": empty}
        for piece in _cut(part["text"]):
            yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}


def completion_object(said: dict[str, Any], name: str) -> dict[str, Any]:
    """A completion of the oldest API."""
    choice = {"index": 0, "text": said["content"], "finish_reason": "stop", "logprobs": None}
    return {"id": f"cmpl-{name}", "object": "text_completion", "created": 1,
            "model": "stub-model", "choices": [choice]}  # fmt: skip


def said_nothing_more(path: str) -> Any:
    """The end of a run: a short text in the dialect of the path."""
    if "responses" not in path:
        return {"role": "assistant", "content": "Done."}
    part = {"type": "output_text", "text": "Done.", "annotations": []}
    return [{"id": "msg_end", "type": "message", "role": "assistant", "status": "completed",
             "content": [part]}]  # fmt: skip


def _cut(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
