"""headrace tail: the events of a topic, readable, as they come."""

import base64
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from infra.inspection import Seen

_MAX_TEXT_CHARACTERS = 100


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tail)


def tail(
    topic: Annotated[str, typer.Argument(help="Name of a topic; `headrace topics` lists them.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="What the topic holds now, oldest first.")
    ] = False,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="After --from-beginning, wait for more.")
    ] = False,
    num: Annotated[
        int | None, typer.Option("-n", min=1, help="Stop after this many events.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this owner's.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="Only this trajectory's.")] = None,
    show_original: Annotated[
        bool, typer.Option("--show-original", help="Allow text from before redaction.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print new events until Ctrl-C, or what is there with --from-beginning.

    Example: headrace tail trajectory.steps.v1 --from-beginning --json
    """
    from infra.connection import open_bus
    from infra.inspection import bounds, follow, read_between, registered

    if registered(topic).holds_original_text and not show_original:
        raise ConfigError(
            f"{topic} holds original text, private data included. --show-original prints it; "
            "the same events without private data are on the trajectory.* topics."
        )
    with open_bus(data_dir) as (_, bus, admin):
        starts, ends = bounds(admin, topic)
        if from_beginning and not follow_on:
            seen = read_between(bus, starts, ends)
        else:
            seen = follow(bus, starts if from_beginning else ends)
            if sys.stderr.isatty():
                typer.secho(f"Following {topic}. Ctrl-C stops.", err=True, dim=True)
        wanted = filter(wants(tenant, trajectory), seen)
        write_lines(map(as_line if as_json else as_text, itertools.islice(wanted, num)))


def wants(tenant: str | None, trajectory: str | None) -> Callable[["Seen"], bool]:
    """Whether a record is asked for. Without a filter unreadable records are, too."""

    def check(seen: "Seen") -> bool:
        event = seen.event
        owner, (of_trajectory, _) = getattr(event, "tenant_id", None), _target(event)
        return (tenant is None or owner == tenant) and (
            trajectory is None or of_trajectory == trajectory
        )

    return check


def as_line(seen: "Seen") -> str:
    """The record as one JSON object."""
    from schemas import codec

    record = seen.record
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": (record.key or b"").decode("utf-8", "replace"),
        "written_at": _written_at(record.timestamp_ms),
        "type": type(seen.event).__name__ if seen.event is not None else None,
        "event": json.loads(codec.to_json(seen.event)) if seen.event is not None else None,
    }
    if seen.reason is not None:
        fields["reason"] = _why(seen)
    return json.dumps(fields)


def as_text(seen: "Seen") -> str:
    """The record on one line of a terminal."""
    record = seen.record
    where = f"{_written_at(record.timestamp_ms)}  {record.partition}/{record.offset}"
    if seen.event is None:
        return f"{where}  not decoded: {_why(seen)} ({len(record.value or b'')} bytes)"
    trajectory, step = _target(seen.event)
    names = "  ".join(part for part in (trajectory, step) if part)
    text = f"{where}  {type(seen.event).__name__:12}  {names}  {_gist(seen.event)}"
    return _printable(text.rstrip())


def write_lines(lines: Iterator[str]) -> None:
    """Write each line at once; a reader that closed its end, such as `head`, ends it quietly."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain again when it flushes at exit.
        sys.stdout = None


def _why(seen: "Seen") -> str:
    if seen.record.value is None:
        return "a deletion of the key"
    if seen.record.topic.endswith("-changelog"):
        return "state of a processor, no event"
    return seen.reason or ""


def _target(event: Any) -> tuple[str | None, str | None]:
    """Trajectory and step of an event, as far as it names them."""
    event = getattr(event, "feedback", event)
    target = getattr(event, "target", event)
    return getattr(target, "trajectory_id", None), getattr(target, "step_id", None)


def _gist(event: Any) -> str:
    """A few words that tell events of a type apart."""
    from schemas.atdp.internal import DeadLetter
    from schemas.atdp.types import Feedback, Reward, Step

    if isinstance(event, Step):
        last = event.action_and_result.output[-1:]
        return f"#{event.lineage.step_index} {_shortened(last[0].body) if last else event.outcome}"
    if isinstance(event, Feedback | Reward):
        said = next((v for v in (event.value, event.label, event.text) if v is not None), None)
        return f"{event.name}={_shortened(str(said))}"
    if isinstance(event, DeadLetter):
        source = event.source
        return f"{event.reason} {source.topic}/{source.partition}/{source.offset}"
    from schemas import codec

    return _shortened(codec.to_json(event).decode())


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARACTERS else text[: _MAX_TEXT_CHARACTERS - 1] + "…"


def _printable(text: str) -> str:
    """Text from outside must not steer the terminal."""
    return "".join(c if c.isprintable() else "·" for c in text)


def _written_at(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def original_of(value: bytes) -> str:
    """A record's value for a person: text where it is text, else base64."""
    try:
        return _printable(value.decode())
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()
