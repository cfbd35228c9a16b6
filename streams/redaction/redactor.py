"""Redaction of texts and JSON documents: pure, given a detector and a tenant's key.

    leaf ─▶ fragments ─▶ scanner (cache ─▶ detector ─▶ resolve) ─▶ placeholders ─▶ leaf

Any failure to look raises `DetectorUnavailable`; there is no path on which a text passes unread.
"""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import dumps
from typing import Final, Literal

from schemas.errors import ConfigError, PermanentError, Reason
from streams.redaction.as_meant import as_meant
from streams.redaction.cache import DigestCache, Digester
from streams.redaction.detect.budget import Budget
from streams.redaction.detect.contract import Detector, DetectorUnavailable, Span
from streams.redaction.detect.regex import RegexDetector
from streams.redaction.fragment import Fragment
from streams.redaction.known_names import KnownNames
from streams.redaction.leaves import (
    JsonValue,
    Path,
    PathRule,
    fragments,
    joined_context,
    pointer,
)
from streams.redaction.placeholders import Placeholders, Replacement, bare
from streams.redaction.protocol_fields import protocol_fields
from streams.redaction.scanner import Scanner, replaced

__all__ = [
    "Detector",
    "DetectorUnavailable",
    "DigestCache",
    "JsonValue",
    "PathRule",
    "RedactedJson",
    "RedactedText",
    "Redaction",
    "Redactor",
    "Span",
    "Tier",
    "build_detector",
    "build_redactor",
    "protocol_fields",
]

_MAX_DEPTH: Final = 200
#: Seven digits of a phone to nineteen of a card.
_MIN_PRIVATE_NUMBER: Final = 10**6
_MAX_PRIVATE_NUMBER: Final = 10**19
#: Documents of the history whose names are remembered, a tenant.
_MAX_REMEMBERED_DOCUMENTS: Final = 20_000
_MIN_KEY_BYTES: Final = 16
#: UUIDs and digests: detectors see them as blanks (`detect/opaque.py`), so there is no use in
#: looking, and most ids are such.
_OPAQUE_ID: Final = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?=[0-9]*[a-f])[0-9a-f]{32}"
)


@dataclass(frozen=True, slots=True)
class Redaction:
    """One replaced span.

    `start` and `end` count code points of the original text of the leaf at `path`, also where the
    leaf is JSON text and the span lies in one of its strings. `path` is a JSON pointer within the
    redacted document, "" for plain text; for a replaced key it is the key's own, followed by "#".
    """

    path: str
    kind: str
    start: int
    end: int
    placeholder: str


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text without its private data."""

    text: str
    redactions: tuple[Redaction, ...]


@dataclass(frozen=True, slots=True)
class RedactedJson:
    """A document without its private data; its form and all else in it unchanged."""

    value: JsonValue
    redactions: tuple[Redaction, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a document: the path as sent and as stored, the keys above, the object around."""

    path: Path = ()
    shown: Path = ()
    siblings: Mapping[str, JsonValue] | None = None

    @property
    def context(self) -> str | None:
        return joined_context(tuple(part for part in self.path if isinstance(part, str)))

    def item(self, index: int) -> "_Place":
        return self._below(index, index, None)

    def member(self, key: str, shown: str, siblings: Mapping[str, JsonValue]) -> "_Place":
        return self._below(key, shown, siblings)

    def _below(
        self, part: str | int, shown: str | int, siblings: Mapping[str, JsonValue] | None
    ) -> "_Place":
        if len(self.path) >= _MAX_DEPTH:
            raise PermanentError(Reason.OVERSIZED, "nesting")
        return _Place((*self.path, part), (*self.shown, shown), siblings)


