"""headrace doctor: what this machine lacks, and how to mend it."""

import json
from dataclasses import asdict

import typer

from infra.cli.options import AsJson, DataDir

_MARKS = {
    "ok": ("ok", typer.colors.GREEN),
    "warning": ("look", typer.colors.YELLOW),
    "broken": ("mend", typer.colors.RED),
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check what the stack needs. Exit code 1 when something must be mended.

    Example: headrace doctor --json
    """
    from infra.local.doctor import examine
    from schemas.settings import load_settings

    settings = load_settings(**({"data_dir": data_dir} if data_dir else {}))
    findings = list(examine(settings))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    for finding in () if as_json else findings:
        text, color = _MARKS[finding.verdict]
        typer.echo(f"{typer.style(f'{text:5}', fg=color)} {finding.name:20} {finding.found}")
        if finding.mend:
            typer.echo(f"{'':26} {finding.mend}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)
