"""Which dialect a path speaks, and how each is read.

Paths on which nothing is decided (a list of models, a count of tokens, an embedding, a probe) have
a name and no reader.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.atdp.types import StepKind
from streams.redaction import chat
from streams.redaction.chat import ChatRequest, ChatResponse, JsonObject
from streams.redaction.dialects import completions, messages, responses


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests and answers are read, and what lineage compares."""

    parse_request: Callable[[bytes], ChatRequest | None]
    parse_response: Callable[[bytes], ChatResponse | None]
    #: A message reduced to what a client sends back of it; None where it does not count.
    canonical: Callable[[JsonObject], str | None]
    #: What an answer adds to the chain of digests, once a client has sent it back.
    ends_of: Callable[[JsonObject], tuple[str, ...]]
    is_answer: Callable[[JsonObject], bool]
    #: The arguments of the tools that an answer calls, JSON text or parsed.
    calls_of: Callable[[JsonObject], list[Any]]


def _is_assistants(message: JsonObject) -> bool:
    return message.get("role") == "assistant"


def _chat_ends(output: JsonObject) -> tuple[str, ...]:
    return (chat.canonical(output),)


def _messages_ends(output: JsonObject) -> tuple[str, ...]:
    return (messages.canonical(output),)


_DIALECTS = {
    "openai.chat": Dialect(
        chat.parse_request, chat.parse_response, chat.canonical, _chat_ends, _is_assistants,
        chat.calls_of,
    ),
    "openai.completions": Dialect(
        completions.parse_request, completions.parse_response, chat.canonical, _chat_ends,
        _is_assistants, chat.calls_of,
    ),
    "openai.responses": Dialect(
        responses.parse_request, responses.parse_response, responses.canonical,
        responses.ends_of, responses.is_answer, responses.calls_of,
    ),
    "anthropic.messages": Dialect(
        messages.parse_request, messages.parse_response, messages.canonical, _messages_ends,
        _is_assistants, messages.calls_of,
    ),
}  # fmt: skip

#: By the end of the path, the longer ending first.
_ENDINGS = {
    "/chat/completions": "openai.chat",
    "/completions": "openai.completions",
    "/responses": "openai.responses",
    "/messages": "anthropic.messages",
    "/messages/count_tokens": "anthropic.count_tokens",
    "/embeddings": "openai.embeddings",
    "/models": "openai.models",
}
_ASIDE = {
    "openai.embeddings": StepKind.RETRIEVAL,
    "anthropic.count_tokens": StepKind.UNKNOWN,
    "openai.models": StepKind.UNKNOWN,
}


def dialect_of(method: str, path: str) -> str:
    """The name of the dialect spoken on a path; `unknown` for any other path."""
    name = next((name for end, name in _ENDINGS.items() if path.endswith(end)), "unknown")
    return name if name not in _DIALECTS or method == "POST" else "unknown"


def reader_of(name: str) -> Dialect | None:
    """How a dialect is read; None where it is not."""
    return _DIALECTS.get(name)


def kind_aside(method: str, name: str) -> StepKind | None:
    """The kind of a call that asks for no decision; None for a call of a model."""
    if name in _ASIDE:
        return _ASIDE[name]
    return None if method == "POST" else StepKind.UNKNOWN
