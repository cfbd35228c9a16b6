"""What the demo prints: progress while it runs, then one summary a person can read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from infra.demo.run import Played

_EXAMPLE_SQL = "SELECT reward, count() FROM trajectories GROUP BY reward"


class RichProgress:
    """Progress bars on a console. A phase without a known end shows a spinner."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> RichProgress:
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bars.stop()

    def begin(self, what: str, total: int | None) -> None:
        """Start a phase."""
        self._task = self._bars.add_task(what, total=total)

    def advance(self, num: int = 1) -> None:
        """Note `num` more things done."""
        if self._task is not None:
            self._bars.advance(self._task, num)

    def remaining(self, num: int) -> None:
        """Note that `num` things are still missing."""
        if self._task is not None:
            total = self._bars.tasks[self._task].total or 0
            self._bars.update(self._task, completed=max(0, total - num))

    def end(self) -> None:
        """Close the phase; one without a total is then complete."""
        if self._task is not None and self._bars.tasks[self._task].total is None:
            self._bars.update(self._task, total=1, completed=1)
        self._task = None


@dataclass(frozen=True)
class Finding:
    """One line of the summary. `good` is None where nothing is judged."""

    name: str
    value: str
    good: bool | None


def findings(played: Played, seconds: float) -> list[Finding]:
    """The summary, line by line."""
    numbers = played.numbers(seconds)
    ledger, verdict, looked = played.ledger, played.verdict, played.looked
    num_streamed = sum(call.streamed for call in ledger.calls)
    num_talks = len(ledger.last_calls())
    searched = (
        f"{looked.num_records} records, {looked.num_rows} rows, {looked.num_logs} logs, "
        f"{looked.num_metric_lines} lines of metrics searched"
    )
    kinds = ", ".join(f"{kind} {num}" for kind, num in played.found.by_kind.items())
    p95 = numbers["visible_p95_seconds"]
    return [
        Finding("conversations", f"{num_talks} in {played.play_seconds:.1f} s", None),
        Finding("calls sent", f"{len(ledger.calls)}, {num_streamed} of them streaming", None),
        Finding("steps in the store", str(numbers["steps"]), numbers["steps"] == numbers["calls"]),
        Finding("lost", str(numbers["lost"]), numbers["lost"] == 0),
        Finding("duplicated", str(numbers["duplicated"]), numbers["duplicated"] == 0),
        Finding(
            "dead letters, quarantined",
            f"{numbers['dead_lettered']}, {numbers['quarantined']}",
            numbers["dead_lettered"] == numbers["quarantined"] == 0,
        ),
        Finding(
            "rewards joined",
            f"{verdict.num_rewards_joined} of {ledger.num_rewards} "
            f"(sent in {len(ledger.rewards)} posts: early, late, twice, revised)",
            numbers["unmatched"] == 0,
        ),
        Finding(
            "trajectories with the right reward",
            f"{verdict.num_trajectories_right} of {num_talks}",
            verdict.num_trajectories_right == num_talks,
        ),
        Finding("private values sent", str(numbers["planted"]), None),
        Finding(
            "of them found after redaction",
            f"{numbers['leaked']}{f' ({kinds})' if kinds else ''}; {searched}",
            not played.must_not_leak & numbers["leaked_by_kind"].keys(),
        ),
        Finding("call visible to SQL, p95", "never" if p95 is None else f"{p95:.2f} s", None),
        Finding(
            "replay into wiped tables",
            "same checksums" if played.replay_checksum_equal else _differences(played),
            played.replay_checksum_equal,
        ),
        Finding("took", f"{seconds:.0f} s", None),
    ]


def _differences(played: Played) -> str:
    pairs = zip(played.before, played.after, strict=True)
    differing = [
        f"{before.table} ({before.num_rows} rows before, {after.num_rows} after)"
        for before, after in pairs
        if before != after or before.num_rows == 0
    ]
    return f"different: {', '.join(differing)}"


def print_summary(console: Console, played: Played, seconds: float) -> None:
    """The table of findings."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    marks = {True: Text("✓", "green"), False: Text("✗", "bold red"), None: Text(" ")}
    for finding in findings(played, seconds):
        table.add_row(marks[finding.good], Text(finding.name), Text(finding.value))
    console.print(Panel(table, title="headrace demo", expand=False))


def print_next_steps(console: Console, data_dir: str, trajectory_id: str | None) -> None:
    """Commands to try, and how to stop the stack."""
    option = f" --data-dir {data_dir}"
    commands: list[tuple[str, str]] = [
        (f"headrace status{option}", "every process of the stack"),
        (f"headrace query{option} '{_EXAMPLE_SQL}'", "SQL over what was captured"),
        (f"headrace topics{option}", "what is on Kafka"),
        (f"headrace dead-letters list{option}", "what could not be processed"),
        ("headrace replay --help", "how to process it all again"),
    ]
    if trajectory_id is not None:
        commands.insert(1, (f"headrace show {trajectory_id}{option}", "one trajectory"))
    console.print("\n[bold]Try next[/] (the stack is still up; the recorded model has ended)")
    for command, what in commands:
        console.print(Text.assemble("  ", (command, "cyan"), f"   {what}"), soft_wrap=True)
    stop = Text.assemble("\nStop it with  ", (f"headrace down{option}", "bold cyan"))
    console.print(stop, soft_wrap=True)


def numbers_line(played: Played, seconds: float) -> str:
    """The one line of `--json`."""
    return json.dumps(played.numbers(seconds), ensure_ascii=False, allow_nan=False)


def first_trajectory(played: Played) -> Any:
    """Some trajectory to look at, None where there is none."""
    return played.evidence.steps[0].trajectory_id if played.evidence.steps else None
