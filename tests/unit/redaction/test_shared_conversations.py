"""Two hundred real conversations against the records they leak, on every tier.

What must be zero is asserted to be zero. The other bounds are what was reached when they were
written, so that a change for the worse is seen; they are no claim that what is left is harmless.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from streams.redaction.redactor import DigestCache, RedactedJson, Redaction, Tier, build_redactor

_MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_DATES = re.compile(
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/]\d{1,2}[-/]\d{4}"
    r"|[A-Z][a-z]{2,8} \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{1,2}(?:st|nd|rd|th)? [A-Z][a-z]{2,8} \d{4}"
)


class Gold:
    """The values that must not be found."""

    def __init__(self, users: dict[str, Any]) -> None:
        people = [user["name"] for user in users.values()]
        passengers = [each for user in users.values() for each in user["saved_passengers"]]
        births = {each["dob"] for each in [*users.values(), *passengers]}
        self.births = {form for birth in births for form in written_forms(birth)}
        self.emails = {user["email"].lower() for user in users.values()}
        self.handles = set(users)
        self.names = {
            each[part] for each in [*people, *passengers] for part in ("first_name", "last_name")
        }
        self.streets = {user["address"]["address1"] for user in users.values()}
        self.streets |= {user["address"]["address2"] for user in users.values()}

    def count(self, text: str) -> Counter[str]:
        """How often each kind of value stands in the text."""
        found: Counter[str] = Counter()
        found["birth"] = sum(day in self.births for day in _DATES.findall(text))
        found["name"] = sum(word in self.names for word in re.findall(r"[A-Za-z]+", text))
        found["handle"] = sum(word in self.handles for word in re.findall(r"\w+", text))
        lower = text.lower()
        found["email"] = sum(lower.count(email) for email in self.emails)
        found["street"] = sum(text.count(street) for street in self.streets)
        return found


def written_forms(birth: str) -> set[str]:
    """The day in every notation that a person or a model may use for it."""
    year, month, day = birth.split("-")
    name, plain_month, plain_day = _MONTHS[int(month) - 1], str(int(month)), str(int(day))
    forms = {birth, f"{year}/{month}/{day}", f"{month}-{day}-{year}"}
    for m, d in ((month, day), (plain_month, plain_day)):
        forms |= {f"{m}/{d}/{year}", f"{d}/{m}/{year}", f"{year}-{m}-{d}"}
    for d in (day, plain_day, *(plain_day + ending for ending in ("st", "nd", "rd", "th"))):
        for written in (name, name[:3]):
            forms |= {f"{written} {d}, {year}", f"{written} {d} {year}", f"{d} {written} {year}"}
    return forms


def texts(messages: Any) -> Iterator[str]:
    for message in messages:
        if isinstance(message.get("content"), str):
            yield message["content"]
        for call in message.get("tool_calls") or []:
            yield call["function"]["arguments"]


def leaf(document: Any, pointer: str) -> str:
    for part in pointer.split("/")[1:]:
        document = document[int(part)] if isinstance(document, list) else document[part]
    assert isinstance(document, str)
    return document


@pytest.fixture(scope="module")
def gold(shared_data: Path) -> Gold:
    return Gold(json.loads((shared_data / "pii/tau-bench-airline-users.json").read_text()))


@pytest.fixture(scope="module")
def conversations(shared_data: Path) -> list[Any]:
    played = json.loads((shared_data / "trajectories/tau-bench-airline-gpt-4o.json").read_text())
    return [each["traj"] for each in played]


@pytest.fixture(scope="module")
def before(gold: Gold, conversations: list[Any]) -> Counter[str]:
    """What is in them as they were played."""
    return gold.count("\n".join(text for each in conversations for text in texts(each)))


@pytest.fixture(scope="module", params=["regex", "fast", "accurate"])
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def results(tier: str, conversations: list[Any]) -> list[RedactedJson]:
    redactor = build_redactor(
        cast("Tier", tier),
        tenant_key=b"0123456789abcdef", cache=DigestCache(), policy_version="1",
    )  # fmt: skip
    redacted = [redactor.json(conversation) for conversation in conversations]
    for result in redacted[::5]:
        assert redactor.json(result.value).value == result.value, "a second redaction changes"
    return redacted


def test_what_leaks(
    tier: str, gold: Gold, before: Counter[str], results: list[RedactedJson]
) -> None:
    after = gold.count("\n".join(text for each in results for text in texts(each.value)))
    assert min(before.values()) > 100, "the gold values no longer match the conversations"
    assert after["email"] == 0
    assert after["birth"] == 0
    assert after["handle"] == 0
    assert after["street"] == 0
    # Reached: 8 of 3,084 with patterns alone, none with name lists.
    assert after["name"] <= (8 if tier == "regex" else 0)


def test_everything_else_is_as_it_was(
    gold: Gold, conversations: list[Any], results: list[RedactedJson]
) -> None:
    num_characters = num_outside_gold = 0
    for conversation, result in zip(conversations, results, strict=True):
        by_path: dict[str, list[Redaction]] = {}
        for redaction in result.redactions:
            by_path.setdefault(redaction.path, []).append(redaction)
        for path, redactions in by_path.items():
            original = leaf(conversation, path)
            assert leaf(result.value, path) == replaced(original, redactions)
            for item in redactions:
                value = original[item.start : item.end]
                if not gold.count(value).total():
                    num_outside_gold += len(value)
        num_characters += sum(map(len, texts(conversation)))
        untouched = json.loads(json.dumps(conversation))
        for path in by_path:
            put(untouched, path, leaf(result.value, path))
        assert untouched == result.value
    # Reached: 0.17 %, most of it birth dates and names of people who are in no user record.
    assert num_outside_gold / num_characters < 0.002


def replaced(text: str, redactions: list[Redaction]) -> str:
    for item in sorted(redactions, key=lambda each: -each.start):
        text = text[: item.start] + item.placeholder + text[item.end :]
    return text


def put(document: Any, pointer: str, value: str) -> None:
    *above, last = pointer.split("/")[1:]
    for part in above:
        document = document[int(part)] if isinstance(document, list) else document[part]
    document[last] = value


def test_tool_messages_still_parse(conversations: list[Any], results: list[RedactedJson]) -> None:
    num_parsed = 0
    for conversation, result in zip(conversations, results, strict=True):
        for before, after in zip(texts(conversation), texts(result.value), strict=True):
            if before.startswith(("{", "[")):
                assert shape(json.loads(before)) == shape(json.loads(after))
                num_parsed += 1
    assert num_parsed > 1000


def shape(value: Any) -> Any:
    """The document with its texts taken out: keys, order, numbers and structure."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "text" if isinstance(value, str) else value
