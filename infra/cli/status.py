"""headrace status: what runs, what is behind, what waits and why."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson, DataDir

if TYPE_CHECKING:
    from infra.local.state import StackState
    from infra.status.report import Report

_COLORS = {"ready": typer.colors.GREEN, "done": typer.colors.GREEN, "failed": typer.colors.RED}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    data_dir: DataDir = None,
    as_json: AsJson = False,
    every_partition: Annotated[
        bool, typer.Option("--all", help="Also partitions that are not behind.")
    ] = False,
    sample_seconds: Annotated[
        float,
        typer.Option("--sample", min=0, max=60, help="Seconds over which rates are measured."),
    ] = 2.0,
) -> None:
    """Show what runs, how far each group is behind, and what waits and why.

    Exit code 1 unless all is ready, nothing stands still and no replay is unfinished. Times are
    UTC. Works with a stack on this machine, and with a cluster that the settings name.

    Example: headrace status --json
    """
    from infra.local.launch import find_settings, running_state
    from infra.local.stack import uses_local_kafka
    from infra.local.state import is_owned
    from infra.replay.unfinished import sentence
    from infra.status.collect import collect
    from schemas.settings import load_settings

    given = load_settings(**({"data_dir": data_dir} if data_dir else {}))
    directory = given.data_dir.absolute()
    option = "" if directory == Path(".headrace").absolute() else f" -d {directory}"
    replay = sentence(directory, option)
    runs = is_owned(directory)
    if not runs and uses_local_kafka(given):
        if not as_json:
            running_state(directory)  # says how to start one
        typer.echo(json.dumps({"running": False, "data_dir": str(directory), "replay": replay}))
        raise typer.Exit(1)
    state = running_state(directory) if runs else None
    whole = state is None or "sink" in {child.name for child in state.children}
    settings = find_settings(directory) if runs else given
    report = collect(settings, state, sample_seconds=sample_seconds, is_whole=whole)
    healthy = _is_ready(state) and not report.waits and replay is None
    if as_json:
        _print_json(state, report, directory, replay, healthy=healthy)
    else:
        _print_all(state, report, replay, every_partition=every_partition)
    if not healthy:
        raise typer.Exit(1)


def _is_ready(state: "StackState | None") -> bool:
    return state is None or all(child.status in {"ready", "done"} for child in state.children)


def _print_json(
    state: "StackState | None",
    report: "Report",
    directory: Path,
    replay: str | None,
    *,
    healthy: bool,
) -> None:
    shown = {
        "running": state is not None,
        "healthy": healthy,
        "replay": replay,
        "data_dir": str(directory),
        **(asdict(state) if state else {}),
        **asdict(report),
    }
    typer.echo(json.dumps(shown, default=_plain))


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in the report")


def _print_all(
    state: "StackState | None", report: "Report", replay: str | None, *, every_partition: bool
) -> None:
    from infra.status.report import quarantine_sentence
    from infra.status.table import lines

    if state is not None:
        _print_processes(state)
    for line in lines(report, datetime.now(UTC), every_partition=every_partition):
        typer.echo(line)
    quarantined = report.num_quarantined
    aside = (quarantine_sentence(quarantined),) if quarantined else ()
    for sentence in (*((replay,) if replay else ()), *report.waits, *report.gaps, *aside):
        typer.secho(sentence, fg=typer.colors.YELLOW)


def _print_processes(state: "StackState") -> None:
    typer.echo(f"{'process':12}{'status':10}{'pid':>8}  {'port':>6}  {'restarts':>8}  since")
    for child in state.children:
        port = ", ".join(str(number) for number in child.ports)
        mark = typer.style(f"{child.status:10}", fg=_COLORS.get(child.status))
        typer.echo(
            f"{child.name:12}{mark}{child.pid or '':>8}  {port:>6}  {child.restarts:>8}  "
            f"{child.since}  {child.reason}".rstrip()
        )
    for name, url in state.urls.items():
        typer.echo(f"{name:12}{url}")
    typer.echo(f"{'data':12}{state.data_dir}\n")
