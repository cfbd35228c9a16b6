"""Hundreds of updates under traffic: trainer and engine stay together, memory is flat, and the
reward does not collapse.

SOAK_UPDATES is the number of updates, 800 without it.
"""

import json
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from infra.bench.usage import family, resident_bytes
from infra.demo.learning.course import Board, Plan
from infra.demo.learning.show import Shown, run
from infra.local.ports import alternative_to
from infra.local.stack import Ports
from infra.local.state import read_state
from schemas.settings import load_settings
from trainer.sentinels import Alarm, Bounds

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

NUM_UPDATES = int(os.environ.get("SOAK_UPDATES", "800"))
SECONDS = 6_000.0
#: Those that hold something for each version, sample or call.
WATCHED = ("trainer", "batching", "worker", "gateway", "redaction", "assembly", "sink")
#: After the first third everything that fills up once is full.
MAX_GROWTH = 0.15
MIN_GROWTH_BYTES = 60 * 1024**2
_LOOK_SECONDS = 2.0
_FIRST_PORT = 23_000
#: Nothing to learn from is no fault: the more answers are right, the more often it happens.
NO_FAULT = {f"stopped_{Alarm.ZERO_VARIANCE}"}


@dataclass
class Watch:
    """Memory of the stack's processes, with their children, while a block runs."""

    data_dir: Path
    bytes_of: dict[str, list[int]] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        board = Board(self.data_dir / "trainer" / "main" / "steps.jsonl")
        while not self._stop.wait(_LOOK_SECONDS):
            if not board.lines():
                continue  # still starting
            state = read_state(self.data_dir)
            for child in () if state is None else state.children:
                self.restarts[child.name] = child.restarts
                if child.name in WATCHED and child.pid is not None:
                    held = sum(map(resident_bytes, family(child.pid)))
                    self.bytes_of.setdefault(child.name, []).append(held)


@dataclass(frozen=True)
class Soaked:
    """What was played, each step of the trainer, and the memory meanwhile."""

    shown: Shown
    steps: list[dict[str, float]]
    watch: Watch


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Soaked:
    data_dir = tmp_path_factory.mktemp("soak") / "stack"
    plan = Plan(
        seed=1, num_tasks=200 * NUM_UPDATES, controls=False, num_exam=100,
        max_updates=NUM_UPDATES, max_seconds=SECONDS,
    )  # fmt: skip
    with Watch(data_dir) as watch:
        shown = run(
            data_dir, plan, lambda *_: None, lambda _: None,
            updates=True, keep=False, ports=ports_of_its_own(),
        )  # fmt: skip
    steps = Board(data_dir / "trainer" / "main" / "steps.jsonl").lines()
    made = Soaked(shown, steps, watch)
    report = json.dumps(figures(made), indent=1)
    (tmp_path_factory.getbasetemp() / "soak-learning.json").write_text(report)
    sys.stdout.write(report)  # shown with `-s`, and where a test fails
    return made


def ports_of_its_own() -> Ports:
    """Not the usual ones: a stack that stands there stays as it is."""
    kafka, clickhouse, gateway, worker = (alternative_to(_FIRST_PORT + 50 * n) for n in range(4))
    return Ports.from_settings(
        load_settings(), kafka=kafka, clickhouse=clickhouse, gateway=gateway, worker=worker
    )


def thirds(values: list[float]) -> tuple[float, float, float]:
    """The median of each third, in order."""
    size = len(values) // 3
    return median(values[:size]), median(values[size : 2 * size]), median(values[-size:])


def figures(soaked: Soaked) -> dict[str, object]:
    """What is published of a soak: medians of thirds, sentinels, the demo's figures."""
    steps = soaked.steps
    names = ("reward", "entropy", "agreement_k3", "lag", "ess", "gradient_norm", "length")
    columns = {name: [step[name] for step in steps if name in step] for name in names}
    return {
        "updates": len(steps),
        "stopped": Counter(name for step in steps for name in step if name.startswith("stopped_")),
        "thirds": {name: thirds(found) for name, found in columns.items()},
        "agreement_k3_max": max(columns["agreement_k3"]),
        "mib": {
            name: [round(n / 1024**2) for n in thirds([*map(float, found)])]
            for name, found in soaked.watch.bytes_of.items()
        },
        "restarts": soaked.watch.restarts,
        "demo": {k: v for k, v in soaked.shown.numbers.items() if "right" not in k},
    }


def test_all_updates_were_made_and_nothing_was_started_again(soaked: Soaked) -> None:
    assert soaked.shown.problems == []
    assert len(soaked.steps) >= NUM_UPDATES
    numbers = [step["step"] for step in soaked.steps]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert not any(soaked.watch.restarts.values())
    stopped = Counter(name for step in soaked.steps for name in step if name.startswith("stopped_"))
    faults = sum(number for name, number in stopped.items() if name not in NO_FAULT)
    assert faults < 0.2 * len(soaked.steps), stopped


def test_trainer_and_engine_do_not_drift_apart(soaked: Soaked) -> None:
    known = [step["agreement_k3"] for step in soaked.steps if "agreement_k3" in step]
    assert len(known) > 0.9 * len(soaked.steps)
    assert max(known) <= Bounds().agreement_k3
    _, _, late = thirds(known)
    assert late < 0.1 * Bounds().agreement_k3


def test_memory_is_flat(soaked: Soaked) -> None:
    grown = {}
    for name in WATCHED:
        _, middle, late = thirds([float(n) for n in soaked.watch.bytes_of[name]])
        if late - middle > max(MAX_GROWTH * middle, MIN_GROWTH_BYTES):
            grown[name] = (middle, late)
    assert grown == {}


def test_the_reward_does_not_collapse(soaked: Soaked) -> None:
    rewards = [step["reward"] for step in soaked.steps if "reward" in step]
    early, middle, late = thirds(rewards)
    assert late >= max(early, middle) - 0.05
    assert late > 0
    found = soaked.shown.numbers
    assert found["held_out_after"] > found["held_out_before"]
    assert found["diversity_after"] >= 0.5 * found["diversity_before"]
