"""headrace demo: a day of agent traffic through the real pipeline, and what came out."""

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from infra.cli.options import AsJson
from infra.local.signals import ended_once
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from infra.demo.conversations import Conversation

DEFAULT_DATA_DIR = Path(".headrace") / "demo"

Weights = Annotated[
    bool, typer.Option("--weights", help="Show versions of a live model's weights instead.")
]
Learn = Annotated[bool, typer.Option("--learn", help="Let the model learn from rewards instead.")]
ThenLearn = Annotated[
    bool, typer.Option("--then-learn", help="Stop the stack, then go on as with --learn.")
]
NoUpdates = Annotated[
    bool, typer.Option("--no-updates", help="With --learn: the same without a trainer.")
]


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
    weights: Weights = False,
    model: Annotated[
        str | None,
        typer.Option(help="With --weights or --learn: folder, GGUF file or hub name."),
    ] = None,
    learn: Learn = False,
    then_learn: ThenLearn = False,
    no_updates: NoUpdates = False,
    tasks: Annotated[int, typer.Option(min=500, help="With --learn: tasks at most.")] = 6_400,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", "-d", help="Folder of the demo; it is emptied first.")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Play agent conversations through the whole pipeline and compare what came out.

    Exit code 1 when a call is lost or doubled, a reward unmatched, a private value found later
    (of a file: an e-mail, phone or date of birth), or the replay not the same.

    With --json the stack stops at the end.

    With --weights a small model answers an agent while it learns an answer, gets it as a delta of
    its weights, is offered a broken delta, and is rolled back. Its first run makes an environment
    for vLLM in the cache (6 GB).

    With --learn a small model that the demo pre-trains itself answers customers, who rate it later;
    it learns from that while it serves, for six minutes at most; with --model another one does, for
    an hour at most. With --then-learn both are shown, one after the other; learning has a folder of
    its own, and its stack stays up.

    Example: headrace demo --seed 7 --ephemeral
    """
    from rich.console import Console

    if model is not None and not (weights or learn):
        raise ConfigError("--model says whose weights to show. Add --weights or --learn.")
    keep, folder = not (ephemeral or as_json), data_dir.absolute()
    console = Console(stderr=as_json, highlight=False)
    with ended_once([signal.SIGINT, signal.SIGTERM], _interrupt):  # and the stack with it
        if weights:
            _weights(console, folder, model, keep=keep, as_json=as_json)
        elif learn:
            _learn(console, folder, seed, tasks, updates=not no_updates, keep=keep,
                   as_json=as_json, model=model)  # fmt: skip
        elif then_learn:
            _tour(console, folder, trajectories, seed, tasks, concurrency, keep=keep,
                  as_json=as_json)  # fmt: skip
        else:
            _play(console, folder, trajectories, seed, concurrency, keep=keep, as_json=as_json)


def _play(
    console: "Console", data_dir: Path, trajectories: Path | None, seed: int, concurrency: int, *,
    keep: bool, as_json: bool,
) -> None:  # fmt: skip
    from infra.demo import report
    from infra.demo.before_after import before_and_after
    from infra.demo.gold import CERTAIN_KINDS
    from infra.demo.private_data import KINDS
    from infra.demo.run import Script, play
    from infra.demo.stage import staged
    from infra.replay.run import replay
    from infra.store import open_reader

    started = time.monotonic()
    talks, arguments = _conversations(trajectories, seed)
    must_not_leak = frozenset(KINDS if trajectories is None else CERTAIN_KINDS)
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
        with open_reader(data_dir) as reader:
            shown = before_and_after(played, reader)
    report.print_summary(console, played, seconds)
    console.print(*shown, sep="\n")
    if keep:
        report.print_next_steps(console, str(data_dir), report.first_trajectory(played))
    if as_json:
        sys.stdout.write(report.numbers_line(played, seconds) + "\n")
    if not all(finding.good is not False for finding in report.findings(played, seconds)):
        raise typer.Exit(1)


def _tour(
    console: "Console", data_dir: Path, trajectories: Path | None, seed: int, tasks: int,
    concurrency: int, *, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """The data path, then learning. Where there can be no engine, the first part was all."""
    from infra.local.engine import ensure_engine
    from infra.local.launch import shut_down
    from schemas.settings import load_settings

    if as_json:
        raise ConfigError("--json prints the figures of one part: use it without --then-learn.")
    configured = load_settings().worker.python
    _play(console, data_dir, trajectories, seed, concurrency, keep=True, as_json=False)
    shut_down(data_dir)
    console.print(
        f"That stack is stopped now; its data stays in {data_dir}. `make demo-data` plays this "
        "part alone and leaves it up.",
        markup=False,
        soft_wrap=True,
    )
    console.print("\n[bold]Second part: the agent's model gets better while it is used[/]")
    try:
        ensure_engine(configured, lambda text: console.print(text, markup=False, soft_wrap=True))
    except ConfigError as error:
        console.print(f"It is left out, since no model can be served here. {error}",
                      style="yellow", markup=False, soft_wrap=True)  # fmt: skip
        return
    learning_dir = data_dir.with_name(f"{data_dir.name}-learning")
    _learn(console, learning_dir, seed, tasks, updates=True, keep=keep, as_json=False)


def _weights(
    console: "Console", data_dir: Path, model: str | None, *, keep: bool, as_json: bool
) -> None:
    from infra.demo.weights.learning import HEADRACE
    from infra.demo.weights.show import SQL, run, table

    def show(who: str, text: str) -> None:
        console.print(f"[bold]{who:<10}[/bold] ", end="")
        console.print(text, markup=False, soft_wrap=True)

    shown = run(data_dir, model, HEADRACE, show, keep=keep)
    calls = shown.played.replies
    show("agent", f"{len(calls)} calls, {shown.played.num_failed} failed, "
         f"{shown.played.num_mislabelled} with a wrong version")  # fmt: skip
    console.print(f"\n{SQL}\n", markup=False)
    for line in table(shown.rows):
        console.print(line, markup=False, soft_wrap=True)
    for problem in shown.problems:
        console.print(f"not so: {problem}", style="red", markup=False)
    console.print(f"\n{shown.seconds:.0f} s in all", markup=False)
    if keep:
        console.print(f"The stack stays up: headrace workers -d {data_dir}; headrace down "
                      f"-d {data_dir}", markup=False)  # fmt: skip
    if as_json:
        sys.stdout.write(json.dumps(shown.numbers()) + "\n")
    if shown.problems:
        raise typer.Exit(1)


def _learn(
    console: "Console", data_dir: Path, seed: int, tasks: int, *,
    updates: bool, keep: bool, as_json: bool, model: str | None = None,
) -> None:  # fmt: skip
    from infra.demo.learning.course import Plan
    from infra.demo.learning.report import lines
    from infra.demo.learning.show import run

    def say(who: str, text: str) -> None:
        console.print(f"[bold]{who:<8}[/bold] ", end="")
        console.print(text, markup=False, soft_wrap=True)

    def show_line(text: str) -> None:
        console.print(text, markup=False, end="\r" if console.is_terminal else "\n")

    plan = Plan(seed, num_tasks=tasks, controls=updates)
    if model is not None:
        plan = replace(plan, max_seconds=3_600.0)
    shown = run(data_dir, plan, say, show_line, updates=updates, keep=keep, model=model)
    for line in lines(shown, data_dir, seed, keep=keep, model=model):
        console.print(line, markup=False, soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps(shown.numbers) + "\n")
    if shown.problems:
        raise typer.Exit(1)


def _interrupt(_number: int) -> NoReturn:
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
