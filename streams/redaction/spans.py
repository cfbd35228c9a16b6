"""From overlapping findings to the disjoint stretches of text that are replaced."""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from streams.redaction.detect.contract import Span, severity_rank

_WORDS: Final = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def resolve(
    spans: Iterable[Span], text: str, barriers: Iterable[tuple[int, int]] = ()
) -> list[Span]:
    """Disjoint spans in text order that cover every letter and digit of the given spans.

    The most severe span keeps its extent, then the longest, then the surest. What a weaker span
    covers beyond it stays private under the weaker kind, trimmed of blanks and punctuation, so
    that nothing outside the given spans changes and nothing inside them is left readable.
    No result touches a barrier (text that was replaced before).
    """
    taken: list[tuple[int, int]] = sorted(barriers)
    kept: list[Span] = []
    for span in sorted(set(spans), key=_precedence):
        for start, end in list(_remainders(span.start, span.end, taken)):
            if (start, end) == (span.start, span.end):
                piece = _trimmed_blanks(text, start, end)
            else:
                piece = _trimmed_to_words(text, start, end)
            if piece is not None:
                kept.append(Span(*piece, span.kind, span.score))
                insort(taken, piece)
    return sorted(kept, key=lambda span: span.start)


def _precedence(span: Span) -> tuple[int, int, float, int, str]:
    return severity_rank(span.kind), span.start - span.end, -span.score, span.start, span.kind


def _remainders(start: int, end: int, taken: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches of start..end that no interval of `taken` (sorted, disjoint) covers."""
    first = max(0, bisect_left(taken, (start, start)) - 1)
    for index in range(first, len(taken)):  # an iterator would walk all before it
        taken_start, taken_end = taken[index]
        if taken_end <= start:
            continue
        if taken_start >= end:
            break
        if taken_start > start:
            yield start, taken_start
        start = taken_end
    if start < end:
        yield start, end


def _trimmed_blanks(text: str, start: int, end: int) -> tuple[int, int] | None:
    inside = text[start:end]
    left = len(inside) - len(inside.lstrip())
    right = len(inside) - len(inside.rstrip())
    return (start + left, end - right) if left + right < len(inside) else None


def _trimmed_to_words(text: str, start: int, end: int) -> tuple[int, int] | None:
    match = _WORDS.search(text[start:end])
    return (start + match.start(), start + match.end()) if match else None
