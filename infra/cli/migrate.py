"""headrace migrate: make or update the tables; the sink does the same when it starts."""

import json
import time
from typing import Annotated

import typer

from infra.cli.options import AsJson, DataDir

_WAIT_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(migrate)


def migrate(
    print_ddl: Annotated[
        bool, typer.Option("--print", help="Print the DDL and change nothing.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Bring the store's tables up to date. Running it again changes nothing.

    Example: headrace migrate --print
    """
    from infra.local.launch import find_settings
    from streams.sink.migrate import open_migrated, script, shipped

    settings = find_settings(data_dir)
    if print_ddl:
        ddl = script(shipped(), settings.clickhouse.database)
        shown = json.dumps({"ddl": ddl, "database": settings.clickhouse.database}) + "\n"
        typer.echo(shown if as_json else ddl, nl=False)
        return
    store, applied = open_migrated(settings, wait_seconds=_WAIT_SECONDS, pause=time.sleep)
    store.close()
    names = [f"{migration.number:04d}_{migration.name}" for migration in applied]
    if as_json:
        typer.echo(json.dumps({"applied": names, "database": settings.clickhouse.database}))
        return
    typer.echo(f"applied {', '.join(names)}" if names else "the tables are up to date")
