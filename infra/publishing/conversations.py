"""Recorded conversations as steps: each message of the assistant is one decision.

A step's new messages are those since the assistant's last one. Messages after its last answer
belong to no decision: no step holds them, and the last step says so as a gap.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from infra.publishing.documents import Entry, Problem, is_message
from infra.publishing.minting import Mint, canonical
from schemas.atdp.types import (
    ActionResult,
    Feedback,
    FeedbackTarget,
    Gap,
    Governance,
    HarnessState,
    Lineage,
    Message,
    ModelVersion,
    Observation,
    RewardKind,
    Step,
    StepKind,
    Usage,
)
from schemas.ids import is_safe_id

DIALECT = "openai.chat"
REWARD_NAME = "reward"
#: What a file of messages cannot tell.
TIMES_NOT_RECORDED = Gap(field="started_at", reason="time_of_file")
SAMPLING_NOT_RECORDED = Gap(field="harness_state.sampling", reason="not_in_source")
LATER_MESSAGES = Gap(field="observation.new_messages", reason="messages_after_last_answer")
_ID_RULE = "it must be 1 to 200 letters, digits or any of . _ : @ + = -"
_FIELDS = frozenset({"messages", "trajectory_id", "task_key", "reward", "tools", "model"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation as a file tells it, checked."""

    messages: tuple[dict[str, Any], ...]
    trajectory_id: str | None = None
    task_key: str | None = None
    trial: str | None = None
    reward: bool | float | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None

    @property
    def num_trailing(self) -> int:
        """Messages after the assistant's last one."""
        answers = [i for i, m in enumerate(self.messages) if m["role"] == "assistant"]
        return len(self.messages) - 1 - answers[-1]


def from_messages(entry: Entry) -> Conversation | Problem:
    """A list of messages, or an object with `messages` and what else is known."""
    value = entry.value
    if isinstance(value, list) or is_message(value):
        value = {"messages": value}
    if not isinstance(value, Mapping):
        return Problem(entry.where, None, "expected a list of messages or an object with messages.")
    unknown = sorted(set(value) - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        return Problem(entry.where, None, f"{len(unknown)} unknown field(s); known: {known}.")
    return _conversation(entry.where, value, "messages")


def from_trajectory(entry: Entry) -> Conversation | Problem:
    """An object `{task_id, trial, reward, info, traj}`. `info` holds the task's gold: left out."""
    if not isinstance(entry.value, Mapping) or "traj" not in entry.value:
        return Problem(entry.where, "traj", "expected an object with task_id, trial, reward, traj.")
    value = entry.value
    task, trial = value.get("task_id"), value.get("trial")
    plain = {
        "traj": value["traj"],
        "reward": value.get("reward"),
        "task_key": None if task is None else str(task),
    }
    return _conversation(entry.where, plain, "traj", None if trial is None else str(trial))


def _conversation(
    where: str, value: Mapping[str, Any], field: str, trial: str | None = None
) -> Conversation | Problem:
    problem = (
        _bad_messages(where, field, value.get(field))
        or _bad_ids(where, value)
        or _bad_reward(where, value.get("reward"))
    )
    if problem is not None:
        return problem
    tools = value.get("tools")
    names = _tool_names(tools)
    if names is None:
        return Problem(where, "tools", "it must be a list of names or of OpenAI tool objects.")
    reward = value.get("reward")
    return Conversation(
        messages=tuple(value[field]),
        trajectory_id=value.get("trajectory_id"),
        task_key=value.get("task_key"),
        trial=trial,
        reward=float(reward) if type(reward) is int else reward,
        tools=names,
        model=value.get("model"),
    )


def _bad_messages(where: str, field: str, messages: Any) -> Problem | None:
    if not isinstance(messages, list) or not messages:
        return Problem(where, field, "it must be a list of at least one message.")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return Problem(
                where, f"{field}[{index}].role", "each message is an object with a role."
            )
    if not any(message["role"] == "assistant" for message in messages):
        return Problem(where, field, "no message has the role assistant, so there is no step.")
    return None


def _bad_ids(where: str, value: Mapping[str, Any]) -> Problem | None:
    for name in ("trajectory_id", "task_key", "model"):
        given = value.get(name)
        if given is None:
            continue
        if not isinstance(given, str) or (name != "model" and not is_safe_id(given)):
            return Problem(where, name, "it must be a text." if name == "model" else _ID_RULE)
    return None


def _bad_reward(where: str, reward: Any) -> Problem | None:
    if reward is None or isinstance(reward, bool):
        return None
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        return Problem(where, "reward", "it must be a finite number, true or false.")
    return None


def _tool_names(tools: Any) -> tuple[str, ...] | None:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        return None
    names = [_tool_name(tool) for tool in tools]
    return tuple(n for n in names if n) if all(names) else None


def _tool_name(tool: Any) -> str | None:
    if isinstance(tool, Mapping):
        tool = tool.get("function", tool)
        tool = tool.get("name") if isinstance(tool, Mapping) else None
    return tool if isinstance(tool, str) else None


def events_of(conversation: Conversation, mint: Mint) -> Iterator[Step | Feedback]:
    """One step an answer, then the reward. The trajectory's id does not depend on the reward."""
    identity = [conversation.messages, conversation.task_key, conversation.trial]
    trajectory_id = conversation.trajectory_id or mint.content_id("trajectory", identity)
    steps = list(_steps(conversation, trajectory_id, mint))
    yield from steps
    if conversation.reward is not None:
        judged_at = mint.time(len(steps))
        yield Feedback(
            reward_id=mint.derived_id("reward", trajectory_id, REWARD_NAME),
            tenant_id=mint.tenant_id,
            target=FeedbackTarget(trajectory_id=trajectory_id),
            name=REWARD_NAME,
            kind=RewardKind.SCALAR,
            value=conversation.reward,
            final=True,
            task_key=conversation.task_key,
            occurred_at=judged_at,
            received_at=judged_at,
        )


def _steps(conversation: Conversation, trajectory_id: str, mint: Mint) -> Iterator[Step]:
    since: list[dict[str, Any]] = []
    parent: str | None = None
    index = 0
    num_left = sum(message["role"] == "assistant" for message in conversation.messages)
    chain = ""
    for position, message in enumerate(conversation.messages):
        chain = mint.derived_id("message", chain, canonical(message))
        if message["role"] != "assistant":
            since.append(message)
            continue
        num_left -= 1
        step_id = mint.derived_id("step", trajectory_id, str(index), chain)
        later = (LATER_MESSAGES,) if num_left == 0 and conversation.num_trailing else ()
        yield Step(
            step_id=step_id,
            event_id=mint.derived_id("event", step_id),
            tenant_id=mint.tenant_id,
            trajectory_id=trajectory_id,
            task_key=conversation.task_key,
            kind=StepKind.MODEL_CALL,
            dialect=DIALECT,
            started_at=mint.time(index),
            lineage=Lineage(parent_step_id=parent, step_index=index),
            observation=Observation(new_messages=_bodies(since), context_messages=position),
            harness_state=HarnessState(tools=conversation.tools),
            action_and_result=ActionResult(output=_bodies([message]), usage=Usage()),
            model_version=ModelVersion(model=conversation.model),
            governance=Governance(training_eligible=mint.training_eligible),
            gaps=(TIMES_NOT_RECORDED, SAMPLING_NOT_RECORDED, *later),
        )
        since, parent, index = [], step_id, index + 1


def _bodies(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(role=m["role"], body=orjson.dumps(m).decode()) for m in messages)
