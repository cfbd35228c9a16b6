"""headrace reconcile: proof that every record is accounted for."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir

if TYPE_CHECKING:
    from infra.reconcile.report import Line, Report
    from infra.reconcile.run import Progress

#: Columns that show even where they are zero.
_ALWAYS = ("stored", "unread", "missing")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reconcile)


def reconcile(
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Prove that nothing is lost: account for every record of every topic, per partition.

    produced = stored + replaced + in_state + dead_lettered + quarantined + gaps + expired +
    no_record + unread + missing. Exit code 1 when something is missing, with its offsets and
    the replay that brings it back.

    stored: a row, or a clean event made from it, carries the record's coordinates. replaced: the
    store holds the same id in a version that counts more. in_state: its reader keeps only state
    of it, and its committed offset is trusted. gaps: retention deleted it before it was read.
    expired: deleted after it was read. no_record: the offset holds nothing. unread: its reader
    has still to come to it.

    It changes nothing, may run while traffic flows, and holds 16 MiB of marks at most. Rows
    whose records are no longer on the log cannot be checked.

    Example: headrace reconcile

    Example: headrace reconcile --topic trajectory.steps.v1 --json
    """
    from infra.reconcile.report import commands
    from infra.reconcile.run import reconcile as account_for

    with _progress(quiet=as_json) as progress:
        report = account_for(data_dir, topic, progress)
    repairs = commands(report, _option(data_dir))
    if as_json:
        typer.echo(json.dumps(as_plain(report, repairs)))
    else:
        _print(report, repairs)
    if not report.adds_up:
        raise typer.Exit(1)


def _option(data_dir: Path | None) -> str:
    return "" if data_dir is None else f" -d {data_dir}"


def as_plain(report: "Report", repairs: list[str]) -> dict[str, Any]:
    """The report as JSON values."""
    joins = report.joins
    return {
        "adds_up": report.adds_up,
        "lines": [
            {
                "topic": line.topic,
                "partition": line.partition,
                "group": line.group,
                "produced": line.produced,
                **_counts(line),
                "missing_offsets": [list(stretch) for stretch in line.stretches],
            }
            for line in report.lines
        ],
        "trajectories": None
        if joins is None
        else {
            "judged": joins.is_judged,
            "total": joins.num_trajectories,
            "unjoined": joins.num_unjoined,
            "first_unjoined": [
                {"tenant_id": one.tenant_id, "trajectory_id": one.trajectory_id,
                 "num_steps": one.num_steps, "num_joined": one.num_joined}
                for one in joins.first
            ],
        },
        "repairs": repairs,
    }  # fmt: skip


def _counts(line: "Line") -> dict[str, int]:
    from infra.reconcile.report import Kind

    return {kind.value: line.counts[kind] for kind in Kind}


@contextmanager
def _progress(*, quiet: bool) -> Iterator["Progress"]:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task("reading what the groups have committed", total=None)
        yield lambda name: bar.update(task, description=f"looking for the records of {name}")


def _print(report: "Report", repairs: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = [line for line in report.lines if line.produced]
    totals = {name: sum(_counts(line)[name] for line in shown) for name in _columns(shown)}
    table = Table(header_style="bold")
    for name in ("topic", "reader", "partition", "produced", *totals):
        is_text = name in ("topic", "reader")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=is_text)
    for line in shown:
        counts = _counts(line)
        numbers = [line.partition, line.produced, *(counts[name] for name in totals)]
        table.add_row(
            line.topic, line.group.rpartition(".")[2], *(f"{n:,}" for n in numbers),
            style=None if line.is_balanced else "red",
        )  # fmt: skip
    console = Console(width=max(140, Console().width) if not Console().is_terminal else None)
    console.print(table)
    num_empty = len(report.lines) - len(shown)
    if num_empty:
        console.print(f"{num_empty} partitions that hold nothing are left out.")
    for text in _sentences(report):
        console.print(text, highlight=False, soft_wrap=True)
    if repairs:
        console.print("\nTo bring it back, run in this order:")
    for command in repairs:
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def _columns(lines: "list[Line]") -> list[str]:
    from infra.reconcile.report import Kind

    return [
        kind.value
        for kind in Kind
        if kind.value in _ALWAYS or any(line.counts[kind] for line in lines)
    ]


def _stretch(stretch: tuple[int, int]) -> str:
    first, end = stretch
    return str(first) if end == first + 1 else f"{first} to {end - 1}"


def _sentences(report: "Report") -> Iterator[str]:
    for line in report.lines:
        if line.num_missing:
            where = ", ".join(map(_stretch, line.stretches))
            named = sum(end - first for first, end in line.stretches)
            where += f" and {line.num_missing - named} more" if named < line.num_missing else ""
            yield (
                f"{line.num_missing} records of {line.topic} partition {line.partition} show "
                f"nowhere, though {line.group} read them. Offsets: {where}."
            )
    joins = report.joins
    if joins is not None and not joins.is_judged:
        yield "Trajectories were not compared with their steps, since records are on their way."
    elif joins is not None:
        yield (
            f"{joins.num_trajectories - joins.num_unjoined} of {joins.num_trajectories} "
            "trajectories hold all their steps."
        )
        for one in joins.first:
            yield (
                f"{one.trajectory_id} of {one.tenant_id} has {one.num_steps} steps and its row "
                f"says {one.num_joined}."
            )
    verdict = "Everything adds up" if report.adds_up else "It does not add up"
    unread = f"; {report.num_unread} records are still to be read" if report.num_unread else ""
    yield f"{verdict}{unread}."
