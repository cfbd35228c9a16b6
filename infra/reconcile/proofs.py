"""Where a record of each topic must show. What is still absent afterwards is missing.

clean topics, dead letters, audit, quarantine   a row with its coordinates, else a row with its id
                                                in a version that counts as much or more
raw.events.v1                                   a row, else a clean event, with its coordinates
training.samples.v1, read by batching           a decision about the sample, else nothing
raw.unresolved.v1                               a reward of its id in its revision or a later one
read into state only                            nothing; the group's own committed offset is trusted

Everywhere a dead letter, a quarantined record or a recorded gap accounts for a record too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from infra.reconcile.ledger import Ledger
from infra.reconcile.reading import (
    Known,
    Sources,
    absent_records,
    event_of,
    mark_rows,
    records,
    whole,
)
from infra.reconcile.report import Kind
from schemas import tables, topics
from schemas.atdp.internal import DeadLetter, Quarantined, UnresolvedFeedback
from schemas.atdp.types import Coordinates, Reward, Step, TrajectoryEnd
from schemas.bus import Received
from schemas.errors import PermanentError
from schemas.log_gaps import LogGap
from streams.sink.rows import Row, to_row

#: Ids that one question to the store is about.
_IDS = 500
#: Pieces of feedback without a stored reward that are looked for on the topic in one go.
_MAX_UNSTORED = 100_000
#: A clean event is younger than its raw record, as far as the clocks of two machines agree.
_CLOCKS = timedelta(hours=1)

#: The table of each topic that the sink reads; the first one, where its events have several.
TABLE_OF: Mapping[str, tables.Table] = {
    topics.STEPS: tables.STEPS,
    topics.REWARDS: tables.REWARDS,
    topics.SUMMARIES: tables.TRAJECTORIES,
    topics.SAMPLES: tables.SAMPLES,
    topics.DECISIONS: tables.SAMPLE_DECISIONS,
    topics.MICROBATCHES: tables.MICROBATCHES,
    topics.WEIGHTS_VERSIONS: tables.POLICY_VERSIONS,
    topics.WEIGHTS_PROMOTIONS: tables.PROMOTIONS,
    topics.WEIGHTS_ACKS: tables.ACKS,
    topics.AUDIT: tables.AUDIT_EVENTS,
    topics.QUARANTINE: tables.QUARANTINED_EVENTS,
    **{topics.dead_letter_topic(name): tables.DEAD_LETTERS for name in topics.DEAD_LETTERED},
}
#: Tables of other events on the same topics.
_TABLES_BESIDE: Mapping[str, tuple[tables.Table, ...]] = {
    topics.WEIGHTS_PROMOTIONS: (tables.PROPOSALS, tables.PROPOSAL_ANSWERS),
}
_OF_TENANTS = (
    tables.STEPS,
    tables.REWARDS,
    tables.TRAJECTORIES,
    tables.SAMPLES,
    tables.SAMPLE_DECISIONS,
)
#: Topics whose events carry the coordinates of raw records, the small ones first.
_MADE_FROM_RAW = (topics.ENDS, topics.RAW_UNRESOLVED, topics.REWARDS, topics.STEPS)


def prove(sources: Sources, ledger: Ledger, topic: str, group: str, known: Known) -> None:
    """Mark every offset of the ledger for which there is evidence."""
    _by_stored(sources, ledger, topic, group)
    _by_dead_letter(sources, ledger, topic, group)
    if topic == topics.RAW_EVENTS:
        _by_quarantine(sources, ledger)
    _by_gap(ledger, topic, group, known.gaps)
    if not ledger.num_absent:
        return
    if group == topics.SINK:
        _by_newer_row(sources, ledger, topic, known.wiped_epoch)
    elif topic == topics.RAW_EVENTS:
        _by_clean_event(sources, ledger)
    elif topic == topics.RAW_UNRESOLVED:
        _by_reward(sources, ledger)
    else:
        ledger.mark_rest(Kind.IN_STATE)


def _by_stored(sources: Sources, ledger: Ledger, topic: str, group: str) -> None:
    if group == topics.SINK:
        _by_row(sources, ledger, topic)
    elif topic == topics.RAW_EVENTS:
        _by_raw_row(sources, ledger)
    elif group == topics.BATCHING:
        _by_decision(sources, ledger)


def _by_row(sources: Sources, ledger: Ledger, topic: str) -> None:
    for table in _tables_of(topic):
        sql = (
            f"SELECT kafka_partition, kafka_offset FROM {table.log} "  # noqa: S608 - our names
            f"WHERE kafka_topic = '{topic}' AND kafka_offset >= {{low}} AND kafka_offset < {{high}}"
        )
        mark_rows(sources, ledger, Kind.STORED, sql)


def _tables_of(topic: str) -> tuple[tables.Table, ...]:
    return TABLE_OF[topic], *_TABLES_BESIDE.get(topic, ())


def _by_decision(sources: Sources, ledger: Ledger) -> None:
    """Samples that were decided. Of those without a row yet the group's commit is trusted."""
    samples, decisions = tables.SAMPLES.log, tables.SAMPLE_DECISIONS.log
    sql = (
        f"SELECT kafka_partition, kafka_offset FROM {samples} "  # noqa: S608 - our names
        f"WHERE kafka_topic = '{topics.SAMPLES}' "
        "AND kafka_offset >= {low} AND kafka_offset < {high} "
        f"AND (tenant_id, sample_id) IN (SELECT tenant_id, sample_id FROM {decisions})"
    )
    mark_rows(sources, ledger, Kind.STORED, sql)


