"""headrace publish: events and recorded conversations from a file."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from infra.publishing.documents import Problem, read_entries
from infra.publishing.formats import Format, Made, detect, first_entries, make_events
from schemas.errors import ConfigError
from schemas.ids import is_tenant_id

if TYPE_CHECKING:
    from infra.publishing.minting import Mint
    from schemas.bus import Record
    from schemas.bus.kafka import KafkaBus
    from schemas.settings import Settings

_MAX_SHOWN_PROBLEMS = 10
#: Stands in for the deployment's secret where that is not at hand.
_PUBLIC_KEY = b"headrace.publish"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(publish)


@dataclass(slots=True)
class Tally:
    """What a reading of the file came to."""

    counts: Counter[str] = field(default_factory=Counter)
    trajectories: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    num_problems: int = 0
    num_left_out: int = 0

    def add_event(self, event: Any) -> None:
        """Count one event."""
        self.counts[type(event).__name__] += 1
        target = getattr(event, "target", event)
        if target.trajectory_id is not None:
            self.trajectories.add(target.trajectory_id)

    def add_problem(self, problem: Problem) -> None:
        """Count one problem; the first ones are kept to be shown."""
        self.num_problems += 1
        if len(self.problems) < _MAX_SHOWN_PROBLEMS:
            self.problems.append(problem)

    def as_json(self) -> dict[str, Any]:
        """The counts under their names."""
        return {
            "steps": self.counts["Step"],
            "feedback": self.counts["Feedback"],
            "trajectory_ends": self.counts["TrajectoryEnd"],
            "trajectories": len(self.trajectories),
            "messages_left_out": self.num_left_out,
            "problems": self.num_problems,
        }


def publish(
    file: Annotated[Path, typer.Argument(help="ATDP events, messages or trajectories as JSON.")],
    tenant: Annotated[str, typer.Option(help="Owner of what is published.")] = "default",
    file_format: Annotated[
        Format | None, typer.Option("--format", help="Default: told by the first entry.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, publish nothing.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out what cannot be published.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Publish a file's events. The same file again doubles nothing. Formats: docs/publish.md.

    Example: headrace publish events.jsonl --tenant acme --dry-run
    """
    if not is_tenant_id(tenant):
        raise ConfigError(
            "Name a tenant with 1 to 63 letters, digits, _ or -; a letter or digit comes first."
        )
    if not file.is_file():
        raise ConfigError(f"There is no file {file}. Check the path.")
    chosen = file_format or detect(first_entries(read_entries(file)))
    settings = _settings(data_dir)
    reading = Reading(file, chosen, settings, tenant)
    tally = reading.check()
    if tally.num_problems and not keep_going:
        raise ConfigError(_refusal(file, tally))
    num_events = tally.counts.total()
    if not dry_run and num_events:
        num_events = _send(reading, num_events, data_dir)
    _report(file, chosen, tenant, tally, dry_run=dry_run, as_json=as_json)
    if tally.num_problems and not num_events:
        raise ConfigError("Nothing in the file can be published. Correct what is listed above.")


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is read twice: once to check all of it, once to publish it."""

    file: Path
    file_format: Format
    settings: "Settings"
    tenant: str

    def check(self) -> Tally:
        """Count what it holds and what is wrong with it."""
        tally = Tally()
        for made in self._made(tally):
            tally.num_left_out += made.num_left_out
        return tally

    def records(self) -> Iterator["Record"]:
        """The records of all events that can be published."""
        from infra.publishing.sending import record_of

        limit = self.settings.kafka.max_record_bytes
        for made in self._made(Tally()):
            for event in made.events:
                record = record_of(event, made.where, limit)
                if not isinstance(record, Problem):
                    yield record

    def _made(self, tally: Tally) -> Iterator[Made]:
        from infra.publishing.sending import record_of

        limit = self.settings.kafka.max_record_bytes
        for made in make_events(read_entries(self.file), self.file_format, self._mint()):
            if isinstance(made, Problem):
                tally.add_problem(made)
                continue
            for event in made.events:
                record = record_of(event, made.where, limit)
                if isinstance(record, Problem):
                    tally.add_problem(record)
                else:
                    tally.add_event(event)
            yield made

    def _mint(self) -> "Mint":
        from infra.publishing.minting import Mint
        from schemas.secrets import load_root_secret, tenant_key

        secret = self.settings.root_secret_file
        key = _PUBLIC_KEY
        if secret.is_file():
            key = tenant_key(load_root_secret(secret), self.tenant, "publish")
        # Whole seconds: copies of a file keep them, finer parts are often lost.
        written = datetime.fromtimestamp(int(self.file.stat().st_mtime), UTC)
        eligible = self.tenant in self.settings.training_eligible_tenants
        return Mint(self.tenant, key, written, eligible)


def _settings(data_dir: Path | None) -> "Settings":
    from infra.local.launch import find_settings

    return find_settings(data_dir)


def _send(reading: Reading, num_events: int, data_dir: Path | None) -> int:
    from infra.connection import open_bus

    with open_bus(data_dir) as (_, bus, _), _progress(num_events) as advance:
        return _deliver(bus, reading, advance)


def _deliver(bus: "KafkaBus", reading: Reading, advance: Callable[[int], None]) -> int:
    from infra.publishing.sending import send

    producer = bus.producer("headrace.publish")
    try:
        return send(producer, reading.records(), advance)
    finally:
        producer.close()


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("publishing", BarColumn(), MofNCompleteColumn(), "events", TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("publishing", total=total)
        yield lambda count: bar.advance(task, count)


def _refusal(file: Path, tally: Tally) -> str:
    lines = [f"{file}: {problem}" for problem in tally.problems]
    more = tally.num_problems - len(tally.problems)
    if more:
        lines.append(f"and {more} more.")
    lines.append("Nothing was published. Correct the file, or publish the rest with --keep-going.")
    return "\n".join(lines)


def _report(
    file: Path, file_format: Format, tenant: str, tally: Tally, *, dry_run: bool, as_json: bool
) -> None:
    from schemas import topics

    summary = tally.as_json()
    if as_json:
        details = {"format": file_format.value, "tenant": tenant, "published": not dry_run}
        shown = [str(problem) for problem in tally.problems]
        typer.echo(json.dumps(details | summary | {"first_problems": shown}))
        return
    for problem in tally.problems:
        typer.secho(f"left out: {file}: {problem}", fg=typer.colors.YELLOW, err=True)
    verb = "would publish" if dry_run else f"published to {topics.RAW_EVENTS}"
    typer.echo(
        f"{verb}: {summary['steps']} steps, {summary['feedback']} feedback, "
        f"{summary['trajectory_ends']} ends of {summary['trajectories']} trajectories "
        f"(tenant {tenant}, format {file_format})"
    )
    if tally.num_left_out:
        typer.echo(
            f"{tally.num_left_out} messages after a last answer belong to no step and stay out."
        )
    if tally.num_problems:
        typer.echo(f"{tally.num_problems} entries were left out.")
    if dry_run:
        return
    example = min(tally.trajectories, default=None)
    typer.echo("Next:")
    if example is not None:
        typer.echo(f"  headrace show {example} --tenant {tenant}")
    typer.echo(f"  headrace tail {topics.STEPS} --from-beginning --tenant {tenant} -n 5")
    typer.echo("  headrace topics")
