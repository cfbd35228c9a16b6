"""A detector that finds the literals it is given and nothing else.

For tests of what stands above detectors, where the finding itself must be beyond doubt.
"""

from collections.abc import Mapping, Sequence

from streams.redaction.detect.contract import Span


class LiteralDetector:
    """Finds each literal wherever its exact text stands."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """`kinds` maps each literal (not empty) to its kind."""
        self._kinds = dict(kinds)

    @property
    def version(self) -> str:
        """Names the literals, since they decide every answer."""
        return "literal-" + repr(sorted(self._kinds.items()))

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:  # noqa: ARG002
        """See `Detector.detect`. The context decides nothing here."""
        spans = []
        for literal, kind in self._kinds.items():
            start = text.find(literal)
            while start >= 0:
                spans.append(Span(start, start + len(literal), kind))
                start = text.find(literal, start + len(literal))
        return spans
