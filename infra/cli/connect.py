"""headrace connect: the setting that makes an agent call the gateway."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(connect)


def connect(
    client: Annotated[
        str, typer.Argument(help="claude-code, codex, opencode … `list` shows all.")
    ] = "list",
    key: Annotated[str, typer.Option(help="A key of `headrace keys create`.")] = "<key>",
    url: Annotated[str | None, typer.Option(help="Address of the gateway.")] = None,
    trajectory: Annotated[
        str | None, typer.Option(help="Trajectory of all that the client sends.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Set it in the client's file.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what --write did.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Print the setting that makes a client call the gateway, or write it into its own file.

    Example: headrace connect claude-code --key hr_acme_x --write
    """
    from infra.connecting import clients, files
    from infra.local.launch import find_settings

    found = clients.find(client)
    if found is None:
        _list(client, as_json=as_json)
        return
    settings = find_settings(data_dir)
    notes = settings.data_dir / "connect"
    if undo:
        typer.echo(f"Taken out of {files.undo(found, notes)}")
        return
    gateway = url or f"http://{settings.gateway.host}:{settings.gateway.port}"
    bases = clients.urls(gateway, key, trajectory)
    written: Path | None = None
    if write:
        _require(key)
        if found.file is None:
            raise ConfigError(
                f"{found.title} has no settings file that headrace knows. Use its setting: "
                f"{clients.setting(found, bases)}"
            )
        written = files.settings_path(found, found.file, dict(os.environ), Path.home())
        files.write(found, written, bases, notes)
    if as_json:
        shown = {
            "client": found.name,
            "setting": clients.setting(found, bases),
            "note": clients.note(found, bases),
            "written": None if written is None else str(written),
        }
        typer.echo(json.dumps(shown))
    elif written is not None:
        typer.echo(f"Written to {written}\nBack: headrace connect {found.name} --undo")
    else:
        typer.echo(clients.setting(found, bases))
        if found.note:
            typer.echo(clients.note(found, bases), err=True)


def _require(key: str) -> None:
    if key == "<key>":
        raise ConfigError(
            "Give the key with --key. To make one: headrace keys create --tenant acme --scope "
            "capture"
        )


def _list(asked: str, *, as_json: bool) -> None:
    from infra.connecting.clients import CLIENTS

    if asked != "list":
        names = ", ".join(client.name for client in CLIENTS)
        raise ConfigError(f"There is no client {asked}. Known: {names}")
    if as_json:
        typer.echo(json.dumps([client.name for client in CLIENTS]))
        return
    for client in CLIENTS:
        typer.echo(f"{client.name:16} {client.title}")
