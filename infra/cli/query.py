"""headrace query: SQL over what the sink stored."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from infra.store import Reader

_MAX_CELL_CHARACTERS = 120
#: More columns than this are unreadable side by side.
_MAX_COLUMNS = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(query)


def query(
    sql: Annotated[str, typer.Argument(help="A SELECT; `-` reads it from standard input.")],
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the table to show.")] = 200,
    data_dir: DataDir = None,
) -> None:
    """Run a SELECT on the store. Nothing can be changed. Recipes: docs/queries.md.

    Example: headrace query "SELECT tenant_id, count() FROM steps GROUP BY tenant_id" --csv
    """
    from infra.store import open_reader

    if as_json and csv:
        raise ConfigError("Give --json or --csv, not both.")
    statement = (sys.stdin.read() if sql == "-" else sql).strip().rstrip(";")
    if not statement:
        raise ConfigError('Give a query, such as: headrace query "SELECT count() FROM steps"')
    with open_reader(data_dir) as reader:
        if csv:
            _write(line + b"\n" for line in reader.lines(statement, "CSVWithNames"))
        elif as_json:
            _write(json_array(reader.lines(statement, "JSONEachRow")))
        else:
            _print_table(reader, statement, limit)


def json_array(lines: Iterator[bytes]) -> Iterator[bytes]:
    """One JSON array out of one object a line, without holding more than a line."""
    opening = b"["
    for line in lines:
        if line:
            yield opening + b"\n" + line
            opening = b","
    yield b"[]\n" if opening == b"[" else b"\n]\n"


def cell(value: Any) -> str:
    """A value as it stands in a table: short, on one line."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    text = value if isinstance(value, str) else _plain(value)
    text = text.replace("\n", "⏎")
    return text if len(text) <= _MAX_CELL_CHARACTERS else text[: _MAX_CELL_CHARACTERS - 1] + "…"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _print_table(reader: "Reader", statement: str, limit: int) -> None:
    from rich.console import Console

    names: list[str] = []
    rows: list[tuple[Any, ...]] = []
    for names, block in reader.blocks(statement):  # noqa: B007 - the names stay the same
        rows += block
        if len(rows) > limit:
            break
    console = Console()
    if len(names) > _MAX_COLUMNS:
        _print_records(console, names, rows[:limit])
    else:
        console.print(_table(names, rows[:limit]))
    if len(rows) > limit:
        Console(stderr=True).print(
            f"The first {limit} rows. --limit shows more; --csv and --json print all."
        )


def _table(names: list[str], rows: list[tuple[Any, ...]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    _align_numbers(table, rows)
    return table


def _print_records(console: "Console", names: list[str], rows: list[tuple[Any, ...]]) -> None:
    """One column a line, since so many do not fit side by side. Empty ones are left out."""
    from rich.text import Text

    width = max(map(len, names))
    for number, row in enumerate(rows, start=1):
        console.rule(f"row {number}", align="left")
        for name, value in zip(names, row, strict=True):
            if value not in (None, [], ""):
                console.print(Text.assemble((f"{name:{width}}  ", "bold"), cell(value)))


def _align_numbers(table: "Table", rows: list[tuple[Any, ...]]) -> None:
    for index, column in enumerate(table.columns):
        if rows and isinstance(rows[0][index], int | float):
            column.justify = "right"


def _write(chunks: Iterator[bytes]) -> None:
    out = sys.stdout.buffer
    try:
        for chunk in chunks:
            out.write(chunk)
        out.flush()
    except BrokenPipeError:
        # `| head` closed its end. Python would complain again when it flushes at exit.
        sys.stdout = None