def _by_raw_row(sources: Sources, ledger: Ledger) -> None:
    for table in (tables.STEPS, tables.REWARDS):
        sql = (
            f"SELECT raw_partition, raw_offset FROM {table.log} "  # noqa: S608 - our names
            f"WHERE raw_topic = '{topics.RAW_EVENTS}' "
            "AND raw_offset >= {low} AND raw_offset < {high}"
        )
        mark_rows(sources, ledger, Kind.STORED, sql)


def _by_dead_letter(sources: Sources, ledger: Ledger, topic: str, group: str) -> None:
    sql = (
        f"SELECT source_partition, source_offset FROM {tables.DEAD_LETTERS.log} "  # noqa: S608
        f"WHERE `group` = '{group}' AND source_topic = '{topic}' "
        "AND source_offset >= {low} AND source_offset < {high}"
    )
    mark_rows(sources, ledger, Kind.DEAD_LETTERED, sql)
    for event in _events(sources, ledger, topics.dead_letter_topic(topic)):
        if isinstance(event, DeadLetter) and event.group == group:
            _mark(ledger, Kind.DEAD_LETTERED, topic, event.source)


def _by_quarantine(sources: Sources, ledger: Ledger) -> None:
    sql = (
        f"SELECT source_partition, source_offset FROM {tables.QUARANTINED_EVENTS.log} "  # noqa: S608
        f"WHERE source_topic = '{topics.RAW_EVENTS}' "
        "AND source_offset >= {low} AND source_offset < {high}"
    )
    mark_rows(sources, ledger, Kind.QUARANTINED, sql)
    for event in _events(sources, ledger, topics.QUARANTINE):
        if isinstance(event, Quarantined):
            _mark(ledger, Kind.QUARANTINED, topics.RAW_EVENTS, event.source)


def _by_gap(ledger: Ledger, topic: str, group: str, gaps: Iterable[LogGap]) -> None:
    for gap in gaps:
        if (gap.topic, gap.group) == (topic, group):
            ledger.mark_range(Kind.GAPS, gap.partition, gap.first, gap.end)


def _by_clean_event(sources: Sources, ledger: Ledger) -> None:
    """Ends have no table, and of a record that came twice the store keeps one row."""
    oldest: int | None = None
    for record in absent_records(sources, ledger, topics.RAW_EVENTS):
        stamp = record.timestamp_ms
        oldest = stamp if oldest is None else min(oldest, stamp)
    if oldest is None:
        return
    since = _since(oldest)
    for is_recent in (True, False):
        for name in _MADE_FROM_RAW:
            for event in _events(sources, ledger, name, since, is_recent=is_recent):
                if isinstance(event, Step | Reward | TrajectoryEnd | UnresolvedFeedback):
                    at = event.source if isinstance(event, Step) else event.raw
                    _mark(ledger, Kind.STORED, topics.RAW_EVENTS, at)


def _by_newer_row(sources: Sources, ledger: Ledger, topic: str, wiped_epoch: int) -> None:
    for chunk in _batches(absent_records(sources, ledger, topic)):
        rows = [(record, row) for record in chunk if (row := _row_of(record)) is not None]
        versions: dict[Key, int] = {}
        for table in _tables_of(topic):
            versions |= _versions(sources, table, [row for _, row in rows if row.table is table])
        for record, row in rows:
            is_replaced = row.version <= versions.get(_key(row), -1)
            if is_replaced or row.cells.get("replay_epoch", wiped_epoch) < wiped_epoch:
                ledger.mark(Kind.REPLACED, record.partition, record.offset)


