"""What a detector is: text in, spans of private data out.

    RegexDetector     patterns and checksums; language independent; pure Python
    PresidioDetector  the regex tier plus named entities from Presidio and spaCy
    LiteralDetector   finds the literals it is given; for tests of everything above detectors

All three pass `tests/contract/test_detectors.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from schemas.errors import TransientError

#: More severe kinds come first. Where two spans overlap, the more severe keeps its exact extent.
SEVERITY: Final[tuple[str, ...]] = (
    "SECRET",
    "CREDIT_CARD",
    "IBAN_CODE",
    "US_SSN",
    "NATIONAL_ID",
    "EMAIL_ADDRESS",
    "USER_HANDLE",
    "DATE_OF_BIRTH",
    "PHONE_NUMBER",
    "IP_ADDRESS",
    "STREET_ADDRESS",
    "POSTAL_CODE",
    "PERSON",
    "LOCATION",
)
_RANK: Final = {kind: rank for rank, kind in enumerate(SEVERITY)}


def severity_rank(kind: str) -> int:
    """0 is the most severe; a kind that is not listed comes last."""
    return _RANK.get(kind, len(SEVERITY))


@dataclass(frozen=True, slots=True)
class Span:
    """Private data at `text[start:end]`, in code points; `score` is between 0 and 1."""

    start: int
    end: int
    kind: str
    score: float = 1.0


class DetectorUnavailable(TransientError):  # noqa: N818 - the name states what happened
    """The detector could not look. The caller must not let the text pass."""


class DetectorTimeout(DetectorUnavailable):
    """The detector looked for too long. The caller must not let the text pass."""


class UnsupportedLanguage(DetectorUnavailable):
    """No detector reads the text's language. The caller must not let the text pass."""


class Detector(Protocol):
    """Finds private data. Implementations keep no state that depends on what they saw."""

    @property
    def version(self) -> str:
        """Changes whenever the answer for some text may change; part of every cache key."""

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """Spans in any order, possibly overlapping, each within the text and not empty.

        `context` holds the JSON keys above the text, outermost first, joined by dots
        (`address.zip`), or None for text that stands alone.
        Raises DetectorUnavailable; never returns a partial answer.
        """


@runtime_checkable
class ReadsAhead(Protocol):
    """A detector whose model reads many texts at once in less time than one after the other."""

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Read what the next calls of `detect` will look at; they find the same as without. Never
        raises: what could not be read here is read again there, and fails there."""
