"""From findings to recall, precision and over-redaction. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from infra.bench.redaction.gold import Document, Value

#: A value counts as removed when this share of its letters and digits is gone.
MIN_COVERED = 0.9

Found = tuple[int, int, str]
"""Start, end, and the kind under which a system found it."""


@dataclass(slots=True)
class Tally:
    """Values that were there and values that were removed."""

    num_gold: int = 0
    num_removed: int = 0

    @property
    def recall(self) -> float | None:
        """Share removed; None where there was nothing."""
        return self.num_removed / self.num_gold if self.num_gold else None


@dataclass(slots=True)
class Score:
    """What one system reached on a set of documents."""

    by_kind: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    num_findings: int = 0
    num_right: int = 0
    num_characters: int = 0
    #: By corpus: characters of documents without anything private, and how many were redacted.
    negative_characters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    negative_redacted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    missed: list[tuple[str, str, str]] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)

    @property
    def precision(self) -> float | None:
        """Share of the findings beside private data that touch something annotated."""
        return self.num_right / self.num_findings if self.num_findings else None

    def kind(self, kind: str, languages: Iterable[str]) -> Tally:
        """One kind over some languages."""
        total = Tally()
        for language in languages:
            tally = self.by_kind.get((kind, language), Tally())
            total.num_gold += tally.num_gold
            total.num_removed += tally.num_removed
        return total

    @property
    def recall(self) -> float | None:
        """Of all values of all kinds."""
        gold = sum(tally.num_gold for tally in self.by_kind.values())
        return sum(tally.num_removed for tally in self.by_kind.values()) / gold if gold else None


def score(documents: Sequence[Document], findings: Sequence[Sequence[Found]]) -> Score:
    """Findings are those of the documents, in the same order."""
    result = Score()
    for document, found in zip(documents, findings, strict=True):
        covered = bytearray(len(document.text))
        for start, end, _ in found:
            covered[start:end] = b"\x01" * (end - start)
        result.num_characters += len(document.text)
        for value in document.values:
            tally = result.by_kind[value.kind, document.language]
            tally.num_gold += 1
            if _is_removed(document.text, value, covered):
                tally.num_removed += 1
            else:
                text = document.text[value.start : value.end]
                result.missed.append((value.kind, document.language, text))
        if document.is_complete:
            _count_wrong(result, document, found, covered)
    return result


def _is_removed(text: str, value: Value, covered: bytearray) -> bool:
    if value.is_loose:
        return any(covered)
    places = [i for i in range(value.start, value.end) if text[i].isalnum()]
    return sum(covered[i] for i in places) >= MIN_COVERED * len(places)


def _count_wrong(
    result: Score, document: Document, found: Sequence[Found], covered: bytearray
) -> None:
    marked = [(value.start, value.end) for value in document.values] + list(document.benign)
    for start, end, kind in found:
        result.num_findings += bool(marked)
        if any(start < last and first < end for first, last in marked):
            result.num_right += 1
        else:
            result.wrong.append((kind, document.text[start:end]))
    if not marked:
        result.negative_characters[document.corpus] += len(document.text)
        result.negative_redacted[document.corpus] += sum(covered)