def _by_reward(sources: Sources, ledger: Ledger) -> None:
    """The store first; a reward that its reader has not stored is looked for on its topic."""
    unstored: dict[tuple[int, int], list[Received]] = defaultdict(list)
    for chunk in _batches(absent_records(sources, ledger, topics.RAW_UNRESOLVED)):
        for record, event in _unstored(sources, ledger, chunk):
            if event.raw is not None and len(unstored) < _MAX_UNSTORED:
                unstored[event.raw.partition, event.raw.offset].append(record)
    if not unstored:
        return
    since = _since(min(record.timestamp_ms for found in unstored.values() for record in found))
    for is_recent in (True, False):
        for made in _events(sources, ledger, topics.REWARDS, since, is_recent=is_recent):
            for record in _answered(unstored, made):
                ledger.mark(Kind.STORED, record.partition, record.offset)


def _answered(unstored: dict[tuple[int, int], list[Received]], made: object) -> Sequence[Received]:
    """The feedback that a reward was made of."""
    raw = made.raw if isinstance(made, Reward) else None
    return () if raw is None else unstored.pop((raw.partition, raw.offset), ())


def _unstored(
    sources: Sources, ledger: Ledger, chunk: Sequence[Received]
) -> list[tuple[Received, UnresolvedFeedback]]:
    """Mark the feedback whose reward is stored; the rest comes back."""
    waiting = [
        (record, event)
        for record in chunk
        if isinstance(event := event_of(record), UnresolvedFeedback)
    ]
    ids = [(e.feedback.tenant_id, e.feedback.reward_id) for _, e in waiting]
    revisions = _revisions(sources, ids)
    left = []
    for (record, event), key in zip(waiting, ids, strict=True):
        if revisions.get(key, -1) >= event.feedback.revision:
            ledger.mark(Kind.STORED, record.partition, record.offset)
        else:
            left.append((record, event))
    return left


def _since(oldest_ms: int) -> datetime:
    return datetime.fromtimestamp(max(0, oldest_ms) / 1000, UTC) - _CLOCKS


# -- what the proofs ask -----------------------------------------------------------------------


def _events(
    sources: Sources,
    ledger: Ledger,
    name: str,
    since: datetime | None = None,
    *,
    is_recent: bool = True,
) -> Iterator[object]:
    """Events of a topic while something is absent: those from `since` on, or those before."""
    if not ledger.num_absent:
        return
    spans = whole(sources, name)
    if since is not None and spans:
        cuts = sources.admin.offsets_at(name, since)
        spans = {
            p: (cuts[p], end) if is_recent else (first, cuts[p])
            for p, (first, end) in spans.items()
        }
    for record in records(sources, name, spans):
        yield event_of(record)
        if not ledger.num_absent:
            return


def _batches(found: Iterable[Received]) -> Iterator[list[Received]]:
    batch: list[Received] = []
    for record in found:
        batch.append(record)
        if len(batch) == _IDS:
            yield batch
            batch = []
    if batch:
        yield batch


def _mark(ledger: Ledger, kind: Kind, topic: str, at: Coordinates | None) -> None:
    if at is not None and at.topic == topic:
        ledger.mark(kind, at.partition, at.offset)


def _row_of(record: Received) -> Row | None:
    at = Coordinates(topic=record.topic, partition=record.partition, offset=record.offset)
    event = event_of(record)
    try:
        return None if event is None else to_row(event, at, datetime.now(UTC))
    except PermanentError:
        return None


Key = tuple[str | None, str]
"""Owner, None where rows have none, and id of a row."""


def _key(row: Row) -> Key:
    return row.cells.get("tenant_id"), row.id


def _versions(sources: Sources, table: tables.Table, rows: Sequence[Row]) -> dict[Key, int]:
    """The highest stored version of each id."""
    if not rows:
        return {}
    has_tenant = table in _OF_TENANTS
    tenant = "tenant_id" if has_tenant else "NULL"
    column = f"(tenant_id, {table.id_sql})" if has_tenant else table.id_sql
    keys = [_key(row) if has_tenant else row.id for row in rows]
    sql = (
        f"SELECT {tenant} AS tenant, {table.id_sql} AS id, max(row_version) AS version "  # noqa: S608
        f"FROM {table.log} WHERE {column} IN %(keys)s GROUP BY tenant, id"
    )
    found = sources.store.rows(sql, {"keys": tuple(keys)})
    versions = {(row["tenant"], row["id"]): int(row["version"]) for row in found}
    if has_tenant:
        return versions
    return {_key(row): versions[None, row.id] for row in rows if (None, row.id) in versions}


def _revisions(sources: Sources, ids: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    if not ids:
        return {}
    sql = (
        f"SELECT tenant_id, reward_id, max(revision) AS revision FROM {tables.REWARDS.log} "  # noqa: S608
        "WHERE (tenant_id, reward_id) IN %(ids)s GROUP BY tenant_id, reward_id"
    )
    rows = sources.store.rows(sql, {"ids": tuple(ids)})
    return {(row["tenant_id"], row["reward_id"]): int(row["revision"]) for row in rows}
