"""headrace replay: process again what the log still holds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from infra.replay.plan import Plan, Start
    from infra.replay.run import Report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    groups: Annotated[
        list[str] | None,
        typer.Argument(help="redaction, assembly, sink; all three where none is named."),
    ] = None,
    from_time: Annotated[
        str | None, typer.Option(help="Start at this time (ISO 8601). State and tables stay.")
    ] = None,
    from_offset: Annotated[
        list[str] | None, typer.Option(help="TOPIC:PARTITION:OFFSET, several times for several.")
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option(help="Only this trajectory; needs --tenant.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Owner of the trajectory.")] = None,
    keep_tables: Annotated[
        bool, typer.Option("--keep-tables", help="Replace rows instead of wiping tables first.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop the groups, wipe what they derived, reset their offsets, run them again.

    Without options everything is processed again from the first record kept. Rows carry a new
    replay_epoch; ids stay the same, so nothing is doubled. A replay that was cut short leaves the
    processors stopped; running `headrace replay` again finishes it.

    Example: headrace replay --dry-run

    Example: headrace replay assembly sink --from-time 2026-01-31T08:00:00Z

    Example: headrace replay --trajectory booking-17 --tenant acme
    """
    if trajectory is not None or tenant is not None:
        if groups or from_time or from_offset or keep_tables or dry_run:
            raise ConfigError(
                "--trajectory publishes the records of one trajectory again and takes only "
                "--tenant beside it; leave the other options out."
            )
        _one(data_dir, tenant, trajectory, as_json=as_json)
        return
    from infra.replay.run import preview
    from infra.replay.run import replay as run_replay

    names, start = _groups(groups or []), _start(from_time, from_offset or [])
    if dry_run:
        _print(preview(data_dir, names, start, keep_tables=keep_tables), "would replay", as_json)
        return
    with _saying_how_to_finish(data_dir), _progress(quiet=as_json) as report:
        plan = run_replay(data_dir, names, start, keep_tables=keep_tables, report=report)
    _print(plan, "replayed", as_json)


def _one(
    data_dir: Path | None, tenant: str | None, trajectory: str | None, *, as_json: bool
) -> None:
    from infra.replay.one import replay_trajectory

    if tenant is None or trajectory is None:
        raise ConfigError(
            "Give --trajectory and --tenant together: ids are unique within a tenant."
        )
    with _progress(quiet=as_json) as report:
        done = replay_trajectory(data_dir, tenant, trajectory, report)
    if as_json:
        typer.echo(json.dumps({"records": done.num_records, "gone": done.num_gone}))
        return
    typer.echo(f"{done.num_records} records of {trajectory} are on their way again.")
    if done.num_gone:
        typer.echo(f"{done.num_gone} are no longer kept; their rows stay as they are.")


@contextmanager
def _saying_how_to_finish(data_dir: Path | None) -> Iterator[None]:
    """Whatever breaks a replay off, the user learns what it left behind."""
    from infra.local.launch import find_settings
    from infra.replay.unfinished import sentence

    try:
        yield
    finally:
        option = "" if data_dir is None else f" -d {data_dir}"
        if said := sentence(find_settings(data_dir).data_dir, option):
            typer.secho(said, fg=typer.colors.YELLOW, err=True)


def _groups(names: list[str]) -> tuple[str, ...]:
    from schemas import topics

    known = {group.rpartition(".")[2]: group for group in topics.GROUPS} | {
        group: group for group in topics.GROUPS
    }
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"No group {unknown[0]}. Name redaction, assembly or sink.")
    return tuple(g for g in topics.GROUPS if not names or g in {known[n] for n in names})


def _start(from_time: str | None, from_offset: list[str]) -> "Start":
    from infra.replay.plan import Start

    if from_time and from_offset:
        raise ConfigError("Give --from-time or --from-offset, not both.")
    if from_time:
        try:
            at = datetime.fromisoformat(from_time)
        except ValueError:
            raise ConfigError(
                f"{from_time} is no ISO 8601 time. Write it like 2026-01-31T08:00:00Z."
            ) from None
        return Start(at=at if at.tzinfo else at.replace(tzinfo=UTC))
    offsets = {}
    for text in from_offset:
        topic, _, rest = text.partition(":")
        partition, _, offset = rest.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise ConfigError(
                f"{text} is not TOPIC:PARTITION:OFFSET. Write it like raw.events.v1:0:100."
            )
        offsets[topic, int(partition)] = int(offset)
    return Start(offsets=offsets)


@contextmanager
def _progress(*, quiet: bool) -> Iterator["Report"]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("looking at the log", total=None)

        def report(stage: str, done: int, total: int) -> None:
            progress.update(task, description=stage, completed=done, total=total or None)

        yield report


def _print(plan: "Plan", verb: str, as_json: bool) -> None:
    if as_json:
        groups = [{"group": g.group, "wiped": list(g.changelogs)} for g in plan.groups]
        value = {
            "groups": groups,
            "tables_wiped": list(plan.tables),
            "records": plan.num_records,
            "gone": [asdict(gap) for gap in plan.gone],
        }
        typer.echo(json.dumps(value))
        return
    names = ", ".join(group.group for group in plan.groups)
    typer.echo(f"{verb} {plan.num_records} records through {names}")
    if plan.tables:
        typer.echo(f"tables wiped and filled again: {', '.join(plan.tables)}")
    for gap in plan.gone:
        again = " again" if gap.why == "replay" else ""
        typer.echo(
            f"{gap.topic} partition {gap.partition} no longer holds offsets {gap.first} to "
            f"{gap.end - 1}: {gap.group} cannot process them{again}."
        )