class Redactor:
    """Redacts for one tenant under one policy."""

    def __init__(
        self,
        *,
        detector: Detector,
        tenant_key: bytes,
        cache: DigestCache,
        policy_version: str,
        language: str = "en",
    ) -> None:
        """`tenant_key` is secret, 16 bytes or more; `cache` may be shared between tenants."""
        if len(tenant_key) < _MIN_KEY_BYTES:
            raise ConfigError("A tenant key has 16 bytes or more; make one with `headrace keys`.")
        self._placeholders = Placeholders(tenant_key)
        self._digester = Digester(
            tenant_key=tenant_key,
            policy_version=policy_version,
            language=language,
            detector_version=detector.version,
        )
        self._scanner = Scanner(
            detector=detector,
            cache=cache,
            digester=self._digester,
            placeholders=self._placeholders,
        )
        self._names: OrderedDict[bytes, frozenset[str]] = OrderedDict()

    def text(self, text: str) -> RedactedText:
        """Redact one text that stands alone. Raises DetectorUnavailable."""
        walk = _Walk(self._scanner, protocol_fields)
        walk.learn(text, _Place())
        return RedactedText(walk.leaf(text, _Place()), tuple(walk.redactions))

    def json(
        self,
        value: JsonValue,
        *,
        skip: PathRule = protocol_fields,
        background: Sequence[JsonValue] = (),
        names: Collection[str] = (),
    ) -> RedactedJson:
        """Redact every string leaf of a document, and keys that hold private data.

        Names found in the documents of `background` (earlier messages, say) are looked for in
        this one too, as are `names`, which `names_in` found in them for several documents at
        once; the background itself is not returned. Raises DetectorUnavailable, and
        PermanentError for a document nested deeper than 200 levels.
        """
        walk = _Walk(self._scanner, skip)
        walk.names.add(names)
        walk.names.add(self.names_in(background))
        walk.learn(value, _Place())
        return RedactedJson(walk.value(value, _Place()), tuple(walk.redactions))

    def read_ahead(self, documents: Iterable[JsonValue]) -> None:
        """Have a model read the texts of these documents together, in a third of the time. What
        the other methods find is the same without; never raises."""
        if self._scanner.reads_ahead:
            walk = _Walk(self._scanner, protocol_fields)
            texts = (text for document in documents for text in walk.texts(document, _Place()))
            with suppress(PermanentError):  # nested too deeply: whoever redacts it says so
                self._scanner.read_ahead(texts)

    def names_in(self, documents: Iterable[JsonValue]) -> frozenset[str]:
        """The names that these documents lend to others. Raises as `json` does."""
        return frozenset().union(*map(self._names_in, documents))

    def _names_in(self, document: JsonValue) -> frozenset[str]:
        """The names a document lends to others. History is sent with every call, so they are
        remembered under a keyed digest: a walk through all of it would cost more than the rest."""
        digest = self._digester.digest(dumps(document, ensure_ascii=True), "names")
        names = self._names.get(digest)
        if names is None:
            walk = _Walk(self._scanner, protocol_fields)
            walk.learn(document, _Place())
            names = walk.names.words
            while len(self._names) >= _MAX_REMEMBERED_DOCUMENTS:
                self._names.popitem(last=False)
        self._names[digest] = names
        self._names.move_to_end(digest)
        return names

    def private_values(
        self, documents: Iterable[JsonValue], names: Collection[str]
    ) -> dict[str, str]:
        """What goes from these documents, as it is written and as it is meant, and what stands in
        its place. Original text: for looking, never for keeping. Raises as `json` does."""
        values: dict[str, str] = {}
        for document in documents:
            walk = _Walk(self._scanner, protocol_fields)
            walk.names.add(names)
            walk.learn(document, _Place())
            walk.value(document, _Place())
            values |= walk.values
        return values

    def replacements(self, text: str, names: Collection[str]) -> list[Replacement]:
        """What goes from a text that is the content of a message, in order. Raises as `json`."""
        place = _Place().member("content", "content", {})
        walk = _Walk(self._scanner, protocol_fields)
        walk.names.add(names)
        walk.learn(text, place)
        walk.leaf(text, place)
        return [Replacement(r.start, r.end, r.kind, r.placeholder) for r in walk.redactions]

    def placeholders_in(self, text: str) -> list[tuple[int, int]]:
        """Where the text holds placeholders that this redactor made, in order."""
        return self._placeholders.find(text)

    def identifier(self, value: str) -> str:
        """`value` itself if it holds nothing private, else a stable pseudonym of it."""
        if _OPAQUE_ID.fullmatch(value) or self._placeholders.is_bare(value):
            return value
        found = self.text(value)
        if not found.redactions:
            return value
        # What is private as a whole has the same letters here and in texts.
        return bare(found.text) or self._placeholders.pseudonym(value)


