"""The regex tier: patterns and checksums, no model, the same answer in every language."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from streams.redaction.detect import (
    contacts,
    dates,
    documents,
    encoded,
    keyed,
    names,
    numbers,
    phones,
    secrets,
)
from streams.redaction.detect.contract import Span
from streams.redaction.detect.opaque import blank_opaque

_DIGIT: Final = re.compile(r"\d")
#: Digits of every script and full-width letters, as the patterns know them; one for one.
_NARROW: Final = {
    code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFF01, 0xFF5F)
} | {
    code: str(unicodedata.decimal(chr(code)))
    for code in range(0x80, 0x20000)
    if unicodedata.category(chr(code)) == "Nd"
}
#: Spans become part of stored data: raise this with every change of any recogniser.
REGEX_VERSION: Final = "regex-7"


class RegexDetector:
    """Finds what has a form: numbers with checksums, addresses, dates, labelled names, secrets.

    Time is linear in the text: every repetition in every pattern has a bound.
    """

    version = REGEX_VERSION

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Never raises."""
        found = self.plain(text, context)
        found.extend(encoded.find(text, self.plain))
        return found

    def plain(self, text: str, context: str | None = None) -> list[Span]:
        """The same without what stands in base64."""
        if not text:
            return []
        if not text.isascii():
            text = text.translate(_NARROW)
        found = list(secrets.find(text, context))
        visible = blank_opaque(text)
        found.extend(contacts.find(visible, context))
        found.extend(names.find(visible, context))
        found.extend(keyed.find(visible))
        found.extend(phones.find_spelt(visible))
        if _DIGIT.search(visible):
            found.extend(dates.find(visible, context))
            found.extend(numbers.find(visible, context))
            found.extend(documents.find(visible, context))
        return found
