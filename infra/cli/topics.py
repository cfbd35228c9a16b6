"""headrace topics: what the topics hold and how far their readers are."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from infra.cli.options import AsJson, DataDir

if TYPE_CHECKING:
    from schemas.bus import Admin, Position
    from schemas.topics import Topic

_NUM_QUESTIONS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic. `num_records` counts offsets, so compacted records are in it.

    `lag` maps each reading group to the records it has still to read, None where it has not
    committed anything yet.
    """

    name: str
    content: str
    exists: bool
    num_partitions: int
    num_records: int
    holds_original_text: bool
    lag: dict[str, int | None]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="topics")(show_topics)


def show_topics(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the topics: partitions, records, and how far each reading group is behind.

    Example: headrace topics --json
    """
    from infra.connection import open_bus

    with open_bus(data_dir) as (_, _, admin):
        states = topic_states(admin)
    if as_json:
        typer.echo(json.dumps([asdict(state) for state in states]))
        return
    _print(states)


def topic_states(admin: "Admin") -> list[TopicState]:
    """The state of every registered topic, in the registry's order."""
    from schemas import topics

    existing = admin.topics()
    registry = list(topics.all_topics())
    names = [topic.name for topic in registry]
    groups = (*topics.GROUPS, *topics.LEARNING_GROUPS)
    committed = {group: admin.committed(group, names) for group in groups}
    with ThreadPoolExecutor(_NUM_QUESTIONS_AT_ONCE) as pool:
        marks = list(
            pool.map(
                lambda topic: admin.watermarks(topic.name) if topic.name in existing else {},
                registry,
            )
        )
    return [
        _state(t, t.name in existing, m, committed) for t, m in zip(registry, marks, strict=True)
    ]


def _state(
    topic: "Topic",
    exists: bool,
    marks: dict[int, tuple[int, int]],
    committed: dict[str, dict["Position", int]],
) -> TopicState:
    return TopicState(
        name=topic.name,
        content=topic.content,
        exists=exists,
        num_partitions=len(marks),
        num_records=sum(end - first for first, end in marks.values()),
        holds_original_text=topic.holds_original_text,
        # A changelog is restored by its owner, which commits no offset there.
        lag={
            group: _lag(topic.name, marks, committed[group])
            for group in topic.readers
            if group in committed and not topic.is_state
        },
    )


def _lag(
    name: str, marks: dict[int, tuple[int, int]], committed: dict["Position", int]
) -> int | None:
    if not any((name, partition) in committed for partition in marks):
        return None
    return sum(
        end - max(first, committed.get((name, partition), first))
        for partition, (first, end) in marks.items()
    )


def _print(states: list[TopicState]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold")
    for name in ("topic", "partitions", "records", "text", "records to read"):
        numeric = name in ("partitions", "records")
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for state in states:
        lag = "\n".join(f"{g} {'(new)' if n is None else n}" for g, n in state.lag.items())
        text = "original" if state.holds_original_text else "redacted"
        partitions = str(state.num_partitions) if state.exists else "missing"
        records = f"{state.num_records:,}"
        table.add_row(state.name, partitions, records, text, lag)
    console = Console()
    console.print(table)
    console.print("(new): the group has committed nothing yet. Contents: docs/topics.md")
    if not all(state.exists for state in states):
        console.print("Missing topics are created by `headrace up`.")
