"""What real clients sent, and an upstream that answered them.

A recording holds requests only. What the upstream said is read off the request that came next in
the same conversation, which holds it. A body that was not kept is that of the request before: its
client asked the same again.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_OWN_HEADERS = frozenset({"host", "content-length", "authorization", "x-api-key", "connection"})


@dataclass(frozen=True)
class Sent:
    """One request of a client."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: dict[str, Any] | None
    #: The upstream fails, since the client is about to ask the same again.
    is_asked_again: bool = False

    @property
    def is_upgrade(self) -> bool:
        """It asks for a websocket, which is refused, so that nothing is relayed or recorded."""
        return any(name.lower() == "upgrade" for name, _ in self.headers)

    @property
    def data(self) -> bytes:
        """The body's bytes."""
        return b"" if self.body is None else json.dumps(self.body).encode()

    @property
    def history(self) -> list[Any]:
        """Messages or items of input."""
        body = self.body or {}
        found = body.get("messages") or body.get("input") or []
        return found if isinstance(found, list) else []


def runs(folder: Path) -> dict[str, list[Sent]]:
    """The requests of every run, in order."""
    return {path.name: _run(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def _run(folder: Path) -> list[Sent]:
    found = [_sent(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    filled: list[Sent] = []
    for sent in found:
        is_kept = sent.method != "POST" or sent.body is not None
        filled.append(sent if is_kept else replace(sent, body=_body_before(filled, sent)))
    filled = [sent for sent in filled if sent.method != "POST" or sent.body is not None]
    return [_marked(filled, index) for index in range(len(filled))]


def _sent(recorded: dict[str, Any]) -> Sent:
    pairs = tuple((n, v) for n, v in recorded["headers"] if n.lower() not in _OWN_HEADERS)
    return Sent(recorded["method"], recorded["path"], pairs, recorded["body"])


def _body_before(filled: list[Sent], sent: Sent) -> dict[str, Any] | None:
    return next((s.body for s in reversed(filled) if s.body and s.path == sent.path), None)


def _marked(run: list[Sent], index: int) -> Sent:
    later = [sent for sent in run[index + 1 :] if sent.body is not None]
    again = bool(later) and run[index].body is not None and later[0].body == run[index].body
    return replace(run[index], is_asked_again=again)


def answered(run: list[Sent], index: int) -> Any:
    """What the model said to a request: a message, or items in the dialect of responses."""
    sent = run[index]
    length = len(sent.history)
    for later in run[index + 1 :]:
        extends = length and _bare(later.history[:length]) == _bare(sent.history)
        if extends and len(later.history) > length and later.path == sent.path:
            said = list(_said(later.history[length:]))
            if said:
                return said if "responses" in sent.path else said[0]
    return None


def _said(history: list[Any]) -> Iterator[Any]:
    for item in history:
        by_model = item.get("type") in ("reasoning", "function_call")
        if item.get("role") != "assistant" and not by_model:
            return
        yield item


def _bare(value: Any) -> Any:
    """Without what a client changes from turn to turn."""
    if isinstance(value, dict):
        if value.get("type") == "text" and set(value) <= {"type", "text", "cache_control"}:
            return value["text"]
        return {k: _bare(v) for k, v in value.items() if k not in ("cache_control", "name")}
    if isinstance(value, list) and len(value) == 1:
        return _bare(value[0])
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value
