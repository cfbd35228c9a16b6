"""The log and the store, as far as proofs ask them."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.inspection import IDLE_SECONDS
from infra.reconcile.ledger import Ledger, Spans
from infra.reconcile.report import Kind
from infra.store import Reader
from schemas import topics
from schemas.atdp.internal import AuditEvent
from schemas.bus import Admin, Bus, Received
from schemas.codec import decode
from schemas.errors import PermanentError
from schemas.log_gaps import GAP_RECORDED, LogGap, Why, parse

#: The action of the audit event by which a replay begins.
REPLAY_STARTED = "replay.started"
_POLL_RECORDS = 1_000
_POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Sources:
    """Where proofs look."""

    bus: Bus
    admin: Admin
    store: Reader


def records(sources: Sources, topic: str, spans: Spans) -> Iterator[Received]:
    """All records of the spans. Ends after a silence in which the broker does answer: what is
    left holds no record. TransientError when it does not."""
    left = {p: span for p, span in spans.items() if span[0] < span[1]}
    consumer = sources.bus.consumer()
    try:
        consumer.assign({(topic, p): first for p, (first, _) in left.items()})
        heard_at = time.monotonic()
        while left and time.monotonic() - heard_at < IDLE_SECONDS:
            for record in consumer.poll(_POLL_RECORDS, _POLL_SECONDS):
                heard_at = time.monotonic()
                end = left.get(record.partition, (0, 0))[1]
                if record.offset < end:
                    yield record
                if record.offset + 1 >= end:
                    left.pop(record.partition, None)
        if left:
            sources.admin.watermarks(topic)
    finally:
        consumer.close()


def whole(sources: Sources, topic: str) -> dict[int, tuple[int, int]]:
    """The spans of all that the topic holds; none where it does not exist."""
    return sources.admin.watermarks(topic) if topic in sources.admin.topics() else {}


def absent_records(sources: Sources, ledger: Ledger, topic: str) -> Iterator[Received]:
    """Records at absent offsets. Once all are out, offsets without a record are marked."""
    spans = ledger.bounds()
    if not spans:
        return
    for record in records(sources, topic, spans):
        if ledger.is_absent(record.partition, record.offset):
            ledger.see(record.partition, record.offset)
            yield record
    kept = sources.admin.watermarks(topic)
    for partition, (first, end) in spans.items():
        # Retention may have gone on while we looked; it never deletes what was not read by us.
        ledger.mark_unseen(Kind.EXPIRED, partition, first, min(end, kept[partition][0]))
        ledger.mark_unseen(Kind.NO_RECORD, partition, first, end)


def mark_rows(sources: Sources, ledger: Ledger, kind: Kind, sql: str) -> None:
    """Mark what a query of two columns, partition and offset, returns. `{low}` and `{high}` in it
    stand for the lowest and highest offset that is of interest."""
    bounds = ledger.bounds().values()
    if bounds:
        low, high = min(first for first, _ in bounds), max(end for _, end in bounds)
        for _, rows in sources.store.blocks(sql.format(low=low, high=high)):
            for partition, offset in rows:
                ledger.mark(kind, partition, offset)


@dataclass(frozen=True, slots=True)
class Known:
    """What audit events say. Rows of epochs before `wiped_epoch` were wiped and made anew."""

    gaps: tuple[LogGap, ...] = ()
    wiped_epoch: int = 0


def read_known(sources: Sources) -> Known:
    """From the store, and from the topic what the sink has not stored."""
    acts = f"'{GAP_RECORDED}', '{REPLAY_STARTED}'"
    rows = sources.store.rows(
        f"SELECT actor, action, details FROM audit_events WHERE action IN ({acts})"  # noqa: S608
    )
    said = [(row["actor"], row["action"], row["details"]) for row in rows]
    for record in records(sources, topics.AUDIT, whole(sources, topics.AUDIT)):
        event = event_of(record)
        if isinstance(event, AuditEvent):
            said.append((event.actor, event.action, event.details))
    gaps = dict.fromkeys(parse(who, text) for who, act, text in said if act == GAP_RECORDED)
    epochs = [wiped_epoch(text) for _, act, text in said if act == REPLAY_STARTED]
    found = tuple(gap for gap in gaps if gap is not None and gap.why is Why.RETENTION)
    return Known(found, max(epochs, default=0))


def wiped_epoch(details: str) -> int:
    """The epoch of a replay that wiped the tables, 0 for any other one."""
    try:
        plain = json.loads(details)
        return int(plain["epoch"]) if plain.get("tables_wiped") else 0
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0


def event_of(record: Received) -> object:
    """The event, None for a record that cannot be decoded."""
    try:
        return decode(record.value)
    except PermanentError:
        return None


def committed_offsets(
    admin: Admin, inputs: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[tuple[str, int], int]]:
    """What each group has committed."""
    return {group: admin.committed(group, names) for group, names in inputs.items()}
