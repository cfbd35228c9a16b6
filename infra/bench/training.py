"""python -m infra.bench training [--seed N] [--updates N] [--rounds N] [--write docs/training.md]

The demo of learning for some updates, and what its topics then say: time from a reward that was
received to the improved answer that is served, age of the tokens that were learned from, memory.
Before that the trainer's step beside a plain one (`trainer.speed`).
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra.bench.figures import Figure, Section, quantile
from infra.bench.machine import load_average, this_machine
from infra.bench.page import Run, machine_markdown, markdown, text, with_parts
from infra.bench.usage import family, peak_bytes
from infra.demo.learning.course import Plan
from infra.demo.learning.show import Shown, run
from infra.local.engine import ensure_engine
from infra.local.launch import find_settings, shut_down
from infra.local.signals import leaving_on_sigterm
from infra.local.state import read_state
from schemas import codec, topics
from schemas.atdp.internal import Sample
from schemas.atdp.training import MicroBatch
from schemas.atdp.types import Reward
from schemas.atdp.weights import AckStatus, WeightsAck, WeightsManifest
from schemas.bus.api import Bus, Received, read_to_end
from schemas.bus.kafka import KafkaBus
from schemas.errors import HeadraceError, PermanentError, TransientError
from schemas.microbatches import read_microbatch
from schemas.settings import load_settings
from schemas.store import BlobStore
from trainer.relaunch import command, environment

#: What the trainer should reach of a plain step's speed.
SPEED_GOAL = 0.9
_AGES = (0, 1, 2, 4, 8, 16)
_SPEED_SECONDS = 900.0
_GIB = 1024**3


@dataclass(frozen=True)
class Loop:
    """What the topics say of a run."""

    #: Seconds from the receipt of a reward to the version that learned of it in the engine.
    seconds: tuple[float, ...]
    #: Versions between sampling and learning → tokens.
    ages: Counter[int]
    #: Child of the stack → the most bytes it ever held.
    peaks: dict[str, int]


def looked_at(bus: Bus, blobs: BlobStore, policy: str) -> tuple[tuple[float, ...], Counter[int]]:
    """Rewards, samples, micro-batches, manifests and acknowledgements of a run, put together."""
    manifests = [
        m
        for m in _events(bus, topics.WEIGHTS_VERSIONS)
        if isinstance(m, WeightsManifest) and m.policy == policy
    ]
    applied = {
        a.version: a.occurred_at
        for a in _events(bus, topics.WEIGHTS_ACKS)
        if isinstance(a, WeightsAck) and a.status is AckStatus.APPLIED and a.policy == policy
    }
    received = {
        (r.tenant_id, r.reward_id, r.revision): r.received_at
        for r in _events(bus, topics.REWARDS)
        if isinstance(r, Reward)
    }
    rewards_of = {
        (s.tenant_id, s.sample_id): [(s.tenant_id, w.reward_id, w.revision) for w in s.rewards]
        for s in _events(bus, topics.SAMPLES)
        if isinstance(s, Sample)
    }
    seconds: list[float] = []
    ages: Counter[int] = Counter()
    for version, batch in _learned(bus, blobs, manifests):
        for sequence in batch.sequences:
            for span in sequence.trained:
                if span.version is not None:
                    ages[max(version - 1 - span.version, 0)] += span.end - span.first
            if version not in applied:
                continue
            known = [
                received[named]
                for named in rewards_of.get((sequence.tenant_id, sequence.sample_id), [])
                if named in received
            ]
            seconds += [(applied[version] - at).total_seconds() for at in known]
    return tuple(seconds), ages


def _learned(
    bus: Bus, blobs: BlobStore, manifests: Sequence[WeightsManifest]
) -> Iterator[tuple[int, MicroBatch]]:
    """Each micro-batch with the first version that had learned of it."""
    ends = sorted(
        (used.offset, m.version)
        for m in manifests
        for used in m.data_watermark
        if used.topic == topics.MICROBATCHES
    )
    for record in read_to_end(bus, topics.MICROBATCHES):
        version = next((v for end, v in ends if record.offset < end), None)
        if version is not None:
            try:
                yield version, read_microbatch(record.value, blobs)
            except PermanentError:
                continue  # the trainer has its dead letter


def _events(bus: Bus, topic: str) -> Iterator[object]:
    records: Iterator[Received] = iter(read_to_end(bus, topic))
    for record in records:
        try:
            yield codec.decode(record.value)
        except PermanentError:
            continue


def played(folder: Path, plan: Plan) -> tuple[Shown, Loop]:
    """The demo for some updates, and what its topics say; its stack ends with it."""

    def say(about: str, line: str) -> None:
        sys.stderr.write(f"{about}: {line}\n")

    try:
        shown = run(folder, plan, say, lambda _: None, updates=True, keep=True)
        settings = find_settings(folder)
        bus, blobs = KafkaBus.from_settings(settings.kafka), BlobStore(settings.blobs)
        seconds, ages = looked_at(bus, blobs, settings.worker.policy)
        return shown, Loop(seconds, ages, _peaks(folder))
    finally:
        shut_down(folder)


def _peaks(folder: Path) -> dict[str, int]:
    state = read_state(folder)
    children = () if state is None else state.children
    return {
        child.name: sum(map(peak_bytes, family(child.pid)))
        for child in children
        if child.pid is not None
    }


def speed(rounds: int) -> dict[str, float]:
    """What `trainer.speed` prints after so many rounds. TransientError when it fails."""
    python = ensure_engine(load_settings().worker.python, lambda _: None)
    site = Path(".headrace") / "bench-training" / "site"
    made = command(python.absolute(), site.absolute(), "trainer.speed", ["--rounds", str(rounds)])
    done = subprocess.run(
        made, env=environment(os.environ, site.absolute()), stdout=subprocess.PIPE,
        timeout=_SPEED_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise TransientError("`trainer.speed` failed; what it said stands above.")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def section(fast: dict[str, float], shown: Shown, loop: Loop) -> Section:
    """All of it as figures."""
    found = shown.numbers
    total = max(sum(loop.ages.values()), 1)
    bounds = zip(_AGES, (*_AGES[1:], 10**9), strict=True)
    ages = [
        Figure(
            _age(first, end),
            100.0 * sum(n for age, n in loop.ages.items() if first <= age < end) / total,
            "%",
        )
        for first, end in bounds
    ]
    peaks = [
        Figure(f"memory of {name}, the most", loop.peaks[name] / _GIB, "GiB")
        for name in ("trainer", "batching", "worker")
        if name in loop.peaks
    ]
    plain, trainer = fast["plain_tokens_per_second"], fast["trainer_tokens_per_second"]
    figures = (
        Figure("a plain step", plain, "tokens a second"),
        Figure("a step of the trainer", trainer, "tokens a second"),
        Figure("the trainer's share of the plain step", fast["share"], "times", SPEED_GOAL,
               is_rate=True),
        Figure("reward received to improved answer served, median",
               quantile(loop.seconds, 0.5), "s"),
        Figure("the same, of 95 in 100", quantile(loop.seconds, 0.95), "s"),
        *ages,
        *peaks,
    )  # fmt: skip
    note = (
        f"{found['updates']} updates, {found['updates_stopped']} of them stopped, "
        f"{len(loop.seconds)} rewards, {sum(loop.ages.values())} tokens. Tokens a second are those "
        "of one thread's processor time, all tokens of the sequences counted. A version is served "
        "once the worker has proved it."
    )
    return Section("training", "The trainer and its loop", figures, note)


def _age(first: int, end: int) -> str:
    if end == 10**9:
        return f"tokens of {first} versions ago or more"
    until = f" to {end - 1}" if end - 1 > first else ""
    return f"tokens of {first}{until} versions ago"


def main(arguments: Sequence[str]) -> int:
    """0 when it was measured, 1 when it could not be; stderr then says why."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench training", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7, help="of the comparison of speed")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    own = parser.parse_args(arguments)
    load, at = load_average(), f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    plan = Plan(own.seed, controls=False, max_updates=own.updates, max_seconds=1_200.0,
                num_tasks=200 * own.updates)  # fmt: skip
    try:
        with leaving_on_sigterm():
            fast = speed(own.rounds)
            shown, loop = played(Path(".headrace") / "bench-training" / "stack", plan)
    except HeadraceError as error:
        sys.stderr.write(f"Not measured: {error}\n")
        return 1
    machine = this_machine()
    made = section(fast, shown, loop)
    said = " ".join(["python -m infra.bench training", *arguments])
    circumstances = Run(machine, at, load, load_average(), said)
    sys.stdout.write(text(made) + "\n")
    if own.write is not None:
        page = f"{machine_markdown(machine)}\n{markdown(made, circumstances)}"
        own.write.write_text(with_parts(own.write.read_text(), [("training", page)]))
    return 0
