"""headrace show: one trajectory, readable in a terminal of 80 columns."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from infra.store import Reader
    from infra.transcript import Part, Turn

_MAX_LINES = 12
_ROLE_COLORS = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green"}
_PREFIXES = {"call": "→ ", "result": "← ", "reasoning": "~ ", "other": "· "}
_BY_TRAJECTORY = (
    "FROM {relation} WHERE trajectory_id = {{trajectory:String}} "
    "AND ({{tenant:String}} = '' OR tenant_id = {{tenant:String}}) ORDER BY {order}"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(show)


def show(
    trajectory: Annotated[str, typer.Argument(help="Id of the trajectory.")],
    tenant: Annotated[str, typer.Option(help="Needed where tenants share the id.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long messages.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Show the turns, redactions, rewards, versions, gaps and outcome of one trajectory.

    Example: headrace show booking-17 --tenant acme
    """
    from infra.store import open_reader

    with open_reader(data_dir) as reader:
        found = read_trajectory(reader, trajectory, tenant)
    if as_json:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_UTC_Z) + b"\n")
        return
    from rich.console import Console

    print_trajectory(Console(highlight=False), trajectory, found, _MAX_LINES if not full else None)


def read_trajectory(reader: "Reader", trajectory: str, tenant: str) -> dict[str, Any]:
    """Its summary (None until assembly made one), steps in order and rewards."""

    def rows(relation: str, order: str) -> list[dict[str, Any]]:
        sql = "SELECT * " + _BY_TRAJECTORY.format(relation=relation, order=order)
        return reader.rows(sql, {"trajectory": trajectory, "tenant": tenant})

    summaries = rows("trajectories", "tenant_id")
    steps = rows("steps", "step_index, started_at, step_id")
    rewards = rows("rewards", "occurred_at, reward_id")
    tenants = sorted({row["tenant_id"] for row in [*summaries, *steps, *rewards]})
    if not tenants:
        raise ConfigError(
            f"There is no trajectory {trajectory}. Newest first: headrace query "
            '"FROM trajectories SELECT trajectory_id ORDER BY started_at DESC LIMIT 10"'
        )
    if len(tenants) > 1:
        raise ConfigError(f"Tenants {', '.join(tenants)} have one of that id; give --tenant.")
    return {
        "trajectory": summaries[0] if summaries else None,
        "steps": steps,
        "rewards": rewards,
    }


def print_trajectory(
    console: "Console", trajectory: str, found: dict[str, Any], max_lines: int | None
) -> None:
    """Head, turns, rewards. `max_lines` bounds each piece of a message."""
    from infra.transcript import turns_of

    _print_head(console, trajectory, found)
    before = None
    for step in found["steps"]:
        console.print()
        console.rule(_step_title(step), align="left", style="dim")
        if step["parent_step_id"] not in (None, before):
            console.print(f"  [dim]goes on from {step['parent_step_id']}[/]")
        before = step["step_id"]
        for turn in turns_of(step):
            _print_turn(console, turn, max_lines)
        for gap in step["gaps"]:
            console.print(f"  [yellow]gap[/] {gap['field']}: {gap['reason']}")
    _print_rewards(console, found["rewards"])


def _print_head(console: "Console", trajectory: str, found: dict[str, Any]) -> None:
    from rich.text import Text

    from infra.transcript import policy_versions, redaction_counts

    steps, summary = found["steps"], found["trajectory"]
    first = summary or (steps or found["rewards"])[0]
    facts = [("tenant", first["tenant_id"])]
    facts += [(k, first[k]) for k in ("agent_id", "task_key") if first.get(k)]
    if summary is None:
        facts.append(("state", "not joined yet; assembly has not seen it"))
    else:
        facts += _summary_facts(summary)
    if versions := policy_versions(steps):
        facts.append(("policy versions", " → ".join(map(str, versions))))
    if counts := redaction_counts(steps):
        facts.append(("redacted", ", ".join(f"{kind} {number}" for kind, number in counts)))
    console.print(Text(trajectory, style="bold"))
    for name, value in facts:
        console.print(Text.assemble((f"  {name:17}", "dim"), str(value)))


