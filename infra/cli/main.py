"""The entry point of `headrace`: collects the commands and turns failures into sentences."""

import importlib
import importlib.metadata
import pkgutil
import sys
from typing import Annotated

import typer

import infra.cli
from schemas.errors import ConfigError, HeadraceError

EXIT_FAILED = 1
EXIT_CONFIG = 2


def make_app() -> typer.Typer:
    """The application with the commands of every module in this package."""
    app = typer.Typer(
        name="headrace",
        help="Online reinforcement learning for agents that are already in production.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for module in pkgutil.iter_modules(infra.cli.__path__):
        register = getattr(importlib.import_module(f"infra.cli.{module.name}"), "register", None)
        if register is not None:
            register(app)
    return app


def main() -> None:
    """Run the command line. 2 for a setting or argument to change, 1 for another failure."""
    try:
        make_app()()
    except ConfigError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)
        sys.exit(EXIT_CONFIG)
    except HeadraceError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def _show_version(wanted: bool) -> None:  # Typer's callback signature
    if wanted:
        typer.echo(f"headrace {importlib.metadata.version('headrace')}")
        raise typer.Exit


def _root(
    version: Annotated[  # handled by its callback
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Gives the application its options; commands do the work."""


if __name__ == "__main__":
    main()
