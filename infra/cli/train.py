"""headrace train: learn from what is stored already."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from infra.store import Reader
    from schemas.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


def train(
    out: Annotated[Path, typer.Option(help="Folder for the model that was made.")],
    from_replay: Annotated[
        bool, typer.Option("--from-replay", help="Learn from stored trajectories.")
    ] = False,
    model: Annotated[
        Path | None, typer.Option(help="Checkpoint folder to start from. Default: a small new one.")
    ] = None,
    where: Annotated[str, typer.Option(help="SQL condition over trajectories.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of the optimizer.")] = 60,
    base_steps: Annotated[
        int, typer.Option(min=0, help="Steps of a new model over all text, before.")
    ] = 200,
    held_out: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the tasks that is kept out.")
    ] = 0.3,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the order.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Learn from the answers of stored trajectories that succeeded, and compare on other tasks.

    Needs no log-probabilities, so it serves what closed models answered. Tasks are split by their
    key; a control learns from all answers. docs/replay-training.md says what the figures mean.

    Example: headrace train --from-replay --out model
    """
    from infra.cli.export import condition_of
    from infra.local.engine import ensure_engine
    from infra.local.launch import find_settings
    from infra.store import open_reader

    if not from_replay:
        raise ConfigError("Say what to learn from: --from-replay takes stored trajectories.")
    settings = find_settings(data_dir)
    numbers = {"--steps": steps, "--base-steps": base_steps, "--seed": seed,
               "--held-out": held_out, "--success": settings.batching.success_reward}  # fmt: skip
    chosen = [text for name, value in numbers.items() for text in (name, str(value))]
    chosen += ["--model", str(model.absolute())] if model is not None else []
    rated = f"{condition_of(where, '', datetime.now(UTC))} AND reward IS NOT NULL"
    with tempfile.TemporaryDirectory(prefix="headrace-train-") as folder:
        file = Path(folder) / "talks.jsonl"
        with open_reader(data_dir) as reader, file.open("w") as lines:
            lines.writelines(_lines(reader, rated))
        if file.stat().st_size == 0:  # told before the engine's environment is made
            raise ConfigError(
                "There is nothing to learn from: no conversation with a reward is stored, or "
                '--where chooses none. `headrace query "SELECT reward, count() FROM trajectories '
                'GROUP BY reward"` shows what there is.'
            )
        python = ensure_engine(settings.worker.python, lambda text: typer.echo(text, err=True))
        found = _learn(settings, python, [str(file), str(out.absolute()), *chosen])
    sys.stdout.write(f"{json.dumps(found)}\n" if as_json else _told(found, out))


def _lines(reader: "Reader", where: str) -> Iterator[str]:
    from infra.training_files import stored_conversations

    for talk in stored_conversations(reader, where):
        row = {
            "name": f"{talk.tenant_id}/{talk.trajectory_id}/{talk.index}",
            "task": f"{talk.tenant_id}/{talk.task_key or talk.trajectory_id}",
            "reward": talk.reward,
            "messages": talk.messages,
        }
        yield json.dumps(row) + "\n"


def _learn(settings: "Settings", python: Path, arguments: list[str]) -> dict[str, Any]:
    from schemas.tether import tethered
    from trainer.relaunch import command, environment

    site = settings.data_dir.absolute() / "trainer" / "site"
    run = tethered(command(python, site, "trainer.offline", arguments))
    last = ""
    with subprocess.Popen(
        run, stdout=subprocess.PIPE, env=environment(os.environ, site), text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line
            if not line.startswith("{"):
                typer.echo(line.rstrip(), err=True)
    if process.returncode != 0:
        raise ConfigError("Nothing was learned; what was said stands above.")
    found: dict[str, Any] = json.loads(last)
    return found


def _told(found: dict[str, Any], out: Path) -> str:
    return "\n".join([*_counts(found), "", *_table(found), *_changes(found), "", *_end(out)]) + "\n"


def _counts(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{found['conversations']} conversations of {found['tasks']} tasks; "
        f"{found['held_out']} of {found['held_out_tasks']} tasks held out, "
        f"{found['held_out_successes']} of them successes"
    )
    yield (
        f"filtered: {found['steps']} steps from {found['learned_from']} successes; "
        f"control: as many from all {found['control_from']}"
    )


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield f"{'nats per answer token':<24}{'successes':>12}{'failures':>12}   success likelier"
    for name in ("base", "filtered", "control"):
        cells = [_cell(found[name][key]) for key in ("nats_success", "nats_failure", "separation")]
        yield f"{name:<24}{cells[0]:>12}{cells[1]:>12}   {cells[2]:>10}"


def _changes(found: dict[str, Any]) -> Iterator[str]:
    for name in ("filtered", "control"):
        for kind in ("success", "failure"):
            if change := found[name][f"change_{kind}"]:
                yield (
                    f"{name}, change of a {kind}: {change[0]:+.4f} "
                    f"(95 % over tasks: {change[1]:+.4f} to {change[2]:+.4f})"
                )


def _end(out: Path) -> Iterator[str]:
    yield "These say how likely the recorded answers are, not how many tasks would be solved."
    yield f"model: {out}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
