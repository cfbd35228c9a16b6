"""Each text to the detector of its language, or to none.

    script ──▶ letters that no list of ours knows?  ──▶ unsupported
    prose  ──▶ language of its words ──▶ a listed one: its model   another: the first one's, or none

Findings are remembered by digest above, so a text is identified once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, Literal

from schemas.errors import ConfigError
from streams.redaction.detect.contract import Detector, ReadsAhead, Span, UnsupportedLanguage
from streams.redaction.detect.fast import CODE
from streams.redaction.detect.opaque import blank_opaque

#: What becomes of texts in languages that a tenant does not list: read all the same; read unless
#: their script is one whose names no tier knows; set aside.
Others = Literal["read", "known", "quarantine"]

#: Letters that say the language by themselves, in this order: Japanese has Chinese ones too.
_SCRIPTS: Final = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7ff\u1100-\u11ff]")),
    ("zh", re.compile("[\u3400-\u9fff\uf900-\ufaff]")),
    ("ru", re.compile("[\u0400-\u052f]")),
    ("el", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u0dff]")),
    ("th", re.compile("[\u0e00-\u0eff]")),
    ("hy", re.compile("[\u0530-\u058f]")),
    ("ka", re.compile("[\u10a0-\u10ff]")),
    ("am", re.compile("[\u1200-\u137f]")),
    ("km", re.compile("[\u1780-\u17ff]")),
    ("my", re.compile("[\u1000-\u109f]")),
)
#: Scripts whose names the lists hold.
KNOWN_SCRIPTS: Final = frozenset({"ja", "ko", "zh", "ru", "el"})
#: Fewer letters of a script are a word quoted in another language, such as the name of one.
_MIN_SCRIPT_LETTERS: Final = 12
_LATIN: Final = ("en", "fr", "de", "es", "it", "pt", "nl", "sv", "da", "no", "fi", "pl", "cs", "tr",
                 "ro", "hu", "id", "vi")  # fmt: skip
#: What is looked at of a long text: time has a bound, and the first lines tell.
_MAX_CHARACTERS: Final = 600
_MIN_WORDS: Final = 4
_MIN_SURENESS: Final = 0.9
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


class ByLanguage:
    """A detector that asks the one of the text's language."""

    def __init__(
        self,
        detectors: Mapping[str, Detector],
        others: Others = "known",
        identify: Callable[[str], str | None] | None = None,
    ) -> None:
        """`detectors` by language; the first also reads what has no language of its own, such as
        ids and logs. `identify` tells the language of prose in Latin letters.

        Raises ConfigError where prose has to be identified and the package is not installed.
        """
        self._detectors = dict(detectors)
        self._first = next(iter(detectors))
        self._others = others
        is_needed = len(detectors) > 1 or others == "quarantine"
        self._identify = (identify or _identifier()) if is_needed else None
        versions = "+".join(dict.fromkeys(each.version for each in detectors.values()))
        languages = ",".join(detectors)
        self.version = f"{versions}+{languages}+{others}"

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Raises what the detectors raise, and UnsupportedLanguage."""
        language = self.language_of(text)
        if language is not None and language not in self._detectors and self._refuses(language):
            raise UnsupportedLanguage("The text is in a language that is not listed.")
        detector = self._detectors.get(language or self._first, self._detectors[self._first])
        return detector.detect(text, context=context)

    def read_ahead(self, texts: Sequence[str]) -> None:
        """See `ReadsAhead`: each detector reads the texts of its language."""
        by_language: dict[str, list[str]] = {}
        is_of_use = any(isinstance(each, ReadsAhead) for each in self._detectors.values())
        for text in texts if is_of_use else ():
            language = self.language_of(text) or self._first
            language = language if language in self._detectors else self._first
            by_language.setdefault(language, []).append(text)
        for language, of_language in by_language.items():
            detector = self._detectors[language]
            if isinstance(detector, ReadsAhead):
                detector.read_ahead(of_language)

    def language_of(self, text: str) -> str | None:
        """The language of a text; None where it has none or is too short to tell."""
        if not text.isascii():
            for language, letters in _SCRIPTS:
                if len(letters.findall(text)) >= _MIN_SCRIPT_LETTERS:
                    return language
        return self._language_of_prose(text) if self._identify is not None else None

    def _refuses(self, language: str) -> bool:
        if self._others == "known":
            return language not in KNOWN_SCRIPTS and language not in _LATIN
        return self._others == "quarantine"

    def _language_of_prose(self, text: str) -> str | None:
        head = blank_opaque(text[:_MAX_CHARACTERS])
        prose = "\n".join(line for line in head.split("\n") if CODE.search(line) is None)
        if len(_WORD.findall(prose)) < _MIN_WORDS or self._identify is None:
            return None
        return self._identify(prose)


@cache
def _identifier() -> Callable[[str], str | None]:
    """Tells one of the languages in Latin letters, where it is sure. Loads for a second."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise ConfigError(
            "Several languages, or setting others aside, need the package py3langid: "
            "pip install 'headrace[redaction]'."
        ) from None
    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages(_LATIN)

    def identify(text: str) -> str | None:
        language, sureness = model.classify(text)
        return str(language) if sureness >= _MIN_SURENESS else None

    return identify
