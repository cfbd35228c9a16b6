"""headrace export: steps, or whole trajectories with messages and rewards, as files."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from infra.cli.options import AsJson, DataDir
from schemas.clock import to_us
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from infra.store import Reader
    from infra.training_files import TrainingFormat

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
#: Messages in the order in which the conversation ran; further attempts are left out.
_TRAJECTORIES = """
SELECT *
FROM (SELECT * FROM trajectories WHERE {where}) AS t
LEFT JOIN (
    SELECT tenant_id, trajectory_id, arrayMap(
        entry -> CAST(tuple(entry.5, entry.6, entry.7, entry.3) AS
            Tuple(role String, body String, direction String, step_id String)),
        arraySort(groupArray(
            (step_index, started_at, step_id, (direction = 'output', position),
             role, body, direction)
        ))) AS messages
    FROM messages
    WHERE attempt_of IS NULL
    GROUP BY tenant_id, trajectory_id
) AS m USING (tenant_id, trajectory_id)
LEFT JOIN (
    SELECT tenant_id, trajectory_id, arraySort(groupArray(CAST(
        tuple(reward_id, name, value, value_type, label, text, step_id, revision, final)
        AS Tuple(reward_id String, name String, value Nullable(Float64), value_type String,
            label Nullable(String), text Nullable(String), step_id Nullable(String),
            revision Int64, final Bool)))) AS rewards
    FROM rewards
    WHERE NOT retracted
    GROUP BY tenant_id, trajectory_id
) AS r USING (tenant_id, trajectory_id)
ORDER BY t.tenant_id, t.trajectory_id
"""
_STEPS = "SELECT * FROM steps WHERE {where} ORDER BY tenant_id, trajectory_id, step_index, step_id"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    what: Annotated[str, typer.Argument(help="trajectories or steps")] = "trajectories",
    file_format: Annotated[
        Literal["jsonl", "parquet", "openai-jsonl", "trl", "verl"],
        typer.Option("--format", help="jsonl, parquet; for training: openai-jsonl, trl, verl"),
    ] = "jsonl",
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: standard output.")
    ] = None,
    where: Annotated[str, typer.Option(help="SQL condition over the columns of WHAT.")] = "",
    since: Annotated[
        str, typer.Option(help="Started since then: 90m, 24h, 7d or an ISO time.")
    ] = "",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write redacted trajectories, each with messages and rewards, or steps.

    With --format openai-jsonl, trl or verl: the conversations of trajectories as rows that these
    read. docs/export.md says what is in them.

    Example: headrace export steps --format parquet --out steps.parquet --since 7d

    With --json a summary of the written file is printed as one line.
    """
    from infra.store import open_reader

    _refuse(what, file_format, out, as_json=as_json)
    condition = condition_of(where, since, datetime.now(UTC))
    sql = (_TRAJECTORIES if what == "trajectories" else _STEPS).format(where=condition)
    with open_reader(data_dir) as reader:
        count = reader.rows(f"SELECT count() AS n FROM {what} WHERE {condition}")[0]["n"]  # noqa: S608 - the user's own condition, read-only
        with _progress(count, shown=out is not None) as advance:
            if file_format == "parquet":
                _write_parquet(reader, sql, out, advance)
            elif file_format == "jsonl":
                _write_jsonl(reader, sql, out, advance)
            else:
                count = _write_training(reader, condition, file_format, out, advance)
                what = "conversations"
    if as_json:
        summary = {"exported": what, "format": file_format, "rows": count, "out": str(out)}
        typer.echo(json.dumps(summary))
    elif out is not None:
        typer.echo(f"{count} {what} in {out}", err=True)


def _refuse(what: str, file_format: str, out: Path | None, *, as_json: bool) -> None:
    """ConfigError for what does not go together."""
    if what not in ("trajectories", "steps"):
        raise ConfigError("Export trajectories or steps.")
    if file_format in ("openai-jsonl", "trl", "verl") and what != "trajectories":
        raise ConfigError(f"The format {file_format} holds trajectories: export those.")
    if file_format in ("parquet", "trl", "verl") and out is None:
        raise ConfigError("Parquet is binary: name a file with --out.")
    if as_json and out is None:
        raise ConfigError(
            "--json prints a summary where the exported lines go: name a file for them with --out. "
            "The lines themselves are JSON already."
        )


def condition_of(where: str, since: str, now: datetime) -> str:
    """Both conditions as SQL. ConfigError for a time that cannot be read."""
    parts = [f"({where})"] if where.strip() else []
    if since:
        parts.append(f"started_at >= fromUnixTimestamp64Micro({_since(since, now)}, 'UTC')")
    return " AND ".join(parts) or "true"


def _since(text: str, now: datetime) -> int:
    unit = _UNITS.get(text[-1:])
    if unit and text[:-1].isdecimal():
        start = now - timedelta(seconds=int(text[:-1]) * unit)
    else:
        try:
            start = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                "--since takes 90m, 24h, 7d or an ISO time such as 2026-01-31."
            ) from None
        start = start if start.tzinfo else start.replace(tzinfo=UTC)
    return to_us(start)


def _write_jsonl(
    reader: "Reader", sql: str, out: Path | None, advance: "Callable[[int], None]"
) -> None:
    with _target(out) as file:
        for line in reader.lines(sql, "JSONEachRow"):
            if line:
                file.write(line + b"\n")
                advance(1)


def _write_parquet(
    reader: "Reader", sql: str, out: Path | None, advance: "Callable[[int], None]"
) -> None:
    import pyarrow.parquet

    with _target(out) as file:
        writer: Any = None
        for table in reader.tables(sql):
            writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            advance(table.num_rows)
        if writer is not None:
            writer.close()


def _write_training(
    reader: "Reader", condition: str, file_format: "TrainingFormat", out: Path | None,
    advance: "Callable[[int], None]",
) -> int:  # fmt: skip
    from infra.training_files import write_training_file
    from schemas.settings import load_settings

    success = load_settings().batching.success_reward
    with _target(out) as file:
        return write_training_file(reader, condition, file_format, success, file, advance)


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name only when it is complete."""
    if out is None:
        yield sys.stdout.buffer
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
    except FileNotFoundError:
        raise ConfigError(f"The directory of {out} does not exist. Create it.") from None
    part.replace(out)


def _progress(count: int, *, shown: bool) -> "AbstractContextManager[Callable[[int], None]]":
    """A bar on standard error where a person watches and standard output is not the target."""
    if not shown or not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    return _bar(count)


@contextmanager
def _bar(count: int) -> Iterator["Callable[[int], None]"]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("export", total=count)
        yield lambda number: progress.advance(task, number)
