"""The regex tier: patterns and checksums, no model, the same answer in every language."""

import re
from collections.abc import Sequence
from typing import Final

from streams.redaction.detect import contacts, dates, documents, names, numbers, secrets
from streams.redaction.detect.contract import Span
from streams.redaction.detect.opaque import blank_opaque

_DIGIT: Final = re.compile(r"\d")
#: Spans become part of stored data: raise this with every change of any recogniser.
REGEX_VERSION: Final = "regex-2"


class RegexDetector:
    """Finds what has a form: numbers with checksums, addresses, dates, labelled names, secrets.

    Time is linear in the text: every repetition in every pattern has a bound.
    """

    version = REGEX_VERSION

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Never raises."""
        if not text:
            return ()
        found = list(secrets.find(text, context))
        visible = blank_opaque(text)
        found.extend(contacts.find(visible, context))
        found.extend(names.find(visible, context))
        if _DIGIT.search(visible):
            found.extend(dates.find(visible, context))
            found.extend(numbers.find(visible, context))
            found.extend(documents.find(visible, context))
        return found
