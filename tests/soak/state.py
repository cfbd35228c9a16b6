"""What state costs: `python -m tests.soak.state` prints a table for docs/benchmarks.md.

Long trajectories in redaction and assembly, many open ones in assembly, both in this process; then
the time a worker takes to recover its state from the changelog on a real broker (`--recovery`).
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.local.processes import start_tethered, stop_process
from schemas import codec, topics
from schemas.atdp.internal import Tick
from schemas.atdp.types import Lineage, Step
from schemas.bus import Received, Record
from schemas.bus.kafka import KafkaBus
from schemas.ids import trajectory_key
from schemas.secrets import create_root_secret
from schemas.settings import AssemblySettings
from schemas.telemetry import Metrics
from streams.assembly.processor import Assembly
from streams.runtime import Effects, ReplayMark
from tests.services import running_kafka
from tests.unit.redaction_processor.captures import exchange, record
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import DictTable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS_EACH = 5
WAIT_SECONDS = 600.0

Row = tuple[str, str]


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Account:
    """Time and bytes of one processor over many records."""

    def __init__(self) -> None:
        self.table = DictTable()
        self.seconds: list[float] = []
        self.state_bytes = self.output_bytes = 0

    def take(self, handle: Callable[[], Any]) -> None:
        """Handle one record and apply what it changes."""
        began = time.perf_counter()
        effects = handle()
        assert isinstance(effects, Effects)
        for key, value in effects.state:
            self.table.apply(key, value)
            self.state_bytes += len(key) + len(value or b"")
        self.seconds.append(time.perf_counter() - began)
        self.output_bytes += sum(len(output.value or b"") for output in effects.outputs)

    def rows(self, name: str) -> Iterator[Row]:
        """As the table shows them."""
        number = len(self.seconds)
        ends = [
            sum(part) / len(part) * 1e3
            for part in (self.seconds[: number // 10], self.seconds[-(number // 10) :])
        ]
        yield (
            f"{name}: milliseconds a record, first and last tenth",
            f"{ends[0]:.1f}, {ends[1]:.1f}",
        )
        yield f"{name}: changelog bytes a record", f"{self.state_bytes / number:,.0f}"
        held = sum(len(key) + len(value) for key, value in self.table.items())
        yield f"{name}: state held, kB", f"{held / 1e3:,.0f}"
        yield f"{name}: output bytes a record", f"{self.output_bytes / number:,.0f}"


def long_in_redaction(num_steps: int, context_bytes: int) -> Iterator[Row]:
    """One conversation whose calls carry that many bytes of history on average."""
    each = "x" * (context_bytes // num_steps - 60)
    messages: list[dict[str, str]] = [{"role": "user", "content": "begin"}]
    account = Account()
    with tempfile.TemporaryDirectory() as folder:
        processor = Redaction(Path(folder)).raw_lane._processor
        for number in range(num_steps):
            answer = {"role": "assistant", "content": f"{number} {each}"}
            told = record(exchange(messages, answer, f"{number:06d}"), number, b"acme/~opening")
            account.take(lambda told=told: processor.handle(told, account.table, overdue=False))  # type: ignore[misc]
            messages += [answer, {"role": "user", "content": f"then {number} {each}"}]
    yield from account.rows("redaction, one long trajectory")


def a_step(trajectory: str, number: int) -> Step:
    """A step of a chain."""
    return Step(
        step_id=f"{trajectory}-step-{number:06d}",
        event_id=f"{trajectory}-event-{number}",
        tenant_id="acme",
        trajectory_id=trajectory,
        started_at=NOW + timedelta(seconds=number),
        lineage=Lineage(
            parent_step_id=f"{trajectory}-step-{number - 1:06d}" if number else None,
            step_index=number,
        ),
    )


def step_record(trajectory: str, number: int, offset: int) -> Received:
    """A step as assembly reads it."""
    key = trajectory_key("acme", trajectory)
    return Received(topics.STEPS, 0, offset, key, codec.encode(a_step(trajectory, number)))


def long_in_assembly(num_steps: int) -> Iterator[Row]:
    """One trajectory, step by step."""
    assembly, account = Assembly(AssemblySettings(), ReplayMark(), Metrics()), Account()
    for number in range(num_steps):
        told = step_record("t", number, number)
        account.take(lambda told=told: assembly.handle(told, account.table, overdue=False))  # type: ignore[misc]
    yield from account.rows("assembly, one long trajectory")


def many_in_assembly(num_trajectories: int) -> Iterator[Row]:
    """Many open trajectories, their steps interleaved; then a tick of a worker that starts."""
    assembly, account = Assembly(AssemblySettings(), ReplayMark(), Metrics()), Account()
    before = resident_bytes()
    for number in range(STEPS_EACH):
        for trajectory in range(num_trajectories):
            told = step_record(
                f"tr-{trajectory:06d}", number, number * num_trajectories + trajectory
            )
            account.take(lambda told=told: assembly.handle(told, account.table, overdue=False))  # type: ignore[misc]
    yield from account.rows("assembly, many open trajectories")
    yield "memory for all of them, MB", f"{(resident_bytes() - before) / 1e6:,.0f}"
    anew = Assembly(AssemblySettings(), ReplayMark(), Metrics())
    tick = Received(topics.TICKS, 0, 0, b"0", codec.encode(Tick(partition=0, at=NOW)))
    began = time.perf_counter()
    anew.handle(tick, account.table, overdue=False)
    yield "first tick of a worker that starts, seconds", f"{time.perf_counter() - began:.2f}"


@contextmanager
def assembly_process(directory: Path, bootstrap_servers: str) -> Iterator[Path]:
    """`streams.assembly` for the length of the block; the file that says it is ready."""
    ready = directory / "run" / "streams.assembly.ready"
    ready.unlink(missing_ok=True)
    environment = os.environ | {
        "HEADRACE_DATA_DIR": str(directory),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
    }
    with (directory / "assembly.log").open("ab") as log:
        process = start_tethered(
            [sys.executable, "-m", "streams.assembly"], log=log, environment=environment
        )
        try:
            yield ready
        finally:
            stop_process(process)


def wait_until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"waited {WAIT_SECONDS:g} s for {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def recovery(num_trajectories: int) -> Iterator[Row]:
    """A worker whose state is gone starts again with that many open trajectories."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_kafka(Path(folder)) as bootstrap_servers,
    ):
        directory = Path(folder)
        create_root_secret(directory / "secrets" / "root")
        bus = KafkaBus(bootstrap_servers)
        admin = bus.admin()
        admin.create_topics(topics.all_topics(), 4, 1)
        producer = bus.producer("state")
        num_steps = num_trajectories * STEPS_EACH
        for number in range(STEPS_EACH):
            for trajectory in range(num_trajectories):
                step = a_step(f"tr-{trajectory:06d}", number)
                key = trajectory_key("acme", step.trajectory_id)
                producer.send(Record(topics.STEPS, key, codec.encode(step)), lambda _report: None)
            producer.flush(60)

        def num_records(topic: str) -> int:
            return sum(end for _, end in admin.watermarks(topic).values())

        changelog = topics.changelog_topic(topics.ASSEMBLY, "trajectories")
        with assembly_process(directory, bootstrap_servers) as ready:
            empty = wait_until(ready.exists, "the first start")
            took = wait_until(lambda: num_records(topics.SUMMARIES) >= num_steps, "all summaries")
        yield "start with an empty changelog, seconds", f"{empty:.1f}"
        yield (
            f"{num_steps:,} steps joined by one worker, steps a second",
            f"{num_steps / took:,.0f}",
        )
        yield "records in the changelog", f"{num_records(changelog):,}"
        with assembly_process(directory, bootstrap_servers) as ready:
            again = wait_until(ready.exists, "the recovery")
        yield "start after the local state is gone, seconds", f"{again:.1f}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--context-bytes", type=int, default=100_000)
    parser.add_argument("--recovery", action="store_true")
    given = parser.parse_args()
    rows = [
        *long_in_redaction(given.steps, given.context_bytes),
        *long_in_assembly(given.steps),
        *many_in_assembly(given.trajectories),
        *(recovery(given.trajectories) if given.recovery else ()),
    ]
    sys.stdout.write("| | |\n|---|---|\n")
    sys.stdout.writelines(f"| {name} | {figure} |\n" for name, figure in rows)
    sys.stdout.write(json.dumps({"load_average": os.getloadavg()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
