"""What an agent program says about itself in the headers of its calls: who of it is calling.

Claude Code names the agent that a call belongs to, OpenCode the session that started this one,
Codex its thread and how often that has begun a new context. Others say nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.atdp.types import Header
from streams.redaction.bodies import header
from streams.redaction.chat import as_text

_WINDOW = re.compile(r".*:(\d{1,6})", re.DOTALL)
#: Agents that offer tools in every call of their work; one without is a title or a summary.
_ALWAYS_WITH_TOOLS = ("opencode/", "claude-cli/")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling. `window` counts the contexts that a thread has begun anew."""

    subagent: str | None = None
    window: int = 0
    #: The program makes calls beside its work, and this one looks like it.
    is_beside: bool = False


def caller_of(headers: tuple[Header, ...], tools: Sequence[Any]) -> Caller:
    """Who is calling, from the headers of a call and the tools that it offers."""
    return Caller(_subagent(headers), _window(headers), _is_beside(headers, tools))


def _subagent(headers: tuple[Header, ...]) -> str | None:
    if claude := header(headers, "x-claude-code-agent-id"):
        return claude
    session = header(headers, "x-session-id")
    if session and header(headers, "x-parent-session-id"):
        return session
    thread = header(headers, "thread-id")
    if thread and header(headers, "session-id") not in ("", thread):
        return thread
    return None


def _window(headers: tuple[Header, ...]) -> int:
    found = _WINDOW.fullmatch(header(headers, "x-codex-window-id"))
    return int(found[1]) if found else 0


def _is_beside(headers: tuple[Header, ...], tools: Sequence[Any]) -> bool:
    program = header(headers, "user-agent")
    return not tools and program.startswith(_ALWAYS_WITH_TOOLS)


#: Arguments in which agents hand a task to a subagent.
_TASK_FIELDS = ("prompt", "message", "task", "goal", "instructions")


def tasks_given(arguments: Any) -> list[str]:
    """The texts that a call of a tool may hand to a subagent."""
    if not isinstance(arguments, dict):
        return []
    texts = [as_text(arguments.get(name)) for name in _TASK_FIELDS]
    return [text.strip() for text in texts if text and text.strip()]


def texts_of(content: Any) -> list[str]:
    """The texts of a message, each for itself."""
    if isinstance(content, str):
        return [content.strip()]
    parts = content if isinstance(content, list) else []
    texts = [as_text(part.get("text")) for part in parts if isinstance(part, dict)]
    return [text.strip() for text in texts if text and text.strip()]
