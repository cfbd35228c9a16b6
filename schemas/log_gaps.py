"""Stretches of a topic that a group will never read, as audit events.

Retention deletes records whether or not they were read. Whoever finds that records are gone says
so here before it goes on, so that a skip is never silent.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from schemas.atdp.internal import AuditEvent
from schemas.ids import derive_id

#: The action of the audit event.
GAP_RECORDED = "gap.recorded"


class Why(StrEnum):
    """How it came about."""

    #: The records were deleted before the group read them for the first time.
    RETENTION = "retention"
    #: A replay asked for records that are no longer kept. They were handled before.
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class LogGap:
    """Offsets from `first` up to but without `end` that `group` did not and cannot read."""

    group: str
    topic: str
    partition: int
    first: int
    end: int
    why: Why = Why.RETENTION

    @property
    def num_records(self) -> int:
        """Number of offsets, which is at least the number of records."""
        return self.end - self.first


def to_event(gap: LogGap, at: datetime) -> AuditEvent:
    """The audit event; the same gap has the same id however often it is found."""
    place = (gap.group, gap.topic, gap.partition, gap.first, gap.end, gap.why.value)
    details = {
        "topic": gap.topic,
        "partition": gap.partition,
        "first": gap.first,
        "end": gap.end,
        "why": gap.why.value,
    }
    return AuditEvent(
        audit_id=derive_id("gap", *place),
        actor=gap.group,
        action=GAP_RECORDED,
        subject=f"{gap.topic}:{gap.partition}",
        details=json.dumps(details),
        occurred_at=at,
    )


def from_event(event: AuditEvent) -> LogGap | None:
    """The gap that an audit event tells of, None for any other event."""
    return parse(event.actor, event.details) if event.action == GAP_RECORDED else None


def parse(group: str, details: str) -> LogGap | None:
    """A gap from the columns `actor` and `details`; None where they do not hold one."""
    try:
        plain = json.loads(details)
        return LogGap(
            group,
            str(plain["topic"]),
            int(plain["partition"]),
            int(plain["first"]),
            int(plain["end"]),
            Why(plain["why"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
