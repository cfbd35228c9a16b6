"""Every detector keeps the same promises: each tier, and the literal one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.redaction.detect.contract import SEVERITY, Detector
from streams.redaction.detect.literal import LiteralDetector
from streams.redaction.redactor import build_detector

PLANTED = {
    "alice@example.com": "EMAIL_ADDRESS",
    "bob.li@mail.example.org": "EMAIL_ADDRESS",
    "4111 1111 1111 1111": "CREDIT_CARD",
    "1990-04-05": "DATE_OF_BIRTH",
}


@pytest.fixture(scope="module", params=["literal", "regex", "fast", "accurate"])
def detector(request: pytest.FixtureRequest) -> Detector:
    if request.param == "literal":
        return LiteralDetector(PLANTED)
    return build_detector(request.param)


@pytest.mark.parametrize(("value", "kind"), PLANTED.items())
@pytest.mark.parametrize("before", ["", "Write to ", "🙂🙂 ", "客户 ", "e\u0301 \u200d👩‍👩‍👧 "])
def test_finds_the_exact_extent(detector: Detector, value: str, kind: str, before: str) -> None:
    text = f"{before}{value} today"
    spans = detector.detect(text)
    assert (value, kind) in {(text[span.start : span.end], span.kind) for span in spans}


def test_neighbours_are_separate_findings(detector: Detector) -> None:
    text = "alice@example.com bob.li@mail.example.org alice@example.com"
    emails = [span for span in detector.detect(text) if span.kind == "EMAIL_ADDRESS"]
    assert sorted(text[span.start : span.end] for span in emails) == sorted(text.split())


@pytest.mark.parametrize(
    "text",
    ["", " \n\t", "The fare is $1,204 for 2 seats on 2024-05-20 at 11:00.", "a" * 300_000],
)
def test_finds_nothing_where_there_is_nothing(detector: Detector, text: str) -> None:
    assert list(detector.detect(text)) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    pieces=st.lists(
        st.one_of(st.sampled_from(sorted(PLANTED)), st.text(max_size=12), st.just("Mia Li ")),
        max_size=8,
    )
)
def test_spans_lie_in_the_text_and_repeat(detector: Detector, pieces: list[str]) -> None:
    text = "".join(pieces).encode("utf-8", "replace").decode()
    spans = list(detector.detect(text))
    for span in spans:
        assert 0 <= span.start < span.end <= len(text)
        assert span.kind in SEVERITY
        assert 0 < span.score <= 1
    assert list(detector.detect(text)) == spans


def test_names_its_version(detector: Detector) -> None:
    assert detector.version
    assert detector.version == detector.version.strip()
