"""Quarantined records: which there are, and what somebody decided about each.

A decision is an event on the audit topic. Nothing is deleted by one: the record stays on the
quarantine topic until its retention ends.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from infra.auditing import audit
from infra.inspection import bounds, read_between, record_at
from infra.picking import picked
from schemas import topics
from schemas.atdp.internal import AuditEvent, Quarantined
from schemas.atdp.types import Exchange
from schemas.bus import Admin, Bus, Producer, Record, deliver
from schemas.codec import decode
from schemas.errors import PermanentError
from schemas.store import BlobStore


class Decision(StrEnum):
    """What may be decided about a quarantined record, as the audit topic says it."""

    RELEASED = "quarantine.released"
    DROPPED = "quarantine.dropped"


@dataclass(frozen=True, slots=True)
class Case:
    """A quarantined record, and the last decision about it."""

    event: Quarantined
    decision: Decision | None = None
    decided_at: datetime | None = None

    @property
    def case_id(self) -> str:
        """The id of the quarantined record."""
        return self.event.quarantine_id


@dataclass(frozen=True, slots=True)
class Released:
    """Where a released record lies now."""

    case: Case
    partition: int
    offset: int


def read_cases(bus: Bus, admin: Admin) -> list[Case]:
    """All quarantined records that are kept, oldest first, each once."""
    existing = admin.topics()
    if topics.QUARANTINE not in existing:
        return []
    found: dict[str, Quarantined] = {}
    for seen in read_between(bus, *bounds(admin, topics.QUARANTINE)):
        if isinstance(seen.event, Quarantined):
            found.setdefault(seen.event.quarantine_id, seen.event)
    decided = _decisions(bus, admin) if found and topics.AUDIT in existing else {}
    cases = [Case(event, *decided.get(case_id, (None, None))) for case_id, event in found.items()]
    return sorted(cases, key=lambda case: case.event.occurred_at)


def _decisions(bus: Bus, admin: Admin) -> dict[str, tuple[Decision, datetime]]:
    actions = {decision.value: decision for decision in Decision}
    return {
        seen.event.subject: (actions[seen.event.action], seen.event.occurred_at)
        for seen in read_between(bus, *bounds(admin, topics.AUDIT))
        if isinstance(seen.event, AuditEvent) and seen.event.action in actions
    }


def pick(cases: Iterable[Case], name: str) -> Case:
    """The case of an id, or of the beginning of one. ConfigError when it is not one case."""
    by_id = {case.case_id: case for case in cases}
    return picked(by_id, name, "quarantined record", "quarantine")


def release(
    bus: Bus, admin: Admin, producer: Producer, blobs: BlobStore, cases: Sequence[Case], why: str
) -> list[Released]:
    """Let redaction process each record again, from the beginning and with the same care.

    `blobs` are those of bodies that are too large for a record; they stay as long as new ones.

    A record that it is still unsure of comes back under a new id. The decision is on the audit
    topic when this returns; a process that dies in between leaves a record that was sent again and
    may be released once more, which changes nothing, since its ids are the same.
    """
    return [_release(bus, admin, producer, blobs, case, why) for case in cases]


def _release(
    bus: Bus, admin: Admin, producer: Producer, blobs: BlobStore, case: Case, why: str
) -> Released:
    again = _again(bus, admin, case)
    _renew_bodies(blobs, again.value)
    delivery = asyncio.run(deliver(producer, [again]))[0]
    _decide(
        producer, Decision.RELEASED, case, why,
        {"partition": delivery.partition, "offset": delivery.offset},
    )  # fmt: skip
    return Released(case, delivery.partition, delivery.offset)


def _again(bus: Bus, admin: Admin, case: Case) -> Record:
    """The record as it came, or what quarantine kept of it, on the partition that knows its
    conversation."""
    source = case.event.source
    kept = record_at(bus, admin, source.topic, source.partition, source.offset)
    if kept is not None:
        return Record(kept.topic, kept.key, kept.value, kept.headers, kept.partition)
    return Record(source.topic, None, case.event.value, partition=source.partition)


def _renew_bodies(blobs: BlobStore, value: bytes | None) -> None:
    """What cannot be read, and a body that is gone, is for redaction to refuse and to name."""
    with suppress(PermanentError):
        event = decode(value)
        if not isinstance(event, Exchange):
            return
        for uri in (event.request_body_uri, event.response_body_uri):
            if uri is not None:
                blobs.renew(event.tenant_id, uri)


def drop(producer: Producer, cases: Sequence[Case], why: str) -> None:
    """Decide that each record shall never be processed."""
    for case in cases:
        _decide(producer, Decision.DROPPED, case, why, {})


def _decide(
    producer: Producer, decision: Decision, case: Case, why: str, details: dict[str, int]
) -> None:
    said: dict[str, str | int] = {"reason": case.event.reason, "why": why, **details}
    audit(producer, decision.value, case.case_id, case.event.source, said)
