"""Recorded replies, found again by the history that led to them.

The upstream of the demo gets plain requests: no session header, nothing an ordinary client would
not send. What identifies a call is its history, so replies are filed under a digest of all
messages before them. Where several conversations share a history, each of their replies is given
once, in turn, before any is given twice. The player follows the reply it gets (`casting`).
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from infra.demo.conversations import Conversation
from infra.demo.draft import Message

_START = b"headrace-demo"


def canonical(message: Message) -> bytes:
    """One message without the differences clients make: absent, null and empty are the same."""
    kept = {key: value for key, value in message.items() if value not in (None, "", [])}
    if "tool_calls" in kept:
        kept["tool_calls"] = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in kept["tool_calls"]
        ]
    return json.dumps(kept, sort_keys=True, ensure_ascii=True).encode()


def extend(digest: bytes, message: Message) -> bytes:
    """The digest of a history that had `digest` before `message` was added."""
    return hashlib.sha256(digest + canonical(message)).digest()


def digest_of(messages: Iterable[Message]) -> bytes:
    """The digest of a whole history."""
    digest = _START
    for message in messages:
        digest = extend(digest, message)
    return digest


def prefix_digests(messages: Sequence[Message]) -> list[bytes]:
    """Digests of all prefixes: entry `n` is that of the first `n` messages."""
    digests = [_START]
    for message in messages:
        digests.append(extend(digests[-1], message))
    return digests


class RecordedReplies:
    """Answers each history with its recorded reply."""

    def __init__(self, conversations: Iterable[Conversation]) -> None:
        self._replies: defaultdict[bytes, list[Message]] = defaultdict(list)
        self._num_given: defaultdict[bytes, int] = defaultdict(int)
        for conversation in conversations:
            digests = prefix_digests(conversation.messages)
            for position in conversation.turns:
                self._replies[digests[position]].append(conversation.messages[position])

    def reply_to(self, messages: Iterable[Message]) -> Message | None:
        """The next recorded reply to this history, or None where the history is unknown."""
        digest = digest_of(messages)
        replies = self._replies.get(digest)
        if replies is None:
            return None
        turn = self._num_given[digest]
        self._num_given[digest] = turn + 1
        return replies[turn % len(replies)]


def assistant_message(content: str | None, tool_calls: list[dict[str, Any]]) -> Message:
    """An assistant message in the form the recordings use."""
    message: Message = {"role": "assistant", "content": content}
    return message | {"tool_calls": tool_calls} if tool_calls else message
