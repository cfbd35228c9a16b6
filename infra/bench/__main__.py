"""python -m infra.bench [NAME...] [--quick] [--write docs/benchmarks.md]

`python -m infra.bench learning --help` says how learning is measured, `training --help` how the
trainer is.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra.bench import bulk, gateway, large, learning, proxies, streams, training, visibility
from infra.bench.figures import Section
from infra.bench.machine import Machine, load_average, this_machine
from infra.bench.page import Run, machine_markdown, markdown, text, with_parts
from infra.bench.redaction import speed
from infra.bench.stack import PROCESSORS, Bench, gateway_keys, running
from infra.local.signals import leaving_on_sigterm
from schemas.errors import HeadraceError

#: What can be measured, in the order in which it is.
NAMES = (
    "redaction", "visible", "gateway", "streams", "large", "rewards", "memory", "sink", "replay",
    "proxies",
)  # fmt: skip
_WITH_A_GATEWAY = frozenset({"visible", "gateway", "streams", "large", "rewards", "memory"})


@dataclass(frozen=True)
class Scale:
    """How much is measured. The long one takes twenty minutes, the quick one three minutes."""

    num_texts: int
    calls: gateway.Size
    visible_seconds: float
    num_sink_steps: int
    num_replay_steps: int
    replay_seconds: float
    proxies: proxies.Size
    streams: streams.Size
    num_large: int


LONG = Scale(
    100, gateway.Size(2_000, 15.0, 2_000), 30.0, 100_000, 100_000, 480.0,
    proxies.Size(1_000, 10.0, 6.0), streams.Size(10.0, 3.0), 20,
)  # fmt: skip
QUICK = Scale(
    20, gateway.Size(300, 4.0, 300), 8.0, 5_000, 5_000, 60.0,
    proxies.Size(150, 3.0, 2.0), streams.Size(4.0, 1.5), 8,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """0 when everything was measured, 1 when a part could not be; stderr then says why."""
    if arguments[:1] == ["learning"]:
        return learning.main(arguments[1:])
    if arguments[:1] == ["training"]:
        return training.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m infra.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="shorter, and so less exact")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this page")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.names) - set(NAMES))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    command = " ".join(["python -m infra.bench", *arguments])
    scale = QUICK if given.quick else LONG
    failures = 0
    _say(machine_markdown(this_machine()))
    # A stack outlives who started it; a benchmark that is told to end takes its stack along.
    with leaving_on_sigterm():
        for part in _parts(given.names or NAMES, scale):
            try:
                _measure(part, command, given.write)
            except HeadraceError as error:  # the others can still be measured
                sys.stderr.write(f"Not measured: {error}\n")
                failures += 1
    return 1 if failures else 0


def _measure(part: Callable[[], Iterator[Section]], command: str, page: Path | None) -> None:
    machine = this_machine()
    load, at = load_average(), f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    for section in part():
        run = Run(machine, at, load, load_average(), command)
        _say(f"{text(section)}\n  load average {run.load_before:.1f} → {run.load_after:.1f}\n")
        if page is not None:  # at once, so that a failure later costs nothing measured
            _write(page, machine, section, run)


def _write(page: Path, machine: Machine, section: Section, run: Run) -> None:
    parts = [("machine", machine_markdown(machine)), (section.name, markdown(section, run))]
    page.write_text(with_parts(page.read_text(), parts))


def _parts(names: Collection[str], scale: Scale) -> Iterator[Callable[[], Iterator[Section]]]:
    """What to measure, each part with a stack of its own."""
    if "redaction" in names:
        yield lambda: iter([speed.measure(scale.num_texts)])
    if _WITH_A_GATEWAY & set(names):
        yield lambda: _live(names, scale)
    if "sink" in names:
        yield lambda: iter([bulk.measure_sink(scale.num_sink_steps, scale.replay_seconds)])
    if "replay" in names:
        yield lambda: iter([bulk.measure_pipeline(scale.num_replay_steps, scale.replay_seconds)])
    if "proxies" in names:
        yield lambda: iter([proxies.measure(scale.proxies)])


def _live(names: Collection[str], scale: Scale) -> Iterator[Section]:
    """With calls through the gateway: visibility in both tiers, then the gateway alone."""
    seen: dict[str, visibility.Seen] = {}
    watched = {"visible", "memory"} & set(names)
    if watched:
        with running(tier="accurate") as bench:
            key, _ = gateway_keys(bench)
            rate = visibility.Rate("accurate", 10.0, scale.visible_seconds, 5.0)
            section, seen["accurate"] = visibility.measure(bench, key, rate)
            if "visible" in names:
                yield section
    with running(tier="regex") as bench:
        key, feedback_key = gateway_keys(bench)
        if watched:
            rate = visibility.Rate("regex", 50.0, scale.visible_seconds, 5.0)
            section, seen["regex"] = visibility.measure(bench, key, rate)
            if "visible" in names:
                yield section
        bench.stop(PROCESSORS)
        yield from _gateway_alone(bench, (key, feedback_key), names, scale)
    if "memory" in names:
        yield visibility.memory_section(seen)


def _gateway_alone(
    bench: Bench, keys: tuple[str, str], names: Collection[str], scale: Scale
) -> Iterator[Section]:
    key, feedback_key = keys
    measured: dict[str, Callable[[], Section]] = {
        "gateway": lambda: gateway.measure_calls(bench, key, scale.calls),
        "streams": lambda: streams.measure_streams(bench, key, scale.streams),
        "large": lambda: large.measure_large(bench, key, scale.num_large),
        "rewards": lambda: gateway.measure_rewards(bench, feedback_key, scale.calls),
    }
    for name, measure in measured.items():
        if name in names:
            yield measure()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
