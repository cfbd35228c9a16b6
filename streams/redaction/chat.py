"""The dialect of `POST /v1/chat/completions`: what was asked and what was answered.

Pure: bytes in, values out. Anything the dialect does not promise is taken as it comes; what cannot
be read at all is reported as `None`, and the caller records a gap.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import PermanentError, Reason
from streams.redaction.sse import data_of_events

JsonObject = dict[str, Any]

#: Request fields that are sampling parameters; all others are left out of the step.
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "seed",
    "stop", "presence_penalty", "frequency_penalty", "repetition_penalty", "reasoning_effort",
    "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "stream",
)  # fmt: skip
#: Request fields that no chat template renders. What any other field holds may stand in the prompt.
_OUTSIDE_PROMPT = frozenset(SAMPLING) - {"tool_choice"} | {
    "messages", "model", "user", "metadata", "stream_options", "store", "service_tier",
    "safety_identifier", "prompt_cache_key", "cache_salt", "logit_bias", "return_token_ids",
}  # fmt: skip
#: Token data inside a message. It has columns of its own, withheld where the text is redacted.
_TOKEN_FIELDS = frozenset(
    {"token_ids", "prompt_token_ids", "completion_token_ids", "output_token_ids", "input_ids",
     "logprobs", "top_logprobs", "prompt_logprobs", "tokens", "token_logprobs"}
)  # fmt: skip
#: Values in one document at most. Each takes about a hundred bytes of memory, whatever few bytes it
#: takes in the body: 64 MB of `{},` would take two gigabytes.
MAX_MARKS = 2_000_000
#: Messages of one call at most: each is hashed and looked up, however little it says.
MAX_MESSAGES = 50_000
_MAX_TOKEN_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What the client asked."""

    messages: tuple[JsonObject, ...]
    model: str | None
    tools: list[Any]
    sampling: JsonObject
    #: Tools and every other field that may be rendered into the prompt.
    beside_messages: JsonObject
    #: The client asked for an answer without the reasoning that its tokens hold.
    hides_reasoning: bool
    #: The provider's id of the response that the client goes on from without sending it again.
    previous_response_id: str | None = None


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
    #: The answer is an error object, or carried one after it had begun.
    failed: bool = False
    #: An event of the stream could not be read, so something is missing.
    damaged: bool = False

    @property
    def has_tokens(self) -> bool:
        """Whether it carries anything that can be turned back into text token by token."""
        return bool(self.token_ids or self.prompt_token_ids or self.logprobs)


def loads(data: str | bytes) -> Any:
    """JSON with integers of any size; ValueError for what is no JSON or no finite number."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if len(text) > MAX_MARKS and sum(map(text.count, ",[{")) > MAX_MARKS:
        raise ValueError("too many values")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


#: `json.dumps` would make one of these for each of the thirty texts of a call.
_ENCODERS = {
    ascii_only: json.JSONEncoder(
        ensure_ascii=ascii_only, sort_keys=ascii_only, separators=(",", ":")
    )
    for ascii_only in (True, False)
}


def dumps(value: Any, *, ascii_only: bool = True) -> str:
    """Compact JSON; PermanentError for what is nested too deeply to be written."""
    try:
        return _ENCODERS[ascii_only].encode(value)
    except RecursionError:
        raise PermanentError(Reason.OVERSIZED, "nesting") from None


def without_tokens(message: JsonObject) -> JsonObject:
    """The message without token data inside it; the same object where there is none."""
    if _TOKEN_FIELDS.isdisjoint(message):
        return message
    return {name: value for name, value in message.items() if name not in _TOKEN_FIELDS}


def parse_request(body: bytes) -> ChatRequest | None:
    """The request, or None where the body holds no list of messages."""
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    return request_of(value)


def request_of(value: JsonObject, outside: frozenset[str] = frozenset()) -> ChatRequest | None:
    """The request of a parsed body. `outside` names further fields that no prompt holds."""
    messages = value["messages"]
    if len(messages) > MAX_MESSAGES:
        return None
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        return None
    tools = value.get("tools")
    return ChatRequest(
        messages=tuple(messages),
        model=as_text(value.get("model")),
        tools=tools if isinstance(tools, list) else [],
        sampling={name: value[name] for name in SAMPLING if value.get(name) is not None},
        beside_messages={
            n: v for n, v in value.items() if n not in _OUTSIDE_PROMPT and n not in outside
        },
        hides_reasoning=value.get("include_reasoning") is False,
    )


def _as_it_is(value: JsonObject) -> JsonObject:
    return value


def parse_response(
    body: bytes, as_chat: Callable[[JsonObject], JsonObject] = _as_it_is
) -> ChatResponse | None:
    """The response, JSON or event stream, or None where nothing can be read. `as_chat` makes a
    chat's response, or a chunk of one, out of a dialect that differs a little."""
    if body.lstrip()[:1] == b"{":
        return _parse_whole(body, as_chat)
    return _parse_stream(body, as_chat)