class _Walk:
    """One document on its way through: the names learnt from it and what was replaced in it."""

    def __init__(self, scanner: Scanner, skip: PathRule) -> None:
        self._scanner = scanner
        self._skip = skip
        self.names = KnownNames()
        self.redactions: list[Redaction] = []
        #: What was replaced → what stands in its place.
        self.values: dict[str, str] = {}

    def learn(self, value: JsonValue, place: _Place) -> None:
        """Collect the names in all leaves, before the first leaf is redacted."""
        for fragment in self.texts(value, place):
            self._learn_fragment(fragment)

    def texts(self, value: JsonValue, place: _Place) -> Iterator[Fragment]:
        """All that is looked at in the leaves of a document."""
        if isinstance(value, str):
            if not self._is_exempt(place):
                yield from fragments(value, place.context)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.texts(item, place.item(index))
        elif isinstance(value, dict):
            for key, inner in value.items():
                yield from self.texts(inner, place.member(key, key, value))

    def _learn_fragment(self, fragment: Fragment) -> None:
        if not fragment.is_opaque:
            findings = self._scanner.findings(fragment.text, fragment.context)
            self.names.learn(fragment.text, findings)

    def value(self, value: JsonValue, place: _Place) -> JsonValue:
        """The value with every leaf and key in it redacted."""
        if isinstance(value, str):
            return value if self._is_exempt(place) else self.leaf(value, place)
        if isinstance(value, list):
            return [self.value(item, place.item(index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return self._number(value, place) if type(value) is int else value
        members: dict[str, JsonValue] = {}
        for key, inner in value.items():
            shown = self._key(key, place)
            members[shown] = self.value(inner, place.member(key, shown, value))
        return members

    def leaf(self, text: str, place: _Place) -> str:
        """One string leaf, JSON text or not."""
        made: list[Replacement] = []
        for fragment in fragments(text, place.context):
            all_found = self._scanner.replacements(fragment, self.names)
            for found in all_found[:1] if fragment.is_number else all_found:
                made.append(in_leaf := _in_leaf(found, fragment))
                self.values[fragment.text[found.start : found.end]] = found.placeholder
                self.values[text[in_leaf.start : in_leaf.end]] = found.placeholder
        if not made:
            return text
        self._note(pointer(place.shown), made)
        return replaced(text, made)

    def _number(self, value: int, place: _Place) -> JsonValue:
        """The number, or a text in its place: a phone or a card may be sent as a number."""
        if not _MIN_PRIVATE_NUMBER <= value < _MAX_PRIVATE_NUMBER:
            return value
        text = self.leaf(str(value), place)
        return value if text == str(value) else text

    def _key(self, key: str, place: _Place) -> str:
        fragment = as_meant(Fragment(key, None, None, is_key=True))
        found = self._scanner.replacements(fragment, self.names)
        if not found:
            return key
        made = [_in_leaf(item, fragment) for item in found]
        self.values |= {key[item.start : item.end]: item.placeholder for item in made}
        shown = replaced(key, made)
        self._note(pointer((*place.shown, shown)) + "#", made)
        return shown

    def _note(self, path: str, made: Iterable[Replacement]) -> None:
        self.redactions += [
            Redaction(path, item.kind, item.start, item.end, item.placeholder) for item in made
        ]

    def _is_exempt(self, place: _Place) -> bool:
        return place.siblings is not None and self._skip(place.path, place.siblings)


def _in_leaf(replacement: Replacement, fragment: Fragment) -> Replacement:
    """A replacement in a fragment as one in the leaf that the fragment comes from."""
    if fragment.is_number:
        placeholder = f'"{replacement.placeholder}"'
        start, end = fragment.origin(0), fragment.stop(len(fragment.text))
        return Replacement(start, end, replacement.kind, placeholder)
    if fragment.origins is None and not fragment.start:
        return replacement
    start, end = fragment.origin(replacement.start), fragment.stop(replacement.end)
    return Replacement(start, end, replacement.kind, replacement.placeholder)


Tier = Literal["regex", "fast", "accurate"]


def build_redactor(
    tier: Tier,
    *,
    tenant_key: bytes,
    cache: DigestCache,
    policy_version: str,
    language: str = "en",
) -> Redactor:
    """A redactor on the named tier. Loading a model takes seconds: build one a process.

    Raises ConfigError for an unknown tier, an unsupported language or a missing model.
    """
    return Redactor(
        detector=build_detector(tier, language=language),
        tenant_key=tenant_key,
        cache=cache,
        policy_version=policy_version,
        language=language,
    )


def build_detector(
    tier: str, *, language: str = "en", budget: Budget | None = None, model: str | None = None
) -> Detector:
    """The detector of a tier, to be shared by the redactors of several tenants.

    `budget` bounds the tier whose time a text can drive up; `model` is that of the accurate tier.
    """
    # Imported where needed, so that the regex tier runs without name lists, spaCy and Presidio.
    if tier == "regex":
        return RegexDetector()
    if tier == "fast":
        from streams.redaction.detect.fast import FastDetector

        return FastDetector()
    if tier == "accurate":
        from streams.redaction.detect.presidio import PresidioDetector

        return PresidioDetector(language=language, budget=budget, model=model)
    raise ConfigError(f"Unknown redaction tier {tier!r}; set it to 'regex', 'fast' or 'accurate'.")
