"""Known names are found as the plain rule says, in time that grows with the text alone."""

import json
import re
import time
from collections.abc import Callable

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from streams.redaction.cache import DigestCache
from streams.redaction.detect.contract import Span
from streams.redaction.known_names import KnownNames
from streams.redaction.leaves import fragments
from streams.redaction.redactor import build_redactor
from streams.redaction.spans import resolve

WORDS = ["mia", "li", "anne", "anne-marie", "o'neil", "jean-luc", "marie", "ab", "élodie", "x-y"]
PIECES = [
    "Mia", "mia", "Li", "Anne", "Anne-Marie", "O'Neil", "ANNE-MARIE", "MARIE", "Jean-Luc", "Ab",
    "É", "Élodie", " ", "-", "_", "'", "3", "\u2019s", ".", "x", "  ", "\n", "\\n", "ß",
]  # fmt: skip


def by_trying_each(words: list[str], text: str) -> list[tuple[int, int]]:
    """The rule as a pattern, which takes words times text."""
    forms = {w.title() for w in words} | {w.upper() for w in words if len(w) > 4}
    either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    rule = rf"(?<![^\W_])(?:{either})(?:[ -](?:{either}))*(?![^\W_])"
    return [match.span() for match in re.finditer(rule, text)]


@seed(6)
@settings(max_examples=500, deadline=None, database=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
)
def test_looking_words_up_finds_what_trying_each_finds(words: list[str], text: str) -> None:
    names = KnownNames()
    names.add(words)
    assert [(s.start, s.end) for s in names.find(text)] == by_trying_each(words, text)


def least(seconds_for: Callable[[int], float], number: int) -> float:
    """Of three tries: in one of them the collector may look through all of a large process."""
    return min(seconds_for(number) for _ in range(3))


def _seconds_for(num_customers: int) -> float:
    letters = "abcdefghijklmnop"
    name = ["".join(letters[(i >> shift) & 15] for shift in (0, 4, 8, 12)) for i in range(2**16)]
    rows = [{"first_name": name[7 * i].title() + "us"} for i in range(num_customers)]
    redactor = build_redactor(
        "regex", tenant_key=b"k" * 32, cache=DigestCache(), policy_version="test"
    )
    began = time.process_time()
    redacted = redactor.json({"role": "tool", "content": json.dumps(rows)})
    assert len(redacted.redactions) >= num_customers
    return time.process_time() - began


def test_a_list_of_customers_costs_what_its_length_says() -> None:
    assert least(_seconds_for, 4_000) < 12 * least(_seconds_for, 1_000), (
        "four times the list, not its square"
    )


def test_a_text_of_many_addresses_costs_what_its_length_says() -> None:
    def seconds_for(number: int) -> float:
        spans = [Span(20 * i, 20 * i + 10, "EMAIL_ADDRESS", 0.9) for i in range(number)]
        began = time.process_time()
        assert len(resolve(spans, "x" * 20 * number)) == number
        return time.process_time() - began

    assert least(seconds_for, 40_000) < 12 * least(seconds_for, 10_000)


def test_text_in_deep_arrays_costs_what_its_length_says() -> None:
    def seconds_at(depth: int) -> float:
        text = "[" * depth + '"a",' * 20_000 + '"a"' + "]" * depth
        began = time.process_time()
        assert sum(1 for _ in fragments(text, None)) == 20_001
        return time.process_time() - began

    assert least(seconds_at, 900) < 6 * least(seconds_at, 2)