def _parse_whole(body: bytes, as_chat: Callable[[JsonObject], JsonObject]) -> ChatResponse | None:
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    value = as_chat(value)
    choices = sorted(as_objects(value.get("choices")), key=_index)
    first = choices[0] if choices else {}
    return ChatResponse(
        response_id=as_text(value.get("id")),
        model=as_text(value.get("model")),
        outputs=tuple(c["message"] for c in choices if isinstance(c.get("message"), dict)),
        finish_reason=as_text(first.get("finish_reason")),
        usage=as_object(value.get("usage")),
        prompt_token_ids=_ints(value.get("prompt_token_ids") or first.get("prompt_token_ids")),
        token_ids=_ints(first.get("token_ids")),
        logprobs=_logprobs(first.get("logprobs")),
        failed=bool(value.get("error")),
    )


def _parse_stream(body: bytes, as_chat: Callable[[JsonObject], JsonObject]) -> ChatResponse | None:
    stream = _Stream()
    num_events, damaged = feed(body, lambda chunk: stream.add(as_chat(chunk)))
    stream.damaged |= damaged
    return stream.response() if num_events else None


def feed(body: bytes, add: Callable[[JsonObject], None]) -> tuple[int, bool]:
    """Give each JSON object of a stream to `add`, in order and up to its end.

    How many there were, and whether an event was no JSON: the last of a stream that was cut, say.
    """
    num_events, damaged = 0, False
    for data in data_of_events(body):
        if data.strip() == "[DONE]":
            break
        try:
            event = loads(data)
        except ValueError:
            damaged = True
            continue
        if isinstance(event, dict):
            num_events += 1
            add(event)
    return num_events, damaged


#: Delta fields with rules of their own; all others are joined by `_joined`.
_RULED = frozenset({"role", "tool_calls"})
_MAX_JOIN_DEPTH = 20


@dataclass(slots=True)
class _Choice:
    """One choice of a stream while its deltas arrive."""

    role: str = "assistant"
    #: Pieces of each field, joined once at the end: a long text arrives in very many.
    pieces: dict[str, list[Any]] = field(default_factory=dict)
    #: Tool calls in the order in which they were opened, with the index each was sent under.
    tool_calls: list[tuple[int, dict[str, list[Any]]]] = field(default_factory=list)
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    has_bad_tokens: bool = False

    def add(self, choice: JsonObject) -> None:
        delta = as_object(choice.get("delta"))
        self.role = as_text(delta.get("role")) or self.role
        for name, value in delta.items():
            if name not in _RULED and value is not None:
                self.pieces.setdefault(name, []).append(value)
        for call in as_objects(delta.get("tool_calls")):
            self._add_tool_call(call)
        self.finish_reason = self.finish_reason or as_text(choice.get("finish_reason"))
        token_ids = _ints(choice.get("token_ids"))
        self.has_bad_tokens |= bool(choice.get("token_ids")) and not token_ids
        self.token_ids += token_ids
        self.logprobs += _logprobs(choice.get("logprobs"))

    def _add_tool_call(self, fragment: JsonObject) -> None:
        call = self._call_of(fragment)
        function = as_object(fragment.get("function"))
        call["id"] += [v for v in [as_text(fragment.get("id"))] if v]
        call["type"] += [v for v in [as_text(fragment.get("type"))] if v]
        call["name"] += [v for v in [as_text(function.get("name"))] if v]
        call["arguments"] += [v for v in [as_text(function.get("arguments"))] if v]

    def _call_of(self, fragment: JsonObject) -> dict[str, list[Any]]:
        """The call that a fragment continues. Servers that send no index, or one index for all,
        open a call by naming it under another id."""
        given = "index" in fragment
        index = _index(fragment) if given else len(self.tool_calls)
        same = [call for i, call in self.tool_calls if i == index or not given]
        call_id = as_text(fragment.get("id"))
        opens = bool(call_id and as_text(as_object(fragment.get("function")).get("name")))
        if same and not (opens and same[-1]["name"] and call_id not in same[-1]["id"]):
            return same[-1]
        call: dict[str, list[Any]] = {"id": [], "type": [], "name": [], "arguments": []}
        self.tool_calls.append((index, call))
        return call

    def message(self) -> JsonObject:
        joined = {name: _joined(parts) for name, parts in self.pieces.items()}
        content = joined.pop("content", None)
        if self.tool_calls and not content:
            content = None
        message: JsonObject = {"role": self.role, "content": content}
        message.update({name: value for name, value in joined.items() if value})
        if self.tool_calls:
            ordered = sorted(self.tool_calls, key=lambda entry: entry[0])
            message["tool_calls"] = [_tool_call(call) for _, call in ordered]
        return message


