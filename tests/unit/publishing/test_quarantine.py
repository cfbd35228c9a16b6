"""Quarantine over the memory bus: what is there, and what a decision does."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.inspection import bounds, read_between
from infra.quarantine import Decision, drop, pick, read_cases, release
from schemas import codec, topics
from schemas.atdp.internal import AuditEvent, Quarantined
from schemas.atdp.types import Coordinates
from schemas.bus import Record
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.store import BlobStore, sweep
from tests.unit.redaction_processor.captures import exchange

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS = (("content-type", b"application/json"),)
BLOBS = BlobStore("memory://quarantined")


@pytest.fixture
def bus() -> MemoryBus:
    made = MemoryBus()
    made.admin().create_topics(topics.all_topics(), 2, 1)
    return made


def put(bus: MemoryBus, record: Record) -> tuple[int, int]:
    reports: list[Any] = []
    bus.producer("test").send(record, reports.append)
    return reports[0].partition, reports[0].offset


def set_aside(bus: MemoryBus, name: str, partition: int, offset: int, minutes: int = 0) -> None:
    event = Quarantined(
        quarantine_id=name,
        source=Coordinates(topic=topics.RAW_EVENTS, partition=partition, offset=offset),
        reason="detector_timeout",
        occurred_at=NOW + timedelta(minutes=minutes),
        value=b'{"kept": 1}',
    )
    put(bus, Record(topics.QUARANTINE, name.encode(), codec.encode(event)))


def raw(bus: MemoryBus) -> list[Any]:
    return [seen.record for seen in read_between(bus, *bounds(bus.admin(), topics.RAW_EVENTS))]


def audits(bus: MemoryBus) -> list[AuditEvent]:
    found = [seen.event for seen in read_between(bus, *bounds(bus.admin(), topics.AUDIT))]
    assert all(isinstance(event, AuditEvent) for event in found)
    return [event for event in found if event is not None]


def test_cases_are_listed_once_and_oldest_first(bus: MemoryBus) -> None:
    set_aside(bus, "b" * 32, 0, 1, minutes=2)
    set_aside(bus, "a" * 32, 0, 0, minutes=1)
    set_aside(bus, "b" * 32, 0, 1, minutes=3)
    cases = read_cases(bus, bus.admin())
    assert [(case.case_id[0], case.decision) for case in cases] == [("a", None), ("b", None)]


def test_a_released_record_is_the_original_again_on_its_partition(bus: MemoryBus) -> None:
    original = Record(topics.RAW_EVENTS, b"acme/t", b'{"original": 1}', HEADERS, partition=1)
    partition, offset = put(bus, original)
    set_aside(bus, "a" * 32, partition, offset)
    cases = read_cases(bus, bus.admin())
    (item,) = release(bus, bus.admin(), bus.producer("test"), BLOBS, cases, "repaired")
    assert (item.partition, item.offset) == (1, offset + 1)
    first, again = raw(bus)
    assert (again.key, again.value, again.headers) == (first.key, first.value, first.headers)


def test_what_retention_took_is_released_from_quarantine_itself(bus: MemoryBus) -> None:
    set_aside(bus, "a" * 32, 1, 7)
    release(bus, bus.admin(), bus.producer("test"), BLOBS, read_cases(bus, bus.admin()), "")
    (again,) = raw(bus)
    assert (again.partition, again.key, again.value) == (1, None, b'{"kept": 1}')


def test_the_bodies_of_a_released_record_are_as_new(bus: MemoryBus, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path.as_uri())
    uris = [blobs.put("acme", body) for body in (b"asked", b"answered")]
    call = exchange([], None, "a", request_body_uri=uris[0], response_body_uri=uris[1])
    value = codec.encode(replace(call, request_body=b"", response_body=b""))
    partition, offset = put(bus, Record(topics.RAW_EVENTS, b"acme/t", value, partition=1))
    set_aside(bus, "a" * 32, partition, offset)
    for file in tmp_path.rglob("?" * 64):
        os.utime(file, (0, 0))
    release(bus, bus.admin(), bus.producer("test"), blobs, read_cases(bus, bus.admin()), "")
    assert sweep(tmp_path.as_uri(), 3_600).num_blobs == 0
    assert [blobs.get("acme", uri) for uri in uris] == [b"asked", b"answered"]


def test_a_body_that_is_gone_does_not_keep_its_record_back(bus: MemoryBus) -> None:
    call = exchange([], None, "a", request_body=b"", request_body_uri=f"sha256:acme/{'0' * 64}")
    record = Record(topics.RAW_EVENTS, b"acme/t", codec.encode(call), partition=1)
    set_aside(bus, "a" * 32, *put(bus, record))
    release(bus, bus.admin(), bus.producer("test"), BLOBS, read_cases(bus, bus.admin()), "")
    assert len(raw(bus)) == 2, "redaction says what is missing"


def test_a_decision_is_recorded_without_text_of_the_record(bus: MemoryBus) -> None:
    set_aside(bus, "a" * 32, 1, 7)
    release(bus, bus.admin(), bus.producer("test"), BLOBS, read_cases(bus, bus.admin()), "repaired")
    (event,) = audits(bus)
    assert (event.action, event.subject) == (Decision.RELEASED, "a" * 32)
    assert event.actor.startswith("cli:")
    assert json.loads(event.details) == {
        "source": f"{topics.RAW_EVENTS}/1/7", "reason": "detector_timeout", "why": "repaired",
        "partition": 1, "offset": 0,
    }  # fmt: skip


def test_the_last_decision_counts(bus: MemoryBus) -> None:
    set_aside(bus, "a" * 32, 1, 7)
    set_aside(bus, "b" * 32, 1, 8)
    producer = bus.producer("test")
    drop(producer, [pick(read_cases(bus, bus.admin()), "aaaaaa")], "test data")
    decisions = {case.case_id[0]: case.decision for case in read_cases(bus, bus.admin())}
    assert decisions == {"a": Decision.DROPPED, "b": None}
    release(bus, bus.admin(), producer, BLOBS, [pick(read_cases(bus, bus.admin()), "aaaaaa")], "no")
    assert pick(read_cases(bus, bus.admin()), "aaaaaa").decision is Decision.RELEASED
    assert raw(bus)


def test_a_dropped_record_is_sent_nowhere(bus: MemoryBus) -> None:
    set_aside(bus, "a" * 32, 1, 7)
    drop(bus.producer("test"), read_cases(bus, bus.admin()), "test data")
    assert raw(bus) == []
    assert [event.action for event in audits(bus)] == [Decision.DROPPED]


@pytest.mark.parametrize("name", ["", "aaaaa", "ffffff"])
def test_a_name_that_is_no_case_is_refused(bus: MemoryBus, name: str) -> None:
    set_aside(bus, "a" * 32, 1, 7)
    with pytest.raises(ConfigError, match="quarantine list"):
        pick(read_cases(bus, bus.admin()), name)


def test_the_beginning_of_two_ids_is_refused(bus: MemoryBus) -> None:
    set_aside(bus, "aaaaaaaa", 1, 7)
    set_aside(bus, "aaaaaabb", 1, 8)
    with pytest.raises(ConfigError, match="2 ids"):
        pick(read_cases(bus, bus.admin()), "aaaaaa")
