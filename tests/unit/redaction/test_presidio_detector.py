"""What the accurate tier adds to the others, what it must not add, and how it fails."""

import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from schemas.errors import ConfigError
from streams.redaction.detect.budget import Budget
from streams.redaction.detect.contract import (
    Detector,
    DetectorTimeout,
    DetectorUnavailable,
    Span,
)
from streams.redaction.detect.presidio import PresidioDetector

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def detector() -> Detector:
    return PresidioDetector()


def people(detector: Detector, text: str) -> list[str]:
    return [text[s.start : s.end] for s in detector.detect(text) if s.kind == "PERSON"]


def test_names_in_prose(detector: Detector) -> None:
    text = "🙂 Yesterday Anna Kowalski met John Smith's brother at the office."
    assert people(detector, text) == ["Anna Kowalski", "John Smith"]


@pytest.mark.parametrize(
    "text",
    [
        "Deploy C4 to S3 as v1, then call send(email) and open Admin(Protocol).",
        "Flights from New York (JFK) to Seattle (SEA) and Los Angeles are on time.",
        "Use Claude Sonnet or Gemini through the Python and Kafka clients.",
        "raise DeprecationWarning('use Handler instead of Mapper')",
        "Your request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 was stored at 1723645123.",
    ],
)
def test_what_looks_like_a_name(detector: Detector, text: str) -> None:
    assert list(detector.detect(text)) == []


def test_a_text_that_takes_too_long_is_not_answered_in_part() -> None:
    """The model is asked line by line; between two of them the time may run out."""
    seconds = 0.0

    class Slow:
        def analyze(self, **_: Any) -> list[Any]:
            nonlocal seconds
            seconds += 3.0
            return []

    budget = Budget(5.0, lambda: seconds)
    slow = PresidioDetector(analyzer=Slow(), budget=budget)
    budget.begin()
    assert list(slow.detect("Quorlax slept well.\nZimbrel slept here.")) == []
    with pytest.raises(DetectorTimeout):
        slow.detect("Quorlax slept well.")
    budget.begin()
    assert list(slow.detect("Quorlax slept well.")) == []


def test_a_place_is_private_where_somebody_lives(detector: Detector) -> None:
    home = "I live in Seattle with my dog."
    found = [home[s.start : s.end] for s in detector.detect(home) if s.kind == "LOCATION"]
    assert found == ["Seattle"]


def test_program_text_is_mostly_left_alone(detector: Detector) -> None:
    """The project's own sources; names planted in tests and demos are not among them."""
    paths = sorted((REPOSITORY / "schemas").rglob("*.py"))[::3]
    text = "\n".join(path.read_text() for path in paths)
    num_lines = text.count("\n")
    assert num_lines > 500
    found = [text[s.start : s.end] for s in detector.detect(text)]
    # Reached: 1.2 in 1,000 lines.
    assert len(found) * 1000 / num_lines <= 3


def test_base64_costs_no_model_time(detector: Detector) -> None:
    assert list(detector.detect("Qm9i4111111111111111QWxpY2U" * 4000)) == []


class BrokenAnalyzer:
    def analyze(self, **_: Any) -> NoReturn:
        raise ValueError("[E088] Text of length 9 with Anna Kowalski in it")


def test_fails_closed_and_keeps_the_text_out_of_the_error() -> None:
    broken = PresidioDetector(analyzer=BrokenAnalyzer())
    with pytest.raises(
        DetectorUnavailable, match=re.escape("Presidio failed: ValueError")
    ) as caught:
        broken.detect("Yesterday Anna Kowalski met nobody.")
    assert "Anna" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_language_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="regex tier"):
        PresidioDetector(language="de")


def test_includes_the_regex_tier(detector: Detector) -> None:
    assert Span(3, 20, "EMAIL_ADDRESS") in detector.detect("to alice@example.com")
