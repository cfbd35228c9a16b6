"""What the log alone proves while the store shows nothing: a sink that is behind loses nothing."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.reconcile.reading import Known, Sources
from infra.reconcile.report import Kind, Line
from infra.reconcile.run import account
from infra.store import Reader
from schemas import topics
from schemas.atdp.internal import DeadLetter, Quarantined, UnresolvedFeedback
from schemas.atdp.types import Coordinates, Feedback, FeedbackTarget, Reward, TrajectoryEnd
from schemas.bus import Record, deliver
from schemas.bus.memory import MemoryBus
from schemas.codec import encode
from schemas.log_gaps import LogGap
from tests.sink_events import reward, step

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUM_RAW = 8
KNOWN = Known()


class EmptyStore(Reader):
    """A store with tables and without rows."""

    def __init__(self) -> None:
        """No connection."""

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:  # noqa: ARG002
        return []

    def blocks(self, sql: str) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:  # noqa: ARG002
        return iter(())


@pytest.fixture
def bus() -> MemoryBus:
    made = MemoryBus()
    made.admin().create_topics(topics.all_topics(), 1, 1)
    return made


def put(bus: MemoryBus, topic: str, *events: Any) -> None:
    records = [Record(topic, b"k", e if isinstance(e, bytes) else encode(e)) for e in events]
    asyncio.run(deliver(bus.producer("test"), records))


def line(
    bus: MemoryBus, topic: str, group: str, committed: int | None, known: Known = KNOWN
) -> Line:
    sources = Sources(bus, bus.admin(), EmptyStore())
    at = {} if committed is None else {(topic, 0): committed}
    (found,) = account(sources, topic, group, bus.admin().watermarks(topic), at, known)
    return found


def at(offset: int, topic: str = topics.RAW_EVENTS) -> Coordinates:
    return Coordinates(topic=topic, partition=0, offset=offset)


def rating(offset: int) -> UnresolvedFeedback:
    feedback = Feedback(
        reward_id=f"r-{offset}", tenant_id="a", target=FeedbackTarget(step_id="s"), name="n",
        occurred_at=NOW, received_at=NOW,
    )  # fmt: skip
    return UnresolvedFeedback(alias="x", feedback=feedback, raw=at(offset))


def letter(source: Coordinates, group: str) -> DeadLetter:
    return DeadLetter(
        dead_letter_id="d", group=group, source=source, reason="bug", occurred_at=NOW
    )  # fmt: skip


def test_every_way_out_of_redaction_proves_the_raw_record(bus: MemoryBus) -> None:
    put(bus, topics.RAW_EVENTS, *[b"raw"] * NUM_RAW)
    put(bus, topics.STEPS, step("a", "t", 0, source=at(0)), step("a", "t", 0, source=at(1)))
    put(bus, topics.REWARDS, reward("a", raw=at(2)))
    end = TrajectoryEnd(
        event_id="e", tenant_id="a", trajectory_id="t", occurred_at=NOW, raw=at(3)
    )  # fmt: skip
    put(bus, topics.ENDS, end)
    put(bus, topics.RAW_UNRESOLVED, rating(4))
    dead = topics.dead_letter_topic(topics.RAW_EVENTS)
    put(bus, dead, letter(at(5), topics.REDACTION), letter(at(6), topics.SINK))
    set_aside = Quarantined(
        quarantine_id="q", source=at(6), reason="bug", occurred_at=NOW, value=b""
    )  # fmt: skip
    put(bus, topics.QUARANTINE, set_aside)
    found = line(bus, topics.RAW_EVENTS, topics.REDACTION, NUM_RAW)
    assert +found.counts == Counter(
        {Kind.STORED: 5, Kind.DEAD_LETTERED: 1, Kind.QUARANTINED: 1, Kind.MISSING: 1}
    )
    assert found.stretches == ((7, 8),)
    assert not found.is_balanced


def test_what_is_not_committed_is_unread_and_not_missing(bus: MemoryBus) -> None:
    put(bus, topics.RAW_EVENTS, *[b"raw"] * NUM_RAW)
    for committed in (0, None):
        found = line(bus, topics.RAW_EVENTS, topics.REDACTION, committed)
        assert +found.counts == {Kind.UNREAD: NUM_RAW}
        assert found.is_balanced


def test_a_record_that_no_row_shows_is_missing(bus: MemoryBus) -> None:
    put(bus, topics.STEPS, step("a", "t", 0), step("a", "t", 1), b"\0broken")
    put(bus, topics.dead_letter_topic(topics.STEPS), letter(at(2, topics.STEPS), topics.SINK))
    found = line(bus, topics.STEPS, topics.SINK, 3)
    assert +found.counts == {Kind.MISSING: 2, Kind.DEAD_LETTERED: 1}


def test_rows_of_an_epoch_before_the_tables_were_wiped_were_made_anew(bus: MemoryBus) -> None:
    put(bus, topics.STEPS, *[step("a", "t", 0, replay_epoch=epoch) for epoch in (0, 1, 2, 3)])
    found = line(bus, topics.STEPS, topics.SINK, 4, Known(wiped_epoch=2))
    assert +found.counts == {Kind.REPLACED: 2, Kind.MISSING: 2}


def test_a_reward_on_its_way_to_the_store_proves_the_feedback(bus: MemoryBus) -> None:
    put(bus, topics.RAW_UNRESOLVED, rating(4), rating(4), rating(5))
    made: Reward = reward("a", raw=at(4))
    put(bus, topics.REWARDS, made)
    found = line(bus, topics.RAW_UNRESOLVED, topics.REDACTION, 3)
    assert +found.counts == {Kind.STORED: 2, Kind.MISSING: 1}


def test_batching_is_trusted_where_a_decision_is_not_stored_yet(bus: MemoryBus) -> None:
    put(bus, topics.SAMPLES, *[b"sample"] * 3)
    found = line(bus, topics.SAMPLES, topics.BATCHING, 2)
    assert +found.counts == {Kind.IN_STATE: 2, Kind.UNREAD: 1}


def test_a_worn_log_is_gaps_as_far_as_it_was_not_read_and_expired_otherwise(
    bus: MemoryBus,
) -> None:
    put(bus, topics.STEPS, *[step("a", "t", n) for n in range(10)])
    log = bus.logs[topics.STEPS][0]
    log.first, log.records = 6, log.records[6:]
    gap = LogGap(topics.ASSEMBLY, topics.STEPS, 0, 1, 3)
    recorded = line(bus, topics.STEPS, topics.ASSEMBLY, 8, Known((gap,)))
    assert +recorded.counts == {Kind.GAPS: 2, Kind.EXPIRED: 4, Kind.IN_STATE: 2, Kind.UNREAD: 2}
    not_yet = line(bus, topics.STEPS, topics.ASSEMBLY, 4)
    assert +not_yet.counts == {Kind.GAPS: 2, Kind.EXPIRED: 4, Kind.UNREAD: 4}
    never = line(bus, topics.STEPS, topics.ASSEMBLY, None)
    assert +never.counts == {Kind.GAPS: 6, Kind.UNREAD: 4}
