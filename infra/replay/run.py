"""Carry out a replay on the running stack.

Order, so that a death between two lines costs time and never rows:

    stop the groups ─▶ read where they stand ─▶ record the new epoch ─▶ reset offsets, upstream
    first ─▶ delete changelogs ─▶ wipe tables ─▶ start the groups ─▶ wait until they caught up

From the reset on, starting the processors by whatever way processes everything again. A replay
that dies before it starts them leaves a note (`infra.replay.unfinished`): `headrace status` says
so, and running the replay again finishes it.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.local.control import ask
from infra.local.launch import find_settings
from infra.local.state import is_owned
from infra.replay.plan import INPUTS, Log, Plan, Start, handled_before, make_plan
from infra.replay.unfinished import (
    Order,
    exclusive,
    read_note,
    remove_note,
    settled,
    write_note,
)
from schemas import topics
from schemas.atdp.internal import AuditEvent, PartitionOffset, Replay
from schemas.bus import Admin, Bus, Delivery, Record
from schemas.bus.kafka import KafkaBus
from schemas.codec import encode
from schemas.errors import ConfigError, TransientError
from schemas.ids import uuid7
from schemas.log_gaps import to_event
from schemas.settings import Settings

Report = Callable[[str, int, int], None]
"""Called with a stage in words, records done and records in all (0 where not countable)."""

_EMPTY_GROUP_SECONDS = 60.0
_DELIVERY_SECONDS = 30.0
_POLL_SECONDS = 0.25
#: Without any progress for this long the replay is given up as stuck; what was reset stays reset.
_STUCK_SECONDS = 300.0


def silent(_stage: str, _done: int, _total: int) -> None:
    """Reports nothing."""


def preview(
    data_dir: Path | None, groups: Sequence[str], start: Start, *, keep_tables: bool
) -> Plan:
    """What `replay` would do now."""
    settings = find_settings(data_dir)
    order = settled(_order(groups, start, keep_tables), read_note(settings.data_dir))
    bus = KafkaBus.from_settings(settings.kafka)
    return _plan(bus.admin(), order)[0]


def replay(
    data_dir: Path | None,
    groups: Sequence[str] = topics.GROUPS,
    start: Start | None = None,
    *,
    keep_tables: bool = False,
    report: Report = silent,
) -> Plan:
    """Replay and return once the groups caught up with what the log held at the reset.

    A replay that was cut short is finished first: without options this one does just that.
    Raises ConfigError, before anything is changed, where it would be unsafe.
    """
    settings = find_settings(data_dir)
    bus = KafkaBus.from_settings(settings.kafka)
    with exclusive(settings.data_dir):
        unfinished = read_note(settings.data_dir)
        order = settled(_order(groups, start or Start(), keep_tables), unfinished)
        if unfinished is not None:
            report("finishing the replay that was cut short", 0, 0)
        _plan(bus.admin(), order)  # refuses before anything stops
        write_note(settings.data_dir, order)
        plan, log = _stop_and_plan(
            settings, order, bus.admin(), report, is_resumed=unfinished is not None
        )
        # What fails from here on leaves the processors stopped and the note where it is.
        _record_epochs(bus, plan, log)
        _reset(bus.admin(), plan, settings, report)
        _start(settings, order.groups, report)
        remove_note(settings.data_dir)
    _wait_until_caught_up(bus.admin(), plan, report)
    return plan


def _order(groups: Sequence[str], start: Start, keep_tables: bool) -> Order:  # noqa: FBT001 - the command's flag
    return Order(tuple(g for g in topics.GROUPS if g in groups), start, keep_tables)


def _plan(admin: Admin, order: Order) -> tuple[Plan, Log]:
    log = _read_log(admin, order.groups, order.start)
    return make_plan(order.groups, order.start, log, keep_tables=order.keep_tables), log


def _read_log(admin: Admin, groups: Sequence[str], start: Start) -> Log:
    names = sorted({topic for group in groups for topic in INPUTS[group]} | {topics.RAW_EVENTS})
    at = {} if start.at is None else {name: admin.offsets_at(name, start.at) for name in names}
    return Log(
        watermarks={name: admin.watermarks(name) for name in names},
        offsets_at=at,
        committed={group: admin.committed(group, INPUTS[group]) for group in groups},
    )


def _stop_and_plan(
    settings: Settings, order: Order, admin: Admin, report: Report, *, is_resumed: bool
) -> tuple[Plan, Log]:
    """Stop the groups and read where they stand. A failure undoes the stop, since nothing was
    changed yet, unless an earlier replay had changed something."""
    is_planned = False
    try:
        _stop(settings, order.groups, report)
        _wait_for_empty_groups(admin, order.groups)
        found = _plan(admin, order)
        is_planned = True
    finally:
        if not is_planned and not is_resumed:
            _start(settings, order.groups, report)
            remove_note(settings.data_dir)
    return found


def _stop(settings: Settings, groups: Sequence[str], report: Report) -> None:
    """Downstream first."""
    if children := _supervised(settings, groups)[::-1]:
        report("stopping " + ", ".join(children), 0, 0)
        ask(settings.data_dir, "stop-child", children)


def _start(settings: Settings, groups: Sequence[str], report: Report) -> None:
    if children := _supervised(settings, groups):
        report("starting " + ", ".join(children), 0, 0)
        ask(settings.data_dir, "start-child", children)


def _supervised(settings: Settings, groups: Sequence[str]) -> list[str]:
    """Those of the groups that the stack in this data directory runs."""
    if not is_owned(settings.data_dir):
        return []
    known = {child.name for child in ask(settings.data_dir, "status").children}
    names = [group.rpartition(".")[2] for group in groups]
    return [name for name in names if name in known]


def _wait_for_empty_groups(admin: Admin, groups: Sequence[str]) -> None:
    deadline = time.monotonic() + _EMPTY_GROUP_SECONDS
    while busy := [group for group in groups if admin.num_members(group)]:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{', '.join(busy)} still has workers that this stack does not supervise. Stop "
                "them, then run the replay again: two processings must not write at once."
            )
        time.sleep(_POLL_SECONDS)


def _record_epochs(bus: Bus, plan: Plan, log: Log) -> None:
    """The new epoch of each group, that somebody ordered it, and what of it is no longer kept.
    Durable before the reset."""
    from streams.runtime.replays import read_replays

    earlier = read_replays(bus)
    epoch = max((r.epoch for r in earlier), default=0) + 1
    now = datetime.now(UTC)
    records = []
    for group in plan.groups:
        before = handled_before(log.committed[group.group], group.group, earlier).items()
        event = Replay(
            group=group.group,
            epoch=epoch,
            committed_before=tuple(
                PartitionOffset(topic=t, partition=p, offset=o) for (t, p), o in sorted(before)
            ),
            started_at=now,
        )
        records.append(Record(topics.REPLAYS, group.group.encode(), encode(event)))
    audit = AuditEvent(
        audit_id=uuid7(),
        actor="cli",
        action="replay.started",
        subject=", ".join(group.group for group in plan.groups),
        details=json.dumps(
            {"epoch": epoch, "records": plan.num_records, "tables_wiped": list(plan.tables)}
        ),
        occurred_at=now,
    )
    told = [audit, *(to_event(gap, now) for gap in plan.gone)]
    records += [Record(topics.AUDIT, event.audit_id.encode(), encode(event)) for event in told]
    produce(bus, records)


def produce(bus: Bus, records: Sequence[Record]) -> None:
    producer = bus.producer("headrace.replay")
    reports: list[Delivery] = []
    try:
        for record in records:
            producer.send(record, reports.append)
        producer.flush(_DELIVERY_SECONDS)
    finally:
        producer.close()
    errors = [report.error for report in reports if report.error is not None]
    if errors:
        raise errors[0]
    if len(reports) < len(records):
        raise TransientError("Kafka did not confirm in time. Is it up? `headrace status` shows it.")


def _reset(admin: Admin, plan: Plan, settings: Settings, report: Report) -> None:
    report("resetting offsets", 0, 0)
    for group in plan.groups:
        admin.commit(group.group, group.offsets)
    changelogs = [name for group in plan.groups for name in group.changelogs]
    if changelogs:
        report("wiping state", 0, 0)
        admin.delete_topics(changelogs)
        kafka = settings.kafka
        wanted = [topics.topic(name) for name in changelogs]
        admin.create_topics(wanted, kafka.num_partitions, kafka.replication_factor)
        for group in plan.groups:
            shutil.rmtree(settings.data_dir / "run" / group.group, ignore_errors=True)
    if plan.tables:
        report("wiping tables", 0, 0)
        _truncate(settings, plan.tables)


def _truncate(settings: Settings, tables: Sequence[str]) -> None:
    from streams.sink.store import open_client

    client: Any = open_client(settings)
    try:
        for table in tables:
            client.command(f"TRUNCATE TABLE {settings.clickhouse.database}.{table}_log")
    finally:
        client.close()


def _wait_until_caught_up(admin: Admin, plan: Plan, report: Report) -> None:
    """Group by group, upstream first: what one emits is what the next has to read."""
    for group in plan.groups:
        inputs = [t for t in INPUTS[group.group] if t != topics.TICKS]
        ends = {
            (topic, p): end for topic in inputs for p, (_, end) in admin.watermarks(topic).items()
        }
        total = sum(end - min(end, group.offsets[position]) for position, end in ends.items())
        remaining, changed_at = total, time.monotonic()
        while remaining:
            committed = admin.committed(group.group, inputs)
            now = sum(
                max(0, end - committed.get(position, group.offsets[position]))
                for position, end in ends.items()
            )
            if now != remaining:
                remaining, changed_at = now, time.monotonic()
            report(f"replaying {group.group}", total - remaining, total)
            if time.monotonic() - changed_at > _STUCK_SECONDS:
                raise TransientError(
                    f"{group.group} makes no progress: {remaining} records are left. The reset is "
                    "done and nothing is lost; `headrace status` and `headrace logs` show why."
                )
            if remaining:
                time.sleep(_POLL_SECONDS)
