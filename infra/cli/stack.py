"""headrace up, down, logs: the local stack."""

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from infra.local.state import ChildState, StackState
    from infra.local.supervisor import Plan

_COLORS = {"ready": typer.colors.GREEN, "done": typer.colors.GREEN, "failed": typer.colors.RED}
_FOLLOW_POLL_SECONDS = 0.3


class Extra(StrEnum):
    """What `up` can add to the stack."""

    MODEL = "model"
    LEARNING = "learning"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, down, logs):
        app.command()(command)


def _port(default: str) -> Any:
    return typer.Option(min=1, max=65_535, help=f"Default: {default}.")


def up(
    data_dir: DataDir = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all is ready.")] = False,
    kafka_port: Annotated[int | None, _port("9092")] = None,
    clickhouse_port: Annotated[int | None, _port("setting clickhouse.port")] = None,
    gateway_port: Annotated[int | None, _port("setting gateway.port")] = None,
    extras: Annotated[
        list[Extra] | None,
        typer.Option("--with", help="Serve a model on this machine; learning: and train it."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint folder, GGUF file or hub name; default: setting worker.model, else "
            "SmolLM2-135M-Instruct."
        ),
    ] = None,
    worker_port: Annotated[int | None, _port("setting worker.port")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Start only this process; several times for several."),
    ] = None,
) -> None:
    """Start Kafka, ClickHouse, the gateway and the processors; stop them with Ctrl-C.

    With `--with model` a small language model answers behind the gateway, on the CPU. Its first
    start makes an environment for vLLM in the cache (6 GB, about a minute). With `--with learning`
    a trainer learns from the rewards of its answers, and what it learns is served.

    Example: headrace up --detach --with model
    """
    from infra.local.launch import launch
    from infra.local.serving import ensure_served
    from infra.local.stack import Ports, make_plan, prepare_data_dir
    from schemas.settings import load_settings

    settings = load_settings(**({"data_dir": data_dir} if data_dir else {}))
    ports = Ports.from_settings(
        settings, kafka=kafka_port, clickhouse=clickhouse_port, gateway=gateway_port,
        worker=worker_port,
    )  # fmt: skip
    if model is not None and not extras:
        raise ConfigError("--model says which model to serve. Add --with model.")
    typer.echo(f"headrace starts in {settings.data_dir.absolute()}")
    learns = Extra.LEARNING in (extras or ())
    served = ensure_served(settings, model, typer.echo, learns=learns) if extras else None
    if detach:
        state = launch(settings, ports, _print_change, only or (), served)
        _print_ready(state, detached=True)
        return
    prepare_data_dir(settings)
    asyncio.run(_run(make_plan(settings, ports, only or (), served)))
    typer.echo("stopped; the data stays")


async def _run(plan: "Plan") -> None:
    from infra.local.supervisor import Supervisor

    await Supervisor(plan, _print_change).run(lambda state: _print_ready(state, detached=False))


def down(data_dir: DataDir = None) -> None:
    """Stop the stack. Data stays.

    Example: headrace down --data-dir /var/lib/headrace
    """
    from infra.local.launch import shut_down

    directory = _directory(data_dir)
    if shut_down(directory):
        typer.echo(f"stopped; the data stays in {directory}")
    else:
        typer.echo(f"No headrace stack runs in {directory}.")


def logs(
    name: Annotated[str | None, typer.Argument(help="A process; default: all.")] = None,
    data_dir: DataDir = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="Last lines of each process.")
    ] = 50,
) -> None:
    """Show what the processes wrote. Logs hold no payload text.

    Example: headrace logs redaction --follow
    """
    from infra.local.rotating_log import last_lines

    directory = _directory(data_dir) / "logs"
    found = sorted(directory.glob("*.log"))
    files = [file for file in found if name in (None, file.stem)]
    if not files:
        names = ", ".join(file.stem for file in found) or "none yet"
        raise ConfigError(f"No log of {name or 'any process'} in {directory}; there are: {names}.")
    width = max(len(file.stem) for file in files)
    ends = {file: file.stat().st_size for file in files}
    for file in files:
        for line in last_lines(file, lines):
            _print_line(file.stem, line, width)
    while follow:
        for file in files:
            ends[file] = _print_new(file, ends[file], width)
        time.sleep(_FOLLOW_POLL_SECONDS)


def _directory(data_dir: Path | None) -> Path:
    from schemas.settings import load_settings

    return (data_dir or load_settings().data_dir).absolute()


def _option(directory: Path) -> str:
    """How further commands name the stack, where it is not in the default place."""
    return "" if directory == Path(".headrace").absolute() else f" -d {directory}"


def _print_change(child: "ChildState") -> None:
    mark = typer.style(f"{child.status:9}", fg=_COLORS.get(child.status))
    typer.echo(f"  {child.name:11} {mark} {child.reason}".rstrip())


def _print_ready(state: "StackState", *, detached: bool) -> None:
    from infra.replay.unfinished import sentence

    option = _option(Path(state.data_dir))
    stop = f"headrace down{option}" if detached else "Ctrl-C"
    password = Path(state.data_dir) / "secrets" / "clickhouse"
    typer.secho("\nheadrace is ready", fg=typer.colors.GREEN, bold=True)
    typer.echo(f"  gateway     {state.urls['gateway']}   (the base URL to give to an agent)")
    typer.echo(f"  kafka       {state.urls['kafka']}")
    typer.echo(f"  clickhouse  {state.urls['clickhouse']}   user headrace, password in {password}")
    if model := state.urls.get("model"):
        typer.echo(f"  model       {model}   (the name to ask the gateway for)")
    typer.echo(f"  data, logs  {state.data_dir}")
    typer.echo(f"  stop        {stop}")
    if replay := sentence(Path(state.data_dir), option):
        typer.secho(f"\n{replay}", fg=typer.colors.YELLOW)
    typer.echo("\nTry next:")
    for command in ("status", "keys create", "topics", 'query "SELECT count() FROM steps"'):
        typer.echo(f"  headrace {command}{option}")
    if model:
        body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
        typer.echo(f"  curl {state.urls['gateway']}/chat/completions -H 'x-headrace-key: <key>' \\")
        typer.echo(f"    -H 'content-type: application/json' -d '{body}'")


def _print_new(file: Path, start: int, width: int) -> int:
    size = file.stat().st_size if file.exists() else 0
    if size < start:
        start = 0  # the log was rotated
    if size == start:
        return start
    with file.open("rb") as source:
        source.seek(start)
        data = source.read(size - start)
    complete, newline, _ = data.rpartition(b"\n")
    for line in complete.decode(errors="replace").splitlines():
        _print_line(file.stem, line, width)
    return start + len(complete) + len(newline)


def _print_line(name: str, line: str, width: int) -> None:
    typer.echo(f"{typer.style(f'{name:{width}}', dim=True)} {line}")
