"""Options that many commands share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", "-d", help="Directory of the stack. Default: setting data_dir (.headrace)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
