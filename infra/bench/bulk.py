"""How fast a log is worked off: the sink alone, and the whole pipeline from raw events."""

import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from infra.bench.figures import Figure, Section, milliseconds, ratio
from infra.bench.stack import PROCESSORS, STORE_AND_LOG, Bench, running
from infra.bench.texts import exchanges, steps
from infra.bench.usage import CpuMeter, cpu_seconds
from infra.local.processes import start_tethered, stop_process
from infra.local.state import read_state
from infra.store import Reader, open_reader
from schemas import codec, topics
from schemas.bus import Record
from schemas.errors import TransientError
from schemas.ids import trajectory_key

_STEP_BYTES = 2_000
#: A look costs the store some milliseconds, and is late by half a pause.
_MAX_POLL_SECONDS = 0.25
_MIN_POLL_SECONDS = 0.02
_COUNT_SQL = "SELECT count() AS n FROM steps_log"
NO_WORKERS: Mapping[str, Sequence[int]] = {}
_VISIBLE_SQL = "SELECT count() AS n FROM steps"


@dataclass(frozen=True)
class Drained:
    """How far it came. `seconds` runs from the start of consumption to the last row."""

    num_records: int
    num_visible: int
    seconds: float
    cpu_seconds: Mapping[str, float]


def sink_figures(found: Drained) -> tuple[Figure, ...]:
    """Pure: what was drained → figures."""
    rate = ratio(found.num_visible, found.seconds)
    return (
        Figure("rows visible", rate, "steps/s", 5_000.0, is_rate=True),
        *_cpu_figures(found, ""),
    )


def pipeline_figures(num_workers: int, found: Drained) -> tuple[Figure, ...]:
    """Pure: what was drained → figures."""
    who = f"{num_workers} worker{'s' if num_workers > 1 else ''} a group"
    return (
        Figure(f"{who}, steps", ratio(found.num_visible, found.seconds), "steps/s"),
        Figure(f"{who}, steps worked off", float(found.num_visible), ""),
        *_cpu_figures(found, f"{who}, "),
    )


def _cpu_figures(found: Drained, prefix: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(f"{prefix}CPU of {name} a step", milliseconds(ratio(used, found.num_visible)), "ms")
        for name, used in sorted(found.cpu_seconds.items())
    )


def measure_sink(num_steps: int, max_seconds: float) -> Section:
    """Clean steps lie on the topic before the sink starts."""
    with running(tier="regex", only=(*STORE_AND_LOG, "sink")) as bench:
        bench.stop(["sink"])
        bench.produce(_step_records(num_steps))
        bench.start(["sink"])
        found = drained(bench, num_steps, max_seconds)
    return Section(
        "sink",
        "Sink: clean steps into ClickHouse",
        sink_figures(found),
        f"{num_steps:,} steps of 2 kB lie on the topic when one sink starts; the time runs "
        "from the moment it reads to the moment a SELECT counts all of them.",
    )


def measure_pipeline(num_steps: int, max_seconds: float) -> Section:
    """Raw calls lie on the topic before the processors start: what a replay does."""
    figures: list[Figure] = []
    for num_workers in (1, 2):
        with running(tier="regex", only=(*STORE_AND_LOG, *PROCESSORS)) as bench:
            bench.stop(PROCESSORS)
            bench.produce(_raw_records(num_steps))
            with _more_workers(bench, num_workers - 1) as more:
                bench.start(PROCESSORS)
                found = drained(bench, num_steps, max_seconds, more)
            figures += pipeline_figures(num_workers, found)
    return Section(
        "replay",
        "Replay of the whole pipeline",
        tuple(figures),
        f"Up to {num_steps:,} raw calls lie on the topic, ten a conversation with all of its "
        "history, 300 unseen characters each; redaction (`regex` tier), assembly and sink "
        f"work them off. A run ends when all are visible or after {max_seconds:.0f} s, and "
        "then the rate is that of what was visible. Two workers a group share two cores with "
        "Kafka and the store here, so they show that work is shared and not that it is twice "
        "as fast.",
    )


def drained(
    bench: Bench, number: int, max_seconds: float, more: Mapping[str, Sequence[int]] = NO_WORKERS
) -> Drained:
    """Wait until so many steps are visible, or for at most that long. `more` names the pids of
    workers beside those of the stack, by processor."""
    meter = CpuMeter(bench.pids())
    began_at = _consumes_since(bench)
    with open_reader(bench.settings.data_dir) as reader:
        deadline = time.time() + max_seconds
        while (seen := _count(reader, _COUNT_SQL)) < number and time.time() < deadline:
            time.sleep(poll_seconds(seen, number, time.time() - began_at))
        ended_at = time.time()
        num_visible = _count(reader, _VISIBLE_SQL)
    if not num_visible:
        raise TransientError(
            f"No step became visible in {max_seconds:.0f} s. The processors' logs say why."
        )
    used = meter.used()
    for name, pids in more.items():  # they began with the run, so all that they used counts
        used[name] = used.get(name, 0.0) + sum(map(cpu_seconds, pids))
    return Drained(number, num_visible, ended_at - began_at, used)


def poll_seconds(seen: int, number: int, seconds: float) -> float:
    """Half of the time that the rest takes at the pace so far: few looks, and the last in time."""
    if not seen:
        return _MAX_POLL_SECONDS
    rest = (number - seen) * seconds / seen
    return min(_MAX_POLL_SECONDS, max(_MIN_POLL_SECONDS, rest / 2))


def _consumes_since(bench: Bench) -> float:
    """When the first processor of the running ones said that it was ready."""
    run = bench.settings.data_dir / "run"
    return min(path.stat().st_mtime for path in run.glob("*.ready"))


def _count(reader: Reader, sql: str) -> int:
    return int(reader.rows(sql)[0]["n"])


@contextmanager
def _more_workers(bench: Bench, number: int) -> Iterator[Mapping[str, Sequence[int]]]:
    """So many workers of each group beside those that the supervisor runs; their pids."""
    state = read_state(bench.settings.data_dir)
    endpoints = dict(state.endpoints) if state else {}
    pids: dict[str, list[int]] = {}
    with ExitStack() as started:
        for worker, group in itertools.product(range(number), topics.GROUPS):
            name = f"bench-{worker}"
            environment = {**os.environ, **endpoints, "HEADRACE_WORKER_NAME": name}
            log = started.enter_context((bench.settings.data_dir / f"{name}.log").open("ab"))
            process = start_tethered(
                [sys.executable, "-m", group],
                log=log,
                environment={**environment, "OMP_NUM_THREADS": "1"},
            )
            started.callback(stop_process, process)
            pids.setdefault(group.rpartition(".")[2], []).append(process.pid)
        yield pids


def _step_records(number: int) -> Iterator[Record]:
    for step in steps(3, number, _STEP_BYTES):
        yield Record(
            topics.STEPS, trajectory_key(step.tenant_id, step.trajectory_id), codec.encode(step)
        )


def _raw_records(number: int) -> Iterator[Record]:
    content_type = (("content-type", codec.AVRO_CONTENT_TYPE),)
    for trajectory, exchange in exchanges(4, number):
        key = trajectory_key(exchange.tenant_id, trajectory)
        yield Record(topics.RAW_EVENTS, key, codec.encode(exchange), content_type)
