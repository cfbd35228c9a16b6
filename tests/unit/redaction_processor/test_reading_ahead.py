"""Texts of several calls are read by the model at once, and all is as without."""

from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.bus import Received
from schemas.settings import RedactionSettings
from streams.redaction.detect.contract import DetectorUnavailable
from streams.redaction.detect.presidio import PresidioDetector
from streams.redaction.processor import RedactionProcessor
from streams.redaction.tenants import Tenants
from streams.runtime import ReplayMark
from streams.runtime.lane import Effects, ReadsAhead
from tests.unit.redaction_processor.captures import exchange, record
from tests.unit.redaction_processor.parts import ROOT, Redaction
from tests.unit.runtime_harness import DictTable, lane_over, memory_bus

TEXTS = [
    "Yesterday Anna Kowalski met John Smith's brother at the office.",
    "Please tell Oriel Brackenridge that the parcel for Mr. Haddad is here.",
    "Nothing private is said in this line, nor\nin the next one of Quorlax.",
]


class Counting:
    """Presidio's engine, and how often it was asked for how many lines."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.alone, self.together = 0, 0
        self.nlp_engine = self

    def analyze(self, *, nlp_artifacts: Any = None, **asked: Any) -> Any:
        self.alone += nlp_artifacts is None
        return self._inner.analyze(nlp_artifacts=nlp_artifacts, **asked)

    def process_batch(self, lines: Any, **asked: Any) -> Any:
        self.together += len(lines)
        return self._inner.nlp_engine.process_batch(lines, **asked)


@pytest.fixture(scope="module")
def plain() -> PresidioDetector:
    return PresidioDetector()


@pytest.fixture
def counting(plain: PresidioDetector) -> Counting:
    return Counting(plain._analyzer)


def test_what_was_read_ahead_is_found_alike(plain: PresidioDetector, counting: Counting) -> None:
    ahead = PresidioDetector(analyzer=counting)
    ahead.read_ahead(TEXTS)
    assert counting.together >= 3
    found = [list(ahead.detect(text)) for text in TEXTS]
    assert counting.alone == 0
    assert found == [list(plain.detect(text)) for text in TEXTS]
    assert [list(ahead.detect(text)) for text in TEXTS] == found
    assert counting.alone >= 3, "what was read ahead is kept although it was used"


def test_what_cannot_be_read_ahead_fails_where_it_is_looked_at() -> None:
    class Broken:
        nlp_engine: Any

        def process_batch(self, *_: Any, **__: Any) -> Any:
            raise ValueError("down")

        analyze = process_batch

    analyzer = Broken()
    analyzer.nlp_engine = analyzer
    detector = PresidioDetector(analyzer=analyzer)
    detector.read_ahead(TEXTS)
    with pytest.raises(DetectorUnavailable):
        detector.detect(TEXTS[0])


async def test_the_calls_of_a_batch_are_read_at_once(
    tmp_path: Path, plain: PresidioDetector, counting: Counting
) -> None:
    redaction = Redaction(tmp_path)
    calls = [
        exchange([{"role": "user", "content": text}], {"role": "assistant", "content": "y"}, f"{i}")
        for i, text in enumerate(TEXTS)
    ]  # fmt: skip
    redaction.tenants = Tenants(ROOT, RedactionSettings(tier="fast"))
    detectors = redaction.tenants._detectors
    ((key, _),) = detectors.items()
    detectors[key] = PresidioDetector(analyzer=counting)
    processor = RedactionProcessor(
        redaction.tenants, redaction.blobs, ReplayMark(), hold_seconds=0.0
    )
    lane = lane_over(redaction.bus, processor, tmp_path, table=DictTable())
    await lane.process([record(call, offset) for offset, call in enumerate(calls)])
    assert (counting.alone, counting.together >= 3) == (0, True)
    bodies = [s.observation.new_messages[0].body for s in redaction.events(topics.STEPS)]
    assert len(bodies) == 3
    assert not any(
        name in body for body in bodies for name in ("Kowalski", "Brackenridge", "Smith")
    )


async def test_a_record_that_stopped_the_process_ahead_of_its_turn_is_found(tmp_path: Path) -> None:
    class Processor:
        def __init__(self) -> None:
            self.handled: list[int] = []

        def read_ahead(self, records: list[Received]) -> None:
            if any(each.offset == 1 for each in records):
                raise KeyError("a bug")

        def handle(self, record: Received, state: Any, *, overdue: bool) -> Effects:  # noqa: ARG002
            if record.offset == 1:
                raise KeyError("a bug")
            self.handled.append(record.offset)
            return Effects()

    processor = Processor()
    assert isinstance(processor, ReadsAhead)
    records = [Received(topics.RAW_EVENTS, 0, offset, b"key", b"") for offset in range(3)]
    bus = memory_bus()
    for _ in range(4):  # once ahead, then as often as a record may stop the process
        with pytest.raises(KeyError):
            await lane_over(bus, processor, tmp_path).process(records)
    finished = await lane_over(bus, processor, tmp_path).process(records)
    assert [each.offset for each in finished] == [0, 1, 2]
    assert processor.handled[-2:] == [0, 2]
