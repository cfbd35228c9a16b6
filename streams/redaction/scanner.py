"""What to replace in one decoded text: findings by digest, looked for again until none are left."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from streams.redaction.cache import DigestCache, Digester
from streams.redaction.detect.contract import Detector, ReadsAhead, Span
from streams.redaction.fragment import Fragment
from streams.redaction.known_names import KnownNames
from streams.redaction.placeholders import Placeholders, Replacement
from streams.redaction.spans import resolve

#: Names are context to the model that finds names: replacing one may uncover another.
_MAX_PASSES: Final = 4
#: In a key, a capitalised word is the programmer's; only what has a form is private.
_NOT_IN_KEYS: Final = frozenset({"PERSON", "LOCATION"})
#: Half a surrogate pair is no character; models and encoders refuse it.
_SURROGATES: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def replaced(text: str, replacements: Sequence[Replacement]) -> str:
    """`text` with disjoint, ordered replacements made."""
    pieces: list[str] = []
    position = 0
    for replacement in replacements:
        pieces += text[position : replacement.start], replacement.placeholder
        position = replacement.end
    return "".join([*pieces, text[position:]])


class Scanner:
    """Asks the detector, remembers by digest, and turns findings into replacements."""

    def __init__(
        self,
        *,
        detector: Detector,
        cache: DigestCache,
        digester: Digester,
        placeholders: Placeholders,
    ) -> None:
        self._detector = detector
        self._cache = cache
        self._digester = digester
        self._placeholders = placeholders

    @property
    def reads_ahead(self) -> bool:
        """Whether it is of use to say which texts will be looked at."""
        return isinstance(self._detector, ReadsAhead)

    def read_ahead(self, fragments: Iterable[Fragment]) -> None:
        """Have the detector read together what is not known of these."""
        if not isinstance(self._detector, ReadsAhead):
            return
        unknown = [
            fragment.text.translate(_SURROGATES)
            for fragment in fragments
            if not fragment.is_opaque
            and self._digester.digest(fragment.text, fragment.context) not in self._cache
        ]
        self._detector.read_ahead(unknown)

    def findings(self, text: str, context: str | None) -> tuple[Span, ...]:
        """What the detector finds. Raises DetectorUnavailable."""
        if not text or text.isspace():
            return ()
        digest = self._digester.digest(text, context)
        known = cast("tuple[Span, ...] | None", self._cache.get(digest))
        if known is not None:
            return known
        if not text.isascii():
            text = text.translate(_SURROGATES)
        spans = tuple(self._detector.detect(text, context=context))
        self._cache.put(digest, spans)
        return spans

    def replacements(self, fragment: Fragment, names: KnownNames) -> Sequence[Replacement]:
        """All that goes from one fragment, in order, in the fragment's own positions.

        What is left after the replacements has no findings, so a second redaction is no change.
        They depend on the text, its context and the known names alone, so they are remembered
        under a digest of these. Raises DetectorUnavailable.
        """
        if fragment.is_opaque:
            return [self._replacement(fragment.text, Span(0, len(fragment.text), "NESTED_JSON"))]
        kind = b"key" if fragment.is_key else b"text"
        text_digest = self._digester.digest(fragment.text, fragment.context)
        digest = self._digester.derived(text_digest, kind, names.canonical)
        known = cast("tuple[Replacement, ...] | None", self._cache.get(digest))
        if known is not None:
            return known
        made = self._made(fragment, names)
        self._cache.put(digest, made)
        return made

    def _made(self, fragment: Fragment, names: KnownNames) -> list[Replacement]:
        made: list[Replacement] = []
        text = fragment.text
        for _ in range(_MAX_PASSES):
            spans = self._new_spans(fragment, text, names)
            if not spans:
                break
            made += [self._replacement(fragment.text, span) for span in _in_original(spans, made)]
            made.sort(key=lambda replacement: replacement.start)
            text = replaced(fragment.text, made)
        return made

    def _new_spans(self, fragment: Fragment, text: str, names: KnownNames) -> list[Span]:
        spans = [*self.findings(text, fragment.context), *names.find(text)]
        if fragment.is_key:
            spans = [span for span in spans if span.kind not in _NOT_IN_KEYS]
        return resolve(spans, text, self._placeholders.find(text)) if spans else []

    def _replacement(self, text: str, span: Span) -> Replacement:
        placeholder = self._placeholders.make(span.kind, text[span.start : span.end])
        return Replacement(span.start, span.end, span.kind, placeholder)


def _in_original(spans: Sequence[Span], made: Sequence[Replacement]) -> Iterator[Span]:
    """Spans of the replaced text, none touching a placeholder, in positions of the original."""
    shift = 0
    remaining = iter(made)
    upcoming = next(remaining, None)
    for span in spans:
        while upcoming is not None and upcoming.start < span.start + shift:
            shift += upcoming.end - upcoming.start - len(upcoming.placeholder)
            upcoming = next(remaining, None)
        yield Span(span.start + shift, span.end + shift, span.kind, span.score)
