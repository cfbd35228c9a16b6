"""headrace dead-letters: records that could not be processed, and another try for them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from infra.cli.tail import as_line, original_of
from schemas.errors import ConfigError, Reason

if TYPE_CHECKING:
    from infra.letters import Letter, Retried
    from schemas.bus import Producer
    from schemas.bus.kafka import KafkaBus

_ID_WIDTH = 12


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Records that could not be processed.", no_args_is_help=True)
    group.command("list")(list_letters)
    group.command("show")(show)
    group.command("retry")(retry)
    app.add_typer(group, name="dead-letters")


def list_letters(
    reason: Annotated[Reason | None, typer.Option(help="Only with this reason.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters: where each record lies, why it was given up, when it was retried.

    Example: headrace dead-letters list --reason wrong_type
    """
    from infra.connection import open_bus
    from infra.letters import read_letters

    with open_bus(data_dir) as (_, bus, admin):
        letters = [x for x in read_letters(bus, admin) if reason in (None, x.event.reason)]
    if as_json:
        typer.echo(json.dumps([_shown(letter) for letter in letters]))
    elif letters:
        _print(letters)
    else:
        typer.echo("There are no dead letters.")


def show(
    letter_id: Annotated[str, typer.Argument(help="Id, or its first characters.")],
    show_original: Annotated[
        bool, typer.Option("--show-original", help="Print the record, private data included.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter. --show-original prints the record, and that is audited.

    Example: headrace dead-letters show 3f2a9c --show-original
    """
    from infra.connection import open_bus
    from infra.letters import SHOWN, audit_letter, original, pick, read_letters

    with open_bus(data_dir) as (_, bus, admin):
        letter = pick(read_letters(bus, admin), letter_id)
        shown: dict[str, Any] = _shown(letter)
        record = original(bus, admin, letter)
        shown["original_kept"] = record is not None
        if show_original and record is not None:
            with _producer(bus) as producer:
                audit_letter(producer, SHOWN, letter, {})
            shown["original"] = _original(record)
    if as_json:
        typer.echo(json.dumps(shown))
        return
    for name, value in shown.items():
        typer.echo(f"{name:15} {'' if value is None else value}")
    if not show_original and record is not None:
        typer.secho("The original may hold private data; --show-original prints it.", err=True)


def retry(
    letter_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids, or their first characters; or give --all.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All that were not tried again yet.")
    ] = False,
    reason: Annotated[Reason | None, typer.Option(help="With --all: only this reason.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put the originals on their topics again, once the cause is repaired.

    Example: headrace dead-letters retry --all --reason store_refused
    """
    from infra.connection import open_bus
    from infra.letters import read_letters
    from infra.letters import retry as retry_letters

    if bool(letter_ids) == every or (reason is not None and not every):
        raise ConfigError("Give ids, or give --all; --reason goes with --all only.")
    with open_bus(data_dir) as (_, bus, admin):
        chosen = _choose(read_letters(bus, admin), letter_ids or [], reason)
        with _producer(bus) as producer:
            results = retry_letters(bus, admin, producer, chosen)
    _report(results, as_json=as_json)
    if any(result.is_gone for result in results):
        raise typer.Exit(1)


def _choose(letters: list["Letter"], names: list[str], reason: Reason | None) -> list["Letter"]:
    from infra.letters import pick

    if names:
        return list({x.letter_id: x for x in (pick(letters, name) for name in names)}.values())
    return [x for x in letters if x.retried_at is None and reason in (None, x.event.reason)]


def _report(results: list["Retried"], *, as_json: bool) -> None:
    if as_json:
        plain = [
            {
                "dead_letter_id": r.letter.letter_id,
                "topic": r.letter.event.source.topic,
                "partition": r.partition,
                "offset": r.offset,
                "original_kept": not r.is_gone,
            }
            for r in results
        ]
        typer.echo(json.dumps(plain))
        return
    for result in results:
        where, name = result.letter.event.source, result.letter.letter_id[:_ID_WIDTH]
        if result.is_gone:
            typer.secho(
                f"{name}  {where.topic}/{where.partition}/{where.offset} is gone: the topic's "
                "retention removed it. Publish the event again from its source.",
                fg=typer.colors.YELLOW,
                err=True,
            )
        else:
            typer.echo(f"{name}  again as {where.topic}/{result.partition}/{result.offset}")
    num_sent = sum(not result.is_gone for result in results)
    typer.echo(f"{num_sent} of {len(results)} sent again. A new failure makes a new dead letter.")


def _shown(letter: "Letter") -> dict[str, Any]:
    event = letter.event
    return {
        "dead_letter_id": event.dead_letter_id,
        "topic": event.source.topic,
        "partition": event.source.partition,
        "offset": event.source.offset,
        "reason": event.reason,
        "field": event.field,
        "group": event.group,
        "tenant_id": event.tenant_id,
        "num_bytes": event.num_bytes,
        "occurred_at": event.occurred_at.isoformat(),
        "retried_at": letter.retried_at.isoformat() if letter.retried_at else None,
    }


def _print(letters: list["Letter"]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold")
    for name in ("id", "record", "reason", "field", "group", "given up at", "tried again at"):
        table.add_column(name, overflow="fold")
    for letter in letters:
        event, source = letter.event, letter.event.source
        table.add_row(
            event.dead_letter_id[:_ID_WIDTH],
            f"{source.topic}/{source.partition}/{source.offset}",
            event.reason,
            event.field or "",
            event.group,
            f"{event.occurred_at:%Y-%m-%d %H:%M:%S}",
            f"{letter.retried_at:%Y-%m-%d %H:%M:%S}" if letter.retried_at else "",
        )
    Console().print(table)


def _original(record: Any) -> Any:
    from infra.inspection import see

    seen = see(record)
    if seen.event is not None:
        return json.loads(as_line(seen))["event"]
    return original_of(record.value or b"")


@contextmanager
def _producer(bus: "KafkaBus") -> Iterator["Producer"]:
    producer = bus.producer("headrace.cli")
    try:
        yield producer
    finally:
        producer.close()
