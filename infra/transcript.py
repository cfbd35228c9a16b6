"""A trajectory as people read it: turns with their calls, what was redacted, what it earned.

Pure: rows of the store in, plain values out. `infra/cli/show.py` prints them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

RowValues = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message. `kind` is text, reasoning, call, result or other."""

    kind: str
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `placeholders` stand in its texts where private data stood."""

    role: str
    direction: str
    parts: tuple[Part, ...]
    placeholders: tuple[str, ...] = ()


def turns_of(step: RowValues) -> list[Turn]:
    """What a step added to its parent's messages, then what was answered."""
    turns = []
    for field, roles in (("new_messages", "new_message_roles"), ("output", "output_roles")):
        for index, (role, body) in enumerate(zip(step[roles], step[field], strict=True)):
            found = [
                span["placeholder"]
                for span in step["redactions"]
                if f"{span['path']}/".startswith(f"{field}/{index}/")
            ]
            direction = "input" if field == "new_messages" else "output"
            turns.append(Turn(role, direction, parts_of(body), tuple(dict.fromkeys(found))))
    return turns


def parts_of(body: str) -> tuple[Part, ...]:
    """The pieces of a message in any of the dialects; text that is no JSON stays as it is."""
    try:
        message = json.loads(body)
    except ValueError:
        return (Part("text", body),)
    if not isinstance(message, dict):
        return (Part("text", _text(message)),)
    if "role" not in message and "type" in message:
        return (_typed_part(message),)
    is_result = message.get("role") == "tool"
    parts = list(_content_parts(message.get("content"), "result" if is_result else "text"))
    if reasoning := message.get("reasoning_content") or message.get("reasoning"):
        parts.insert(0, Part("reasoning", _text(reasoning)))
    calls = message.get("tool_calls") or []
    parts += [_chat_call(call) for call in (calls if isinstance(calls, list) else [calls])]
    if refusal := message.get("refusal"):
        parts.append(Part("text", _text(refusal), "refusal"))
    return tuple(parts)


def _content_parts(content: Any, kind: str) -> Iterable[Part]:
    if content is None or content == "":
        return
    if not isinstance(content, list):
        yield Part(kind, _text(content))
        return
    for item in content:
        yield _typed_part(item) if isinstance(item, dict) else Part(kind, _text(item))


_TEXTS = {"text", "input_text", "output_text", "refusal"}
_CALLS = {"tool_use", "function_call", "custom_tool_call", "server_tool_use"}
_RESULTS = {"tool_result", "function_call_output", "custom_tool_call_output"}
_REASONING = {"thinking", "reasoning"}


def _typed_part(item: dict[str, Any]) -> Part:
    kind = str(item.get("type", ""))
    if kind in _TEXTS:
        return Part("text", _text(item.get("text", item.get("refusal", ""))))
    if kind in _CALLS:
        return Part("call", _text(item.get("input", item.get("arguments", ""))), _name(item))
    if kind in _RESULTS:
        return Part("result", _joined(item.get("content", item.get("output", ""))))
    if kind in _REASONING:
        return Part("reasoning", _joined(item.get("thinking", item.get("summary", ""))))
    if kind == "message":
        return Part("text", _joined(item.get("content", "")))
    return Part("other", kind or _text(item))


def _chat_call(call: Any) -> Part:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return Part("call", _text(call))
    return Part("call", _text(function.get("arguments", "")), _name(function))


def _name(item: dict[str, Any]) -> str:
    return str(item.get("name") or "?")


def _joined(content: Any) -> str:
    """The texts of a list of parts, or the value itself."""
    if isinstance(content, list):
        return "\n".join(part.text for part in _content_parts(content, "text"))
    return _text(content)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def redaction_counts(steps: Sequence[RowValues]) -> list[tuple[str, int]]:
    """How many spans of each kind were replaced, most first."""
    kinds = Counter(span["kind"] for step in steps for span in step["redactions"])
    return sorted(kinds.items(), key=lambda item: (-item[1], item[0]))


def policy_versions(steps: Sequence[RowValues]) -> list[int]:
    """Versions in the order in which they answered."""
    return list(dict.fromkeys(v for step in steps for v in step["policy_versions"]))
