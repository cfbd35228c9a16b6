"""Overlaps are resolved without loss and without damage."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streams.redaction.detect.contract import SEVERITY, Span
from streams.redaction.spans import resolve


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    text = draw(st.text(alphabet="ab1 .,-@🙂好\n", min_size=1, max_size=40))
    spans = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        spans.append(Span(start, end, draw(st.sampled_from([*SEVERITY, "OTHER"])), 0.5))
    return text, spans


def covered(spans: list[Span]) -> set[int]:
    return {index for span in spans for index in range(span.start, span.end)}


@given(texts_with_spans())
def test_results_are_disjoint_and_cover_every_letter(case: tuple[str, list[Span]]) -> None:
    text, spans = case
    kept = resolve(spans, text)
    assert all(left.end <= right.start for left, right in pairwise(kept))
    assert covered(kept) <= covered(spans)
    assert {i for i in covered(spans) if text[i].isalnum()} <= covered(kept)


@given(texts_with_spans())
def test_the_most_severe_keeps_its_extent(case: tuple[str, list[Span]]) -> None:
    text, spans = case
    solid = [span for span in spans if not text[span.start].isspace()]
    solid = [span for span in solid if not text[span.end - 1].isspace()]
    severe = [span for span in solid if span.kind == "SECRET"]
    if severe and len(solid) == len(spans):
        longest = max(severe, key=lambda span: span.end - span.start)
        lengths = [kept.end - kept.start for kept in resolve(spans, text) if kept.kind == "SECRET"]
        assert max(lengths) == longest.end - longest.start


@given(texts_with_spans(), st.integers(0, 30), st.integers(1, 10))
def test_barriers_are_not_touched(case: tuple[str, list[Span]], start: int, length: int) -> None:
    text, spans = case
    kept = resolve(spans, text, [(start, start + length)])
    assert not covered(kept) & set(range(start, start + length))


def test_order_of_findings_does_not_matter() -> None:
    text = "Mia Li mia.li@example.com"
    spans = [Span(0, 25, "PERSON"), Span(7, 25, "EMAIL_ADDRESS"), Span(0, 6, "PERSON")]
    expected = [Span(0, 6, "PERSON"), Span(7, 25, "EMAIL_ADDRESS")]
    assert resolve(spans, text) == resolve(reversed(spans), text) == expected
