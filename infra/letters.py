"""Dead letters: which there are, the original behind one, and another try."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.auditing import audit
from infra.inspection import bounds, read_between, record_at
from infra.picking import picked
from schemas import topics
from schemas.atdp.internal import AuditEvent, DeadLetter
from schemas.bus import Admin, Bus, Producer, Received, Record, deliver

RETRIED = "dead_letter.retried"
SHOWN = "dead_letter.original_shown"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter and when it was last tried again."""

    event: DeadLetter
    retried_at: datetime | None = None

    @property
    def letter_id(self) -> str:
        """Its id."""
        return self.event.dead_letter_id


@dataclass(frozen=True, slots=True)
class Retried:
    """What came of a retry: where the record lies now, or nothing when the original is gone."""

    letter: Letter
    partition: int | None = None
    offset: int | None = None

    @property
    def is_gone(self) -> bool:
        """True when the source topic no longer holds the original."""
        return self.offset is None


def read_letters(bus: Bus, admin: Admin) -> list[Letter]:
    """All dead letters that are kept, oldest first, each once."""
    existing = admin.topics()
    letters: dict[str, DeadLetter] = {}
    # A broken dead letter stays put, so two sources may share a topic.
    for name in dict.fromkeys(map(topics.dead_letter_topic, topics.DEAD_LETTERED)):
        if name in existing:
            for seen in read_between(bus, *bounds(admin, name)):
                if isinstance(seen.event, DeadLetter):
                    letters[seen.event.dead_letter_id] = seen.event
    retried = _retries(bus, admin) if letters and topics.AUDIT in existing else {}
    found = [Letter(event, retried.get(letter_id)) for letter_id, event in letters.items()]
    return sorted(found, key=lambda letter: letter.event.occurred_at)


def _retries(bus: Bus, admin: Admin) -> dict[str, datetime]:
    return {
        seen.event.subject: seen.event.occurred_at
        for seen in read_between(bus, *bounds(admin, topics.AUDIT))
        if isinstance(seen.event, AuditEvent) and seen.event.action == RETRIED
    }


def pick(letters: Iterable[Letter], name: str) -> Letter:
    """The letter of an id, or of the beginning of one. ConfigError when it is not one letter."""
    by_id = {letter.letter_id: letter for letter in letters}
    return picked(by_id, name, "dead letter", "dead-letters")


def original(bus: Bus, admin: Admin, letter: Letter) -> Received | None:
    """The record that the letter is about, None when its topic no longer holds it."""
    source = letter.event.source
    return record_at(bus, admin, source.topic, source.partition, source.offset)


def retry(bus: Bus, admin: Admin, producer: Producer, letters: Sequence[Letter]) -> list[Retried]:
    """Produce each original again under its key; readers see it as a new record.

    Each is on the audit topic when this returns. Ids make a second processing harmless.
    """
    return [_retry(producer, letter, original(bus, admin, letter)) for letter in letters]


def _retry(producer: Producer, letter: Letter, record: Received | None) -> Retried:
    if record is None:
        return Retried(letter)
    again = Record(record.topic, record.key, record.value, record.headers)
    delivery = asyncio.run(deliver(producer, [again]))[0]
    audit_letter(
        producer, RETRIED, letter, {"partition": delivery.partition, "offset": delivery.offset}
    )
    return Retried(letter, delivery.partition, delivery.offset)


def audit_letter(
    producer: Producer, action: str, letter: Letter, details: Mapping[str, int]
) -> None:
    """Record that somebody at this machine acted on a dead letter."""
    reason = {"reason": letter.event.reason}
    audit(producer, action, letter.letter_id, letter.event.source, {**reason, **details})
