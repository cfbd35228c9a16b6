"""The dialect of `POST /v1/chat/completions`: what was asked and what was answered.

Pure: bytes in, values out. Anything the dialect does not promise is taken as it comes; what cannot
be read at all is reported as `None`, and the caller records a gap.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from streams.redaction.sse import data_of_events

JsonObject = dict[str, Any]

#: Request fields that are sampling parameters; all others are left out of the step.
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "seed",
    "stop", "presence_penalty", "frequency_penalty", "repetition_penalty", "reasoning_effort",
    "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "stream",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What the client asked."""

    messages: tuple[JsonObject, ...]
    model: str | None
    tools: list[Any]
    sampling: JsonObject


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """What the upstream answered, whole or as far as it came."""

    response_id: str | None = None
    model: str | None = None
    outputs: tuple[JsonObject, ...] = ()
    finish_reason: str | None = None
    usage: JsonObject = field(default_factory=dict)
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    #: The stream carried an error object after it had begun.
    failed: bool = False


def loads(data: str | bytes) -> Any:
    """JSON with numbers of any size; ValueError for NaN, Infinity and what is no JSON."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def parse_request(body: bytes) -> ChatRequest | None:
    """The request, or None where the body holds no list of messages."""
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    messages = value["messages"]
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        return None
    tools = value.get("tools")
    return ChatRequest(
        messages=tuple(messages),
        model=_text(value.get("model")),
        tools=tools if isinstance(tools, list) else [],
        sampling={name: value[name] for name in SAMPLING if value.get(name) is not None},
    )


def parse_response(body: bytes) -> ChatResponse | None:
    """The response, JSON or event stream, or None where nothing can be read."""
    if body.lstrip()[:1] == b"{":
        return _parse_whole(body)
    return _parse_stream(body)


def _parse_whole(body: bytes) -> ChatResponse | None:
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    choices = sorted(_objects(value.get("choices")), key=_index)
    first = choices[0] if choices else {}
    return ChatResponse(
        response_id=_text(value.get("id")),
        model=_text(value.get("model")),
        outputs=tuple(c["message"] for c in choices if isinstance(c.get("message"), dict)),
        finish_reason=_text(first.get("finish_reason")),
        usage=_object(value.get("usage")),
        prompt_token_ids=_ints(value.get("prompt_token_ids") or first.get("prompt_token_ids")),
        token_ids=_ints(first.get("token_ids")),
        logprobs=_logprobs(first.get("logprobs")),
        failed="error" in value,
    )


def _parse_stream(body: bytes) -> ChatResponse | None:
    stream = _Stream()
    num_events = 0
    for data in data_of_events(body):
        if data.strip() == "[DONE]":
            break
        try:
            chunk = loads(data)
        except ValueError:
            continue  # the last event of a stream that was cut
        if isinstance(chunk, dict):
            num_events += 1
            stream.add(chunk)
    return stream.response() if num_events else None


@dataclass(slots=True)
class _Choice:
    """One choice of a stream while its deltas arrive."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    role: str = "assistant"
    tool_calls: dict[int, JsonObject] = field(default_factory=dict)
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, choice: JsonObject) -> None:
        delta = _object(choice.get("delta"))
        self.role = _text(delta.get("role")) or self.role
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                self.texts.setdefault(name, []).append(delta[name])
        for call in _objects(delta.get("tool_calls")):
            self._add_tool_call(call)
        self.finish_reason = self.finish_reason or _text(choice.get("finish_reason"))
        self.token_ids += _ints(choice.get("token_ids"))
        self.logprobs += _logprobs(choice.get("logprobs"))

    def _add_tool_call(self, fragment: JsonObject) -> None:
        index = _index(fragment) if "index" in fragment else len(self.tool_calls)
        call = self.tool_calls.setdefault(
            index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = call["id"] or _text(fragment.get("id"))
        function = _object(fragment.get("function"))
        call["function"]["name"] = call["function"]["name"] or _text(function.get("name")) or ""
        call["function"]["arguments"] += _text(function.get("arguments")) or ""

    def message(self) -> JsonObject:
        joined = {name: "".join(parts) for name, parts in self.texts.items()}
        content = joined.pop("content", None)
        if self.tool_calls and not content:
            content = None
        message: JsonObject = {"role": self.role, "content": content}
        message.update({name: text for name, text in joined.items() if text})
        if self.tool_calls:
            message["tool_calls"] = [call for _, call in sorted(self.tool_calls.items())]
        return message


@dataclass(slots=True)
class _Stream:
    """A response while its chunks arrive."""

    response_id: str | None = None
    model: str | None = None
    choices: dict[int, _Choice] = field(default_factory=dict)
    usage: JsonObject = field(default_factory=dict)
    prompt_token_ids: tuple[int, ...] = ()
    failed: bool = False

    def add(self, chunk: JsonObject) -> None:
        self.response_id = self.response_id or _text(chunk.get("id"))
        self.model = self.model or _text(chunk.get("model"))
        self.usage = _object(chunk.get("usage")) or self.usage
        self.prompt_token_ids = self.prompt_token_ids or _ints(chunk.get("prompt_token_ids"))
        self.failed = self.failed or "error" in chunk
        for choice in _objects(chunk.get("choices")):
            self.choices.setdefault(_index(choice), _Choice()).add(choice)

    def response(self) -> ChatResponse:
        ordered = [choice for _, choice in sorted(self.choices.items())]
        first = ordered[0] if ordered else _Choice()
        return ChatResponse(
            response_id=self.response_id,
            model=self.model,
            outputs=tuple(choice.message() for choice in ordered),
            finish_reason=first.finish_reason,
            usage=self.usage,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=tuple(first.token_ids),
            logprobs=tuple(first.logprobs),
            failed=self.failed,
        )


def canonical(message: JsonObject) -> str:
    """A message reduced to what a client sends back of it, for the chain of digests.

    The forms of empty content are one; text parts are one text; tool arguments are compared as
    JSON, since clients parse and print them again. Reasoning is left out: clients drop it.
    """
    calls = [
        [_text(call.get("id")), function.get("name"), _same_json(function.get("arguments"))]
        for call in _objects(message.get("tool_calls"))
        for function in [_object(call.get("function"))]
    ]
    reduced = [
        message.get("role"), _content_text(message.get("content")), calls,
        _text(message.get("tool_call_id")),
    ]  # fmt: skip
    return json.dumps(reduced, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content.strip()
    parts = _objects(content)
    if parts and all(set(part) >= {"type", "text"} and part["type"] == "text" for part in parts):
        return "".join(str(part["text"]) for part in parts).strip()
    return json.dumps(content, ensure_ascii=True, sort_keys=True)


def _same_json(arguments: Any) -> str:
    if not isinstance(arguments, str):
        return json.dumps(arguments, ensure_ascii=True, sort_keys=True)
    try:
        return json.dumps(loads(arguments), ensure_ascii=True, sort_keys=True)
    except ValueError:
        return arguments


def _index(item: JsonObject) -> int:
    index = item.get("index", 0)
    return index if isinstance(index, int) and 0 <= index < 10_000 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ints(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(v for v in value if isinstance(v, int) and not isinstance(v, bool))


def _logprobs(value: Any) -> tuple[float, ...]:
    content = _objects(_object(value).get("content"))
    return tuple(float(c["logprob"]) for c in content if isinstance(c.get("logprob"), int | float))
