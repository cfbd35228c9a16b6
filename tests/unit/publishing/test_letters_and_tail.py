"""Dead letters, tail and topics over the memory bus."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.cli.tail import as_line, as_text, wants
from infra.cli.topics import topic_states
from infra.inspection import bounds, read_between, record_at, registered, see
from infra.letters import RETRIED, pick, read_letters, retry
from schemas import codec, topics
from schemas.atdp.internal import AuditEvent, DeadLetter
from schemas.atdp.types import Coordinates, TrajectoryEnd
from schemas.bus import Received, Record
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def bus() -> MemoryBus:
    made = MemoryBus()
    made.admin().create_topics(topics.all_topics(), 2, 1)
    return made


def put(bus: MemoryBus, record: Record) -> tuple[int, int]:
    reports: list[Any] = []
    bus.producer("test").send(record, reports.append)
    return reports[0].partition, reports[0].offset


def dead(bus: MemoryBus, name: str, partition: int, offset: int, minutes: int = 0) -> DeadLetter:
    letter = DeadLetter(
        dead_letter_id=name,
        group=topics.REDACTION,
        source=Coordinates(topic=topics.RAW_EVENTS, partition=partition, offset=offset),
        reason="undecodable",
        occurred_at=NOW + timedelta(minutes=minutes),
    )
    topic = topics.dead_letter_topic(topics.RAW_EVENTS)
    put(bus, Record(topic, name.encode(), codec.encode(letter)))
    return letter


def received(value: bytes | None, topic: str = topics.ENDS) -> Received:
    return Received(topic, 0, 7, b"acme/t", value, timestamp_ms=0)


def end_of(tenant: str = "acme", trajectory: str = "t", **fields: Any) -> bytes:
    event = TrajectoryEnd(
        event_id="e", tenant_id=tenant, trajectory_id=trajectory, occurred_at=NOW, **fields
    )
    return codec.encode(event)


def test_letters_are_listed_once_and_oldest_first(bus: MemoryBus) -> None:
    dead(bus, "b" * 32, 0, 1, minutes=2)
    dead(bus, "a" * 32, 0, 0, minutes=1)
    dead(bus, "b" * 32, 0, 1, minutes=3)
    assert [x.letter_id[0] for x in read_letters(bus, bus.admin())] == ["a", "b"]


def test_a_retry_repeats_key_value_and_headers_and_is_audited(bus: MemoryBus) -> None:
    original = Record(topics.RAW_EVENTS, b"acme/t", b"{broken", (("content-type", b"x"),))
    partition, offset = put(bus, original)
    dead(bus, "a" * 32, partition, offset)
    producer = bus.producer("test")
    (result,) = retry(bus, bus.admin(), producer, read_letters(bus, bus.admin()))
    assert (result.partition, result.offset) == (partition, offset + 1)
    again = record_at(bus, bus.admin(), topics.RAW_EVENTS, partition, offset + 1)
    assert again is not None
    assert (again.key, again.value, again.headers) == (b"acme/t", b"{broken", original.headers)
    (audit,) = read_between(bus, *bounds(bus.admin(), topics.AUDIT))
    assert isinstance(audit.event, AuditEvent)
    assert (audit.event.action, audit.event.subject) == (RETRIED, "a" * 32)
    assert "{broken" not in audit.event.details
    (letter,) = read_letters(bus, bus.admin())
    assert letter.retried_at == audit.event.occurred_at


def test_an_original_that_expired_is_gone_and_not_audited(bus: MemoryBus) -> None:
    partition, offset = put(bus, Record(topics.RAW_EVENTS, b"k", b"v"))
    bus.logs[topics.RAW_EVENTS][partition].first = offset + 1
    bus.logs[topics.RAW_EVENTS][partition].records.clear()
    dead(bus, "a" * 32, partition, offset)
    letters = read_letters(bus, bus.admin())
    (result,) = retry(bus, bus.admin(), bus.producer("test"), letters)
    assert result.is_gone
    assert not list(read_between(bus, *bounds(bus.admin(), topics.AUDIT)))


def test_a_letter_is_picked_by_the_beginning_of_its_id(bus: MemoryBus) -> None:
    dead(bus, "abcdef01", 0, 0)
    dead(bus, "abcdef02", 0, 1)
    letters = read_letters(bus, bus.admin())
    assert pick(letters, "abcdef02").letter_id == "abcdef02"
    for unclear in ("abcdef", "abc", "zzzzzzzz"):
        with pytest.raises(ConfigError, match="id"):
            pick(letters, unclear)


def test_tail_prints_an_event_as_json_and_as_a_line() -> None:
    seen = see(received(end_of(reason="done")))
    line = json.loads(as_line(seen))
    assert (line["type"], line["offset"], line["event"]["reason"]) == ("TrajectoryEnd", 7, "done")
    assert as_text(seen).startswith("1970-01-01T00:00:00.000+00:00  0/7  TrajectoryEnd  t")


def test_a_line_cannot_steer_the_terminal() -> None:
    text = as_text(see(received(end_of(reason="\x1b[2J\n gone"))))
    assert text.isprintable()


@pytest.mark.parametrize(
    ("value", "topic", "reason"),
    [
        (b"{broken", topics.ENDS, "undecodable"),
        (b"\0\0\0\xff\xff", topics.ENDS, "unknown_schema"),
        (None, topics.KEYS, "a deletion of the key"),
        (b"x", topics.changelog_topic(topics.ASSEMBLY, "trajectories"), "state of a processor"),
    ],
)
def test_what_cannot_be_decoded_has_coordinates_and_a_reason(
    value: bytes | None, topic: str, reason: str
) -> None:
    seen = see(received(value, topic))
    line = json.loads(as_line(seen))
    assert (line["partition"], line["offset"], line["event"]) == (0, 7, None)
    assert reason in line["reason"]
    assert reason in as_text(seen)
    assert "broken" not in as_text(seen)


def test_filters_by_tenant_and_trajectory() -> None:
    mine, other = see(received(end_of())), see(received(end_of("b", "u")))
    broken = see(received(b"x"))
    assert list(filter(wants(None, None), [mine, other, broken])) == [mine, other, broken]
    assert list(filter(wants("acme", None), [mine, other, broken])) == [mine]
    assert list(filter(wants(None, "u"), [mine, other, broken])) == [other]


def test_lag_counts_what_a_group_has_still_to_read(bus: MemoryBus) -> None:
    for number in range(6):
        put(bus, Record(topics.ENDS, str(number).encode(), end_of()))
    before = {s.name: s for s in topic_states(bus.admin())}[topics.ENDS]
    assert (before.num_partitions, before.num_records) == (2, 6)
    assert before.lag == {topics.ASSEMBLY: None}
    ends = {p: end for p, (_, end) in bus.admin().watermarks(topics.ENDS).items()}
    bus.admin().commit(topics.ASSEMBLY, {(topics.ENDS, 0): ends[0]})
    after = {s.name: s for s in topic_states(bus.admin())}[topics.ENDS]
    assert after.lag == {topics.ASSEMBLY: ends[1]}


def test_a_missing_topic_is_said_to_be_missing(bus: MemoryBus) -> None:
    bus.admin().delete_topics([topics.SAMPLES])
    state = {s.name: s for s in topic_states(bus.admin())}[topics.SAMPLES]
    assert replace(state, lag={}) == replace(state, exists=False, num_records=0, lag={})
    with pytest.raises(ConfigError, match="headrace topics"):
        registered("no.such.topic")
