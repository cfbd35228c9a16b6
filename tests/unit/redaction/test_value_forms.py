"""Private values found again in other writings, also thousands of them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.redaction.value_forms import ValueForms, escaped

VALUES = st.lists(st.text(alphabet='ab1@ "\\né客', min_size=1, max_size=5), max_size=5)
TEXTS = st.text(alphabet='ab1@ "\\nrté客', max_size=40)


def _bordered(form: str) -> str:
    before = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))" if re.match(r"[A-Za-z0-9]", form) else ""
    after = r"(?![A-Za-z0-9])" if re.search(r"[A-Za-z0-9]\Z", form) else ""
    return before + re.escape(form) + after


def by_trying_each(values: list[str], text: str) -> list[tuple[int, int]]:
    stripped = [value.strip() for value in values]
    kept = [value for value in stripped if sum(map(str.isalnum, value)) >= 2]
    forms = sorted({form for value in kept for form in (value, *escaped(value))}, key=len)
    pattern = "|".join(map(_bordered, reversed(forms))) or r"(?!)"
    return [match.span() for match in re.finditer(pattern, text)]


@given(values=VALUES, text=TEXTS)
def test_looking_values_up_finds_what_trying_each_finds(values: list[str], text: str) -> None:
    forms = ValueForms(dict.fromkeys(values, "<made>"))
    assert [(start, end) for start, end, _ in forms.find(text)] == by_trying_each(values, text)


@pytest.mark.parametrize(
    ("text", "is_left"),
    [
        ("it is 555-0101 here", True), ("x555-01012", True), ("555 0101", False),
        ("Mia said", True), ("Miami", False), (r"\nMia", True), ('"555-0101\\n"', True),
    ],
)  # fmt: skip
def test_what_is_left_also_inside_a_word_where_that_is_no_chance(text: str, is_left: bool) -> None:
    assert ValueForms({"555-0101": "<a>", "Mia": "<b>"}).are_left_in(text) is is_left


def _seconds_for(num_customers: int) -> float:
    mails = [f"name{number}@example.com" for number in range(num_customers)]
    text = "\n".join(
        f"the mail of customer {number} is {mail}" for number, mail in enumerate(mails)
    )
    began = time.process_time()
    forms = ValueForms(dict.fromkeys(mails, "<made>"))
    assert sum(1 for _ in forms.find(text)) == num_customers
    assert not forms.are_left_in(text.replace("@", " "))
    return time.process_time() - began


def test_a_list_of_customers_costs_what_its_length_says() -> None:
    # Of three tries: in one of them the collector may look through all of a large process.
    few, many = (min(_seconds_for(number) for _ in range(3)) for number in (1_000, 4_000))
    assert many < 12 * few, "four times the list, not its square"
