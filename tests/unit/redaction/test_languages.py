"""Which detector reads a text, and which texts none does."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.errors import ConfigError, QuarantineError, Reason
from schemas.settings import RedactionSettings
from streams.redaction.detect.by_language import ByLanguage, Others
from streams.redaction.detect.contract import Span, UnsupportedLanguage
from streams.redaction.redactor import build_detector
from streams.redaction.tenants import Tenants

ENGLISH = "Yesterday she walked to the office and met nobody on the way there."
FRENCH = "Hier elle est allée au bureau et n'a rencontré personne sur son chemin."
GERMAN = "Gestern ging sie in das Büro und traf auf dem Weg dorthin niemanden."
CHINESE = "昨天她去了办公室,路上没有遇到任何人."
ARABIC = "ذهبت أمس إلى المكتب ولم تقابل أحدا في الطريق"
CODE = "def find(text: str) -> None:\n    for each in text.split(): print(each)"
LOG = "2026-02-03T10:11:12Z INFO auth user=17 ok=1 took=31ms"


class Named:
    """Says which detector was asked, in the kind of its finding."""

    def __init__(self, name: str) -> None:
        self.version = name

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:  # noqa: ARG002
        return (Span(0, 1, self.version),)


def asked(text: str, others: Others = "known") -> str:
    detector = ByLanguage({"en": Named("en"), "fr": Named("fr")}, others)
    (span,) = detector.detect(text)
    return span.kind


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"), (FRENCH, "fr"), (CODE, "en"), (LOG, "en"), ("Bonjour", "en"), ("", "en"),
        (f"{CODE}\n{FRENCH}", "fr"), (GERMAN, "en"), (CHINESE, "en"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "en"), (f"{ENGLISH} العربية", "en"),
    ],
)  # fmt: skip
def test_the_model_of_the_language_reads_it(text: str, language: str) -> None:
    assert asked(text) == language


@pytest.mark.parametrize(
    ("text", "others", "is_read"),
    [
        (GERMAN, "quarantine", False), (CHINESE, "quarantine", False),
        (ARABIC, "quarantine", False), (ARABIC, "known", False), (ARABIC, "read", True),
        (GERMAN, "known", True), (CHINESE, "known", True), (FRENCH, "quarantine", True),
        (CODE, "quarantine", True), (LOG, "quarantine", True), ("ok, danke", "quarantine", True),
    ],
)  # fmt: skip
def test_texts_in_other_languages(text: str, others: Others, *, is_read: bool) -> None:
    if is_read:
        assert asked(text, others) in ("en", "fr")
    else:
        with pytest.raises(UnsupportedLanguage) as caught:
            asked(text, others)
        assert text[:5] not in str(caught.value)


def test_the_version_names_languages_and_what_becomes_of_others() -> None:
    detectors = {"en": Named("a"), "fr": Named("b")}
    versions = {ByLanguage(detectors, others).version for others in ("read", "quarantine")}
    versions.add(ByLanguage({"en": Named("a")}, "read").version)
    assert len(versions) == 3


def test_a_french_name_is_found_by_the_french_model() -> None:
    text = "Nous avons reçu hier la demande de Gwendal Kerbrat concernant son billet de train."
    both = ByLanguage({each: build_detector("accurate", language=each) for each in ("en", "fr")})
    assert "Gwendal Kerbrat" in {text[s.start : s.end] for s in both.detect(text)}


def test_a_tenants_list_decides(tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text(
        '[tenants.strict]\ntier = "fast"\nlanguages = ["en"]\nother_languages = "quarantine"\n'
        '[tenants.open]\ntier = "fast"\nother_languages = "read"\n'
    )
    settings = RedactionSettings(tier="fast", policy_file=policies)
    tenants = Tenants(b"r" * 32, settings)

    def reason(tenant: str, text: str) -> Reason | None:
        try:
            tenants.redaction(tenant).text("content", text)
        except QuarantineError as error:
            return error.reason
        return None

    assert reason("strict", GERMAN) is reason("strict", ARABIC) is Reason.UNSUPPORTED_LANGUAGE
    assert reason("someone", ARABIC) is Reason.UNSUPPORTED_LANGUAGE
    assert reason("someone", GERMAN) is reason("open", ARABIC) is reason("strict", ENGLISH) is None


def test_a_listed_language_without_a_model_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="no model for language 'de'"):
        Tenants(b"r" * 32, RedactionSettings(tier="accurate", languages=("en", "de")))
