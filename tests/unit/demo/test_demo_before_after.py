"""What the demo shows of one conversation before and after redaction."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from rich.console import Console

from infra.demo.before_after import (
    Span,
    before_and_after,
    placeholders_in,
    replaced_in,
    side_by_side,
    text_of,
)
from infra.demo.ledger import Call
from infra.demo.verify import StepRow
from infra.store import Reader
from streams.redaction.placeholders import Placeholders
from tests.unit.demo.test_demo_report import played

EMAIL, NAME = "ada@example.com", "Ada Byron"
MAKE = Placeholders(b"0123456789abcdef").make
SENT = {"role": "user", "content": f"I am {NAME} (a+b?), write to {EMAIL}"}
KEPT = {
    "role": "user",
    "content": f"I am {MAKE('PERSON', NAME)} (a+b?), write to {MAKE('EMAIL_ADDRESS', EMAIL)}",
}


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, no_color: str | None = None) -> str:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=200)
    console.print(side_by_side([(SENT, KEPT)]))
    return output.getvalue()


def test_what_went_and_what_came_have_one_colour_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    for value, kind, colour in ((NAME, "PERSON", 32), (EMAIL, "EMAIL_ADDRESS", 35)):
        assert f"\x1b[1;{colour}m{value}" in text
        assert f"\x1b[1;{colour}m{MAKE(kind, value)}" in text


def test_no_color_and_no_terminal_leave_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1;32m" not in shown(monkeypatch, terminal=True, no_color="1")
    plain = shown(monkeypatch, terminal=False)
    assert "\x1b[" not in plain.replace("\x1b[0m", "")
    assert MAKE("PERSON", NAME) in plain


def test_spans_of_the_original_follow_from_the_placeholders() -> None:
    spans = replaced_in(SENT["content"], KEPT["content"])
    assert [SENT["content"][s.start : s.end] for s in spans] == [NAME, EMAIL]
    assert [s.kind for s in spans] == ["PERSON", "EMAIL_ADDRESS"]
    assert replaced_in("something else", KEPT["content"]) == []
    assert replaced_in("nothing private", "nothing private") == []


def test_texts_that_do_not_belong_together_are_told_apart_at_once() -> None:
    """A pattern that tries each way to divide the text takes hours for these."""
    after = ", ".join(MAKE("PERSON", f"n{i}") for i in range(20)) + ", Y"
    assert replaced_in("ab, " * 200 + "X", after) == []
    assert len(replaced_in("ab, " * 20 + "Y", after)) == 20


def test_no_placeholder_is_cut() -> None:
    made = MAKE("PERSON", NAME)
    sent, kept = f"{'x' * 595} {NAME} end", f"{'x' * 595} {made} end"
    assert placeholders_in(kept) == [Span(596, 596 + len(made), "PERSON")]
    output = io.StringIO()
    pair = ({"role": "user", "content": sent}, {"role": "user", "content": kept})
    Console(file=output, width=3000).print(side_by_side([pair]))
    assert "<PERSON" not in output.getvalue()
    assert "x …" in output.getvalue()


def test_calls_of_tools_are_part_of_what_a_message_says() -> None:
    call = {"function": {"name": "find", "arguments": "{}"}}
    assert text_of({"role": "assistant", "content": None, "tool_calls": [call]}) == "→ find {}"


class Held:
    """A store that holds one conversation."""

    def rows(self, sql: str, parameters: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        if "num_kinds" in sql:
            return iter([{"id": "t1"}])
        assert parameters == {"id": "t1"}
        return iter([{"direction": "input", "body": json.dumps(KEPT)},
                     {"direction": "output", "body": json.dumps(ANSWER)}])  # fmt: skip


ANSWER = {"role": "assistant", "content": "Noted."}


def test_the_demo_shows_one_conversation_as_it_was_sent_and_as_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    call = Call("a", 2, True, "chatcmpl-1", "s1", (SENT,), ANSWER, 1.0)
    known = played()
    shown_of = replace(
        known,
        ledger=replace(known.ledger, calls=[call]),
        evidence=replace(known.evidence, steps=(StepRow("chatcmpl-1", "s1", "t1"),)),
    )
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=200)
    console.print(*before_and_after(shown_of, cast("Reader", Held())), sep="\n")
    text = output.getvalue()
    assert "One trajectory before and after redaction" in text
    for written in (EMAIL, MAKE("EMAIL_ADDRESS", EMAIL), NAME, MAKE("PERSON", NAME)):
        assert re.search(rf"\x1b\[1;\d\dm{re.escape(written)}", text), written
    assert "Noted." not in text, "what redaction left alone is not shown"