def _tool_call(call: dict[str, list[Any]]) -> JsonObject:
    return {
        "id": next(iter(call["id"]), None),
        "type": next(iter(call["type"]), "function"),
        "function": {
            "name": next(iter(call["name"]), ""),
            "arguments": "".join(call["arguments"]),
        },
    }


def _joined(parts: list[Any], depth: int = 0) -> Any:
    """Texts and lists end to end, objects field by field, of anything else the last."""
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    if depth < _MAX_JOIN_DEPTH and all(isinstance(part, dict) for part in parts):
        names = dict.fromkeys(name for part in parts for name in part)
        values = {n: [p[n] for p in parts if p.get(n) is not None] for n in names}
        return {n: _joined(found, depth + 1) if found else None for n, found in values.items()}
    return parts[-1]


@dataclass(slots=True)
class _Stream:
    """A response while its chunks arrive."""

    response_id: str | None = None
    model: str | None = None
    choices: dict[int, _Choice] = field(default_factory=dict)
    usage: JsonObject = field(default_factory=dict)
    prompt_token_ids: tuple[int, ...] = ()
    failed: bool = False
    damaged: bool = False

    def add(self, chunk: JsonObject) -> None:
        self.response_id = self.response_id or as_text(chunk.get("id"))
        self.model = self.model or as_text(chunk.get("model"))
        self.usage = as_object(chunk.get("usage")) or self.usage
        self.prompt_token_ids = self.prompt_token_ids or _ints(chunk.get("prompt_token_ids"))
        self.failed = self.failed or bool(chunk.get("error"))
        for choice in as_objects(chunk.get("choices")):
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
            token_ids=() if first.has_bad_tokens else tuple(first.token_ids),
            logprobs=tuple(first.logprobs),
            failed=self.failed,
            damaged=self.damaged,
        )


def canonical(message: JsonObject) -> str:
    """A message reduced to what a client sends back of it, for the chain of digests.

    The forms of empty content are one; text parts are one text; tool arguments are compared as
    JSON, since clients parse and print them again. Reasoning is left out: clients drop it.
    """
    calls = [
        [as_text(call.get("id")), function.get("name"), same_json(function.get("arguments"))]
        for call in as_objects(message.get("tool_calls"))
        for function in [as_object(call.get("function"))]
    ]
    reduced = [
        message.get("role"), content_text(message.get("content")), calls,
        as_text(message.get("tool_call_id")),
    ]  # fmt: skip
    return dumps(reduced)


def calls_of(output: JsonObject) -> list[Any]:
    """The arguments of the tools that an answer calls."""
    calls = as_objects(output.get("tool_calls"))
    return [as_object(call.get("function")).get("arguments") for call in calls]


def content_text(content: Any) -> str:
    """The text of a content, whichever form it has; JSON of what is no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content.strip()
    parts = as_objects(content)
    if parts and all(set(part) >= {"type", "text"} and part["type"] == "text" for part in parts):
        return "".join(str(part["text"]) for part in parts).strip()
    return dumps(content)


def same_json(arguments: Any) -> str:
    """JSON text in one form, since clients parse and print it again."""
    if not isinstance(arguments, str):
        return dumps(arguments)
    try:
        return dumps(loads(arguments))
    except ValueError:
        return arguments


def _index(item: JsonObject) -> int:
    index = item.get("index", 0)
    return index if isinstance(index, int) and 0 <= index < 10_000 else 0


def as_text(value: Any) -> str | None:
    """The value where it is a text."""
    return value if isinstance(value, str) else None


def as_object(value: Any) -> JsonObject:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[JsonObject]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ints(value: Any) -> tuple[int, ...]:
    """Token ids; none at all where one is no token id, since the others would be misplaced."""
    if not isinstance(value, list) or not all(type(v) is int for v in value):
        return ()
    return tuple(value) if all(0 <= v <= _MAX_TOKEN_ID for v in value) else ()


def _logprobs(value: Any) -> tuple[float, ...]:
    content = as_objects(as_object(value).get("content"))
    found = [c.get("logprob") for c in content]
    # Integers beyond any float are no log-probabilities; `loads` lets no infinite float pass.
    return tuple(
        float(p) for p in found
        if isinstance(p, float) or (type(p) is int and abs(p) < 2**53)
    )  # fmt: skip
