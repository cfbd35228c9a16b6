"""One conversation of the demo before and after redaction, what went in the colours of its kind.

Only for a terminal's eyes: the text before redaction is in no file. Colours follow `NO_COLOR` and
whether a terminal is there, as rich does; without them the placeholders tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from infra.demo.draft import Message
from infra.demo.run import Played
from infra.store import Reader

_MAX_SHOWN_MESSAGES = 7
_MAX_SHOWN_CHARACTERS = 600
#: Short enough to be read, and of these the one with most kinds of private data.
_MAX_MESSAGES = 12
_CHOSEN_SQL = (
    "SELECT trajectory_id AS id, length(groupUniqArrayArray(data_classes)) AS num_kinds, "
    "max(context_messages) AS length FROM steps WHERE trajectory_id != '' GROUP BY id "
    "ORDER BY length > {longest:UInt32}, num_kinds DESC, length, id LIMIT 1"
)
_MESSAGES_SQL = (
    "SELECT direction, body FROM messages WHERE trajectory_id = {id:String} "
    "ORDER BY step_index, started_at, direction, position"
)
_PLACEHOLDER = re.compile(r"<(?P<kind>[A-Z][A-Z_]+)_[a-z]{13}>")
_COLOURS = ("green", "magenta", "cyan", "yellow", "blue", "red", "bright_green", "bright_magenta")


@dataclass(frozen=True)
class Span:
    """A part of a text and the kind of private data it is or stands for."""

    start: int
    end: int
    kind: str


def before_and_after(played: Played, reader: Reader) -> list[str | Table]:
    """A heading, and what the client sent beside what the store holds of it; empty where the store
    holds no trajectory of this run."""
    chosen = next(iter(reader.rows(_CHOSEN_SQL, {"longest": _MAX_MESSAGES})), None)
    id_of = {row.response_id: row.trajectory_id for row in played.evidence.steps}
    calls = played.ledger.last_calls().values()
    last = next((c for c in calls if chosen and id_of.get(c.response_id) == chosen["id"]), None)
    if chosen is None or last is None:
        return []
    rows = reader.rows(_MESSAGES_SQL, {"id": chosen["id"]})
    pairs = list(zip([*last.sent, last.received], [json.loads(r["body"]) for r in rows],
                     strict=False))  # fmt: skip
    changed = [pair for pair in pairs if text_of(pair[0]) != text_of(pair[1])]
    heading = f"\n[bold]One trajectory before and after redaction[/] ({chosen['id']})"
    return [heading, side_by_side((changed or pairs)[:_MAX_SHOWN_MESSAGES])]


def side_by_side(pairs: Sequence[tuple[Message, Message]]) -> Table:
    """A row for each message, sent and kept; one colour for each kind, named in the caption."""
    colours: dict[str, str] = {}
    table = Table("", "sent by the client", "held by the store", show_lines=True)
    for sent, kept in pairs:
        before, after = text_of(sent), text_of(kept)
        table.add_row(
            Text(str(sent["role"]), "bold"),
            _coloured(before, replaced_in(before, after), colours),
            _coloured(after, placeholders_in(after), colours),
        )
    kinds = [Text(f" {kind} ", f"bold {colour} reverse") for kind, colour in colours.items()]
    table.caption = Text(" ").join(kinds)
    return table


def placeholders_in(text: str) -> list[Span]:
    """Where a text that was redacted holds placeholders."""
    found = _PLACEHOLDER.finditer(text)
    return [Span(match.start(), match.end(), match["kind"]) for match in found]


def replaced_in(before: str, after: str) -> list[Span]:
    """Where `before` holds what went from it. Nothing where the two do not belong together."""
    placeholders = placeholders_in(after)
    borders = [0, *(at for span in placeholders for at in (span.start, span.end)), len(after)]
    first, *kept = [after[borders[i] : borders[i + 1]] for i in range(0, len(borders), 2)]
    if not before.startswith(first):
        return []
    found: list[Span] = []
    start = len(first)
    for span, following in zip(placeholders, kept, strict=True):
        # What follows the last one ends the text. Any other ends where that stands next.
        is_last = span is placeholders[-1]
        end = before.rfind(following) if is_last else before.find(following, start + 1)
        if end <= start or (is_last and end + len(following) != len(before)):
            return []
        found.append(Span(start, end, span.kind))
        start = end + len(following)
    return found


def text_of(message: Message) -> str:
    """What a message says: its text, then its tool calls."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    parts = [str(message.get("content") or "")]
    parts += [f"→ {function['name']} {function['arguments']}" for function in functions]
    return "\n".join(part for part in parts if part)


def _coloured(text: str, spans: Sequence[Span], colours: dict[str, str]) -> Text:
    shown = Text(text)
    for span in spans:
        colour = colours.setdefault(span.kind, _COLOURS[len(colours) % len(_COLOURS)])
        shown.stylize(f"bold {colour}", span.start, span.end)
    if len(text) > _MAX_SHOWN_CHARACTERS:
        shown = shown[: _end_of_shown(spans)]
        shown.rstrip()
        shown.append(" …", "dim")
    return shown


def _end_of_shown(spans: Sequence[Span]) -> int:
    """No span is cut."""
    cut = (s.start for s in spans if s.start < _MAX_SHOWN_CHARACTERS < s.end)
    return next(cut, _MAX_SHOWN_CHARACTERS)
