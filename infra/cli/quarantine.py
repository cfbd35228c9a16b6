"""headrace quarantine: records that redaction was not sure about, and what to do with them."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError, Reason

if TYPE_CHECKING:
    from infra.quarantine import Case

_ID_WIDTH = 12

Names = Annotated[
    list[str] | None, typer.Argument(help="Ids, or their first characters; or give --all.")
]
Every = Annotated[bool, typer.Option("--all", help="All that nobody has decided about.")]
OnlyReason = Annotated[Reason | None, typer.Option(help="With --all: only with this reason.")]
Why = Annotated[str, typer.Option(help="Why, in words; it is recorded. Name no person.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Records that redaction was not sure about.", no_args_is_help=True)
    group.command("list")(list_cases)
    group.command("release")(release)
    group.command("drop")(drop)
    app.add_typer(group, name="quarantine")


def list_cases(
    decided: Annotated[
        bool, typer.Option("--decided", help="Also those that were decided about.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List quarantined records: where each lies, why it was set aside, what was decided.

    The text itself is not shown. It stays on the quarantine topic until its retention ends.

    Example: headrace quarantine list --decided
    """
    from infra.connection import open_bus
    from infra.quarantine import read_cases

    with open_bus(data_dir) as (_, bus, admin):
        cases = [x for x in read_cases(bus, admin) if decided or x.decision is None]
    if as_json:
        typer.echo(json.dumps([_shown(case) for case in cases]))
    elif cases:
        _print(cases)
    else:
        typer.echo("Nothing is in quarantine that nobody has decided about.")


def release(
    names: Names = None,
    every: Every = False,
    reason: OnlyReason = None,
    why: Why = "",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let redaction try again, once the cause is repaired. Nothing passes without redaction.

    A record that it is still unsure of comes back under a new id. The decision is recorded. Run it
    where the blob store is: large bodies of the records then stay as long as new ones.

    Example: headrace quarantine release --all --reason detector_timeout --why "model reloaded"
    """
    from infra.connection import open_bus
    from infra.quarantine import read_cases
    from infra.quarantine import release as release_cases
    from schemas.store import BlobStore

    with open_bus(data_dir) as (settings, bus, admin):
        blobs = BlobStore(settings.original_blobs, renews=True)
        chosen = _choose(read_cases(bus, admin), names or [], every, reason)
        producer = bus.producer("headrace.cli")
        try:
            released = release_cases(bus, admin, producer, blobs, chosen, why)
        finally:
            producer.close()
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"quarantine_id": r.case.case_id, "topic": r.case.event.source.topic,
                     "partition": r.partition, "offset": r.offset}
                    for r in released
                ]
            )
        )  # fmt: skip
        return
    for item in released:
        where = f"{item.case.event.source.topic}/{item.partition}/{item.offset}"
        typer.echo(f"{item.case.case_id[:_ID_WIDTH]}  again as {where}")
    typer.echo(f"{len(released)} released.")


def drop(
    names: Names = None,
    every: Every = False,
    reason: OnlyReason = None,
    why: Why = "",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Decide that records shall never be processed. The decision is recorded.

    Example: headrace quarantine drop 3f2a9c --why "test data"
    """
    from infra.connection import open_bus
    from infra.quarantine import drop as drop_cases
    from infra.quarantine import read_cases

    with open_bus(data_dir) as (_, bus, admin):
        chosen = _choose(read_cases(bus, admin), names or [], every, reason)
        producer = bus.producer("headrace.cli")
        try:
            drop_cases(producer, chosen, why)
        finally:
            producer.close()
    if as_json:
        typer.echo(json.dumps([{"quarantine_id": case.case_id} for case in chosen]))
    else:
        typer.echo(f"{len(chosen)} dropped.")


def _choose(
    cases: list["Case"], names: list[str], every: bool, reason: Reason | None
) -> list["Case"]:
    from infra.quarantine import pick

    if bool(names) == every or (reason is not None and not every):
        raise ConfigError("Give ids, or give --all; --reason goes with --all only.")
    if names:
        return list({x.case_id: x for x in (pick(cases, name) for name in names)}.values())
    return [x for x in cases if x.decision is None and reason in (None, x.event.reason)]


def _shown(case: "Case") -> dict[str, Any]:
    event = case.event
    return {
        "quarantine_id": event.quarantine_id,
        "tenant_id": event.tenant_id,
        "topic": event.source.topic,
        "partition": event.source.partition,
        "offset": event.source.offset,
        "reason": event.reason,
        "num_bytes": len(event.value),
        "occurred_at": event.occurred_at.isoformat(),
        "decision": None if case.decision is None else case.decision.value,
        "decided_at": None if case.decided_at is None else case.decided_at.isoformat(),
    }


def _print(cases: list["Case"]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold")
    for name in ("id", "record", "reason", "bytes", "set aside at", "decided"):
        table.add_column(name, overflow="fold")
    for case in cases:
        event, source = case.event, case.event.source
        table.add_row(
            event.quarantine_id[:_ID_WIDTH],
            f"{source.topic}/{source.partition}/{source.offset}",
            event.reason,
            f"{len(event.value):,}",
            f"{event.occurred_at:%Y-%m-%d %H:%M:%S}",
            "" if case.decision is None else case.decision.value.partition(".")[2],
        )
    Console().print(table)
    reasons = Counter(case.event.reason for case in cases)
    typer.echo(", ".join(f"{number} {reason}" for reason, number in reasons.most_common()))
