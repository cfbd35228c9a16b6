"""Trajectories as rows that training libraries read. Pure: rows of the store in, plain values out.

    steps of a trajectory ─▶ a conversation for each branch, from its root to its last step ─▶ row

Messages of every dialect come out in the form of Chat Completions.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

RowValues = dict[str, Any]
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A branch from its root to its last step. `index` counts the branches of a trajectory.

    `reward` is the trajectory's; None where it has none.
    """

    tenant_id: str
    trajectory_id: str
    last_step_id: str
    index: int
    task_key: str | None
    reward: float | None
    messages: tuple[Message, ...]

    @property
    def num_prompt(self) -> int:
        """Messages before the first answer."""
        roles = [message["role"] for message in self.messages]
        return roles.index("assistant") if "assistant" in roles else len(roles)


def conversations(rows: Iterable[RowValues]) -> Iterator[Conversation]:
    """The conversations of steps that are ordered by tenant and trajectory; one trajectory is in
    memory at a time. A branch whose beginning was not captured, or without an answer, is left out.
    """
    for _, group in groupby(rows, lambda row: (row["tenant_id"], row["trajectory_id"])):
        yield from _of_trajectory([*group])


def _of_trajectory(steps: Sequence[RowValues]) -> Iterator[Conversation]:
    known = {step["step_id"]: step for step in steps}
    parents = {step["parent_step_id"] for step in steps}
    index = 0
    for step in steps:
        if step["step_id"] in parents:
            continue
        chain = _chain(step, known)
        messages = tuple(message for one in chain for message in _messages(one))
        if not any(message["role"] == "assistant" for message in messages):
            continue
        yield Conversation(
            step["tenant_id"], step["trajectory_id"], step["step_id"], index, step["task_key"],
            step["reward"], messages,
        )  # fmt: skip
        index += 1


def _chain(step: RowValues, known: dict[str, RowValues]) -> list[RowValues]:
    """From the root to the step; empty where one in between is missing."""
    chain, seen = [step], {step["step_id"]}
    while (parent := chain[-1]["parent_step_id"]) is not None:
        if parent not in known or parent in seen:
            return []
        seen.add(parent)
        chain.append(known[parent])
    return chain[::-1]


def _messages(step: RowValues) -> Iterator[Message]:
    for body in step["new_messages"]:
        yield from chat_messages(body)
    # Of several choices the client went on with one; which one, the next step says. The first is
    # the one whose tokens are kept. Items of the Responses dialect are one answer, together.
    answers = [message for body in step["output"] for message in chat_messages(body)]
    items = [_is_item(body) for body in step["output"]]
    yield from _merged(answers) if any(items) else answers[:1]


def _is_item(body: str) -> bool:
    return "role" not in (value := _value(body)) and "type" in value


def _merged(messages: Sequence[Message]) -> Iterator[Message]:
    """Text and calls of one answer in one message."""
    texts = [message["content"] for message in messages if message["content"]]
    calls = [call for message in messages for call in message["tool_calls"] or ()]
    if messages:
        yield _message("assistant", "\n".join(texts), calls)


def _value(body: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {"role": "user", "content": body}
    return found if isinstance(found, dict) else {"role": "user", "content": _text(found)}


def chat_messages(body: str) -> Iterator[Message]:
    """A message of any dialect; one of the Messages dialect with results of tools is several.

    Reasoning and what is no text is left out.
    """
    message = _value(body)
    if "role" not in message:
        yield from _of_item(message)
        return
    role, content = str(message["role"]), message.get("content")
    blocks = _dicts(content)
    calls = [_call(call) for call in _dicts(message.get("tool_calls"))]
    calls += [_use(block) for block in blocks if block.get("type") == "tool_use"]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for result in results:
        yield _message("tool", _joined(result.get("content")), [], result.get("tool_use_id"))
    text = _joined(content)
    if text or calls or not results:
        yield _message(role, text, calls, message.get("tool_call_id"))


def _of_item(item: dict[str, Any]) -> Iterator[Message]:
    """An item of the Responses dialect."""
    kind, call_id = item.get("type"), item.get("call_id")
    if kind in ("function_call", "custom_tool_call"):
        call = {"id": call_id, "name": item.get("name"),
                "arguments": item.get("arguments", item.get("input"))}  # fmt: skip
        yield _message("assistant", "", [_call(call)])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield _message("tool", _joined(item.get("output")), [], call_id)


def _message(role: str, content: str, calls: Sequence[Message], call_id: Any = None) -> Message:
    return {
        "role": role, "content": content, "tool_calls": [*calls] or None,
        "tool_call_id": None if call_id is None else _text(call_id),
    }  # fmt: skip


def _call(call: dict[str, Any]) -> Message:
    given = call.get("function")
    function = given if isinstance(given, dict) else call
    return {
        "id": _text(call.get("id") or ""),
        "type": "function",
        "function": {
            "name": _text(function.get("name") or ""),
            "arguments": _text(function.get("arguments") or ""),
        },
    }


def _use(block: dict[str, Any]) -> Message:
    return _call({"id": block.get("id"), "name": block.get("name"),
                  "arguments": _text(block.get("input") or {})})  # fmt: skip


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _joined(content: Any) -> str:
    """The texts of a list of parts, or the value itself."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return _text(content)
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def openai_row(talk: Conversation) -> RowValues:
    """A line of OpenAI's files for supervised fine-tuning; what a message lacks is not named."""
    return {
        "messages": [
            {name: value for name, value in message.items() if value is not None}
            for message in talk.messages
        ]
    }


def trl_row(talk: Conversation, success: float) -> RowValues:
    """TRL's conversational prompt, completion and label."""
    number = talk.num_prompt
    return {
        "prompt": [*talk.messages[:number]],
        "completion": [*talk.messages[number:]],
        "label": None if talk.reward is None else talk.reward >= success,
        "reward": talk.reward,
        **_origin(talk),
    }


def verl_row(talk: Conversation) -> RowValues:
    """A row of verl's data sets: `prompt` for reinforcement learning, `messages` for supervised."""
    return {
        "data_source": "headrace",
        "prompt": [*talk.messages[: talk.num_prompt]],
        "messages": [*talk.messages],
        "ability": talk.task_key or "",
        "reward_model": {"style": "recorded", "ground_truth": None},
        "extra_info": {"index": talk.index, "reward": talk.reward, **_origin(talk)},
    }


def _origin(talk: Conversation) -> RowValues:
    return {
        "task_key": talk.task_key,
        "tenant_id": talk.tenant_id,
        "trajectory_id": talk.trajectory_id,
        "last_step_id": talk.last_step_id,
    }
