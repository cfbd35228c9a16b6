"""headrace demo: a day of agent traffic through the real pipeline, and what came out."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from infra.demo.conversations import Conversation

DEFAULT_DATA_DIR = Path(".headrace") / "demo"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    trajectories: Annotated[
        Path | None, typer.Option(help="Play the conversations of this file instead.")
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Stop the stack at the end.")
    ] = False,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Conversations at a time.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the demo's own conversations.")] = 1,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", "-d", help="Folder of the demo; it is emptied first.")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Play agent conversations through the whole pipeline and compare what came out.

    Exit code 1 when a call is lost or doubled, a reward unmatched, a private value found later
    (of a file: an e-mail, phone or date of birth), or the replay not the same.

    With --json the stack stops at the end.

    Example: headrace demo --seed 7 --ephemeral
    """
    from rich.console import Console

    from infra.demo import report
    from infra.demo.gold import CERTAIN_KINDS
    from infra.demo.private_data import KINDS
    from infra.demo.run import Script, play
    from infra.demo.stage import staged
    from infra.replay.run import replay
    from infra.store import open_reader

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    started = time.monotonic()
    keep = not (ephemeral or as_json)
    console = Console(stderr=as_json, highlight=False)
    talks, arguments = _conversations(trajectories, seed)
    must_not_leak = frozenset(KINDS if trajectories is None else CERTAIN_KINDS)
    data_dir = data_dir.absolute()
    with (
        report.RichProgress(console) as progress,
        staged(data_dir, arguments, keep=keep, progress=progress) as stage,
    ):
        played = play(
            stage,
            Script(talks, seed, concurrency, must_not_leak),
            lambda folder, report_stage: replay(folder, report=report_stage),
            progress,
        )
        seconds = time.monotonic() - started
    report.print_summary(console, played, seconds)
    if keep:
        with open_reader(data_dir) as reader:
            report.print_before_and_after(console, played, reader)
        report.print_next_steps(console, str(data_dir), report.first_trajectory(played))
    if as_json:
        sys.stdout.write(report.numbers_line(played, seconds) + "\n")
    if not all(finding.good is not False for finding in report.findings(played, seconds)):
        raise typer.Exit(1)


def _interrupt_once(_number: int, _frame: object) -> None:
    """End the demo, and the stack with it. A second signal must not break off the ending: kill and
    `timeout` send several, and people press Ctrl-C twice."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _conversations(trajectories: Path | None, seed: int) -> tuple[list["Conversation"], list[str]]:
    """What is played, and the arguments by which the recorded model knows the same."""
    from infra.demo.conversations import generate, load_trajectories

    if trajectories is None:
        return generate(seed), ["--seed", str(seed)]
    talks = load_trajectories(trajectories)
    if not talks:
        raise ConfigError(f"{trajectories} holds no conversation. Name another file.")
    return talks, ["--trajectories", str(trajectories.absolute())]