def _summary_facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    closed = summary["closed_at"]
    state = f"closed {_time(closed)} by {summary['close_reason']}" if closed else "open"
    reward = "none yet"
    if summary["reward"] is not None:
        reward = f"{summary['reward']:g} ({summary['reward_status']}, {summary['reward_policy']})"
    learn = "may be learned from" if summary["training_eligible"] else "not for training"
    return [
        ("state", state),
        ("outcome", summary["outcome"] or "unknown"),
        ("reward", reward),
        ("use", learn),
    ]


def _step_title(step: dict[str, Any]) -> "Text":
    from rich.text import Text

    pieces = [f"step {step['step_index']}", step["outcome"]]
    if step["kind"] != "model_call":
        pieces.append(step["kind"])
    if step["model"]:
        pieces.append(
            f"{step['model']} at {step['upstream']}" if step["upstream"] else step["model"]
        )
    if step["latency_ms"] is not None:
        pieces.append(f"{step['latency_ms'] / 1000:.2f} s")
    if step["attempt_of"]:
        pieces.append(f"attempt of {step['attempt_of']}")
    if step["branch"]:
        of = "subagent" if step["subagent_id"] else "branch"
        pieces.append(f"{of} {step['branch']}")
    pieces.append(step["step_id"])
    return Text(" · ".join(pieces), style="bold")


def _print_turn(console: "Console", turn: "Turn", max_lines: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    color = _ROLE_COLORS.get(turn.role, "yellow")
    console.print(Text(turn.role, style=f"bold {color}"))
    if not turn.parts:
        console.print(Text("  (empty)", style="dim"))
    for part in turn.parts:
        console.print(Padding(_part_text(part, turn.placeholders, max_lines), (0, 0, 0, 2)))


def _part_text(part: "Part", placeholders: tuple[str, ...], max_lines: int | None) -> "Text":
    from rich.text import Text

    body = part.text
    lines = body.splitlines()
    limit = None if max_lines is None else max_lines * 80
    if max_lines is not None and (len(lines) > max_lines or len(body) > (limit or 0)):
        body = "\n".join(lines[:max_lines])[:limit] + " … (--full shows all)"
    label = f"{_PREFIXES.get(part.kind, '')}{part.name}{' ' if part.name else ''}"
    text = Text.assemble((label, "bold blue"), (body, "dim" if part.kind == "reasoning" else ""))
    for placeholder in placeholders:
        text.highlight_words([placeholder], "black on yellow")
    return text


def _print_rewards(console: "Console", rewards: list[dict[str, Any]]) -> None:
    from rich.text import Text

    console.print()
    console.rule(Text("rewards", style="bold"), align="left", style="dim")
    if not rewards:
        console.print(Text("  none yet", style="dim"))
    for reward in rewards:
        flags = [name for name in ("final", "retracted") if reward[name]]
        flags += [f"revision {reward['revision']}"] if reward["revision"] > 1 else []
        about = f"step {reward['step_id']}" if reward["step_id"] else "the trajectory"
        line = f"  {reward['name']} = {_reward_value(reward)}"
        details = ", ".join([*flags, about, f"at {_time(reward['occurred_at'])}"])
        style = "dim strike" if reward["retracted"] else "bold"
        console.print(Text.assemble((line, style), f"  {details}"))
        if reward["text"]:
            console.print(Text(f"    {reward['text']}"))


def _reward_value(reward: dict[str, Any]) -> str:
    if reward["value_type"] == "boolean":
        return "true" if reward["value"] else "false"
    if reward["value"] is not None:
        return f"{reward['value']:g}"
    return str(reward["label"] or reward["kind"])


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
