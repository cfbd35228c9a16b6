"""Audit events of what somebody does at this machine."""

import asyncio
import getpass
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from schemas import codec, topics
from schemas.atdp.internal import AuditEvent
from schemas.atdp.types import Coordinates
from schemas.bus import Producer, Record, deliver
from schemas.ids import uuid7


def audit(
    producer: Producer,
    action: str,
    subject: str,
    source: Coordinates,
    details: Mapping[str, str | int],
) -> None:
    """Record that somebody acted on a record that was set aside. Durable when it returns.

    `source` is the record itself. `details` hold no text of it.
    """
    where = f"{source.topic}/{source.partition}/{source.offset}"
    event = AuditEvent(
        audit_id=uuid7(),
        actor=f"cli:{getpass.getuser()}",
        action=action,
        subject=subject,
        details=json.dumps({"source": where, **details}),
        occurred_at=datetime.now(UTC),
    )
    record = Record(topics.AUDIT, event.audit_id.encode(), codec.encode(event))
    asyncio.run(deliver(producer, [record]))
