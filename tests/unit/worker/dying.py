"""A worker that is killed at each of its steps, for `test_killed_workers`.

Every call that leaves the worker counts as two steps, before it and after it, and so does each
tensor that is written. The process makes topics and blobs once and then forks: one child is killed
at the step, the next one starts as a restarted worker does, with a fresh engine.

`python -m tests.unit.worker.dying FOLDER SCENARIO` prints a JSON list, one line a step.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference.worker.adapters import Adapters
from schemas import topics
from schemas.atdp.weights import AckStatus, WeightsManifest
from schemas.bus.memory import MemoryBus
from schemas.store import BlobStore
from schemas.weights.publish import Publisher
from schemas.weights.tensors import Tensors, digests_of
from tests.tiny_adapter import tiny_adapter
from tests.unit.worker.engines import NumpyEngine, small_model, stepped
from tests.unit.worker.test_adapters import Cupboard
from tests.worker_stage import POLICY, Stage

#: Where the worker is, and where it is sent when it is killed.
SCENARIOS = {
    "delta": (2, 3), "several": (2, 6), "back": (3, 2), "snapshot": (7, 2), "adapter": (2, 8),
}  # fmt: skip
WRONG, NOT_HEALED = 3, 4
_WATCHED = {"send", "flush", "get", "assign", "poll", "load_adapter", "unload_adapter"}


class Clock:
    """Counts steps once it is armed, looks at each at what would be served, and ends the process
    at the chosen one, or never for -1."""

    def __init__(self, last: int, look: Callable[[], None]) -> None:
        self._last, self._look = last, look
        self.num_steps, self.is_armed = 0, False

    def tick(self) -> None:
        if not self.is_armed:
            return
        self._look()
        if self.num_steps == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.num_steps += 1


class Watched:
    """Passes every call on and ticks around those that leave the worker."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in {"producer", "consumer"}:
            return lambda *args, **options: Watched(found(*args, **options), self._clock)
        return self._around(found) if name in _WATCHED else found

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            self._clock.tick()
            result = call(*args, **options)
            self._clock.tick()
            return result

        return watched


class WatchedEngine(NumpyEngine):
    """Ticks around each call, and after each tensor that is written."""

    clock: Clock | None = None

    def _tick(self) -> None:
        if self.clock is not None:
            self.clock.tick()

    def hold(self, seconds: float, *, drain: bool = True) -> bool:
        self._tick()
        held = super().hold(seconds, drain=drain)
        self._tick()
        return held

    def release(self) -> None:
        self._tick()
        super().release()
        self._tick()

    def write(self, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        self._tick()
        found = super().write(patch, names)
        self._tick()
        return found

    def _wrote(self, name: str) -> None:  # noqa: ARG002 - the port's signature
        self._tick()

    def label(self, label: Mapping[str, object], progress: dict[str, int] | None = None) -> None:
        self._tick()
        super().label(label, progress)
        self._tick()


class Place:
    """Topics and blobs that outlive every worker, and what each version is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bus = folder, MemoryBus()
        self.bus.admin().create_topics(topics.all_topics(), 1, 1)
        self.blobs = BlobStore((folder / "blobs").as_uri())
        publisher, random = Publisher(self.bus, self.blobs, POLICY), np.random.default_rng(5)
        self.manifests: dict[int, WeightsManifest] = {}
        self.digests: dict[int | None, dict[str, bytes]] = {None: digests_of(small_model())}
        model: Tensors = small_model()
        for version in range(1, 8):
            model = model if version == 1 else stepped(model, random, 0.1)
            self.manifests[version] = publisher.publish(model)
            self.digests[version] = digests_of(model)
        self.manifests[8] = publisher.publish_adapter(tiny_adapter(1), 2)
        self.digests[8] = self.digests[2]

    def stage(self, last: int) -> tuple[Stage, Clock, WatchedEngine, Cupboard]:
        engine, cupboard = WatchedEngine(small_model()), Cupboard()
        clock = engine.clock = Clock(last, lambda: self.look(engine, cupboard))
        bus, blobs = Watched(self.bus, clock), Watched(self.blobs, clock)
        adapters = Adapters(Watched(cupboard, clock), blobs, self.folder / "adapters")
        stage = Stage(bus, blobs, engine, small_model(), self.folder, adapters=adapters)
        return stage, clock, engine, cupboard

    def look(self, engine: NumpyEngine, cupboard: Cupboard) -> None:
        """End the process with `WRONG` where a request would be answered by other weights, or by
        another adapter, than its label says."""
        if not engine.labels or not engine.is_open or engine.is_paused:
            return  # a fresh one refuses all until it has a label
        label = engine.labels[-1]
        if label["refusal"]:
            return
        is_right = NumpyEngine.digests(engine) == self.digests[label["version"]]
        has_adapter = label["adapter"] in cupboard.held
        if not is_right or has_adapter != (label["version"] == 8):
            os._exit(WRONG)

    def killed(self, step: int, start: int, target: int) -> int:
        """Come to `start`, then be killed on the way to `target`; the number of steps for -1."""
        stage, clock, _, _ = self.stage(step)
        stage.go_to(self.manifests[start])
        if start == 7:  # what can be taken back is not read again
            stage.worker._undo.clear()
        clock.is_armed = True
        stage.go_to(self.manifests[target])
        return clock.num_steps

    def restarted(self, target: int) -> None:
        """A worker that finds the assignment there; ends with `NOT_HEALED` unless all is well."""
        stage, clock, engine, cupboard = self.stage(-1)
        clock.is_armed = True
        ack = stage.go_to(self.manifests[target])
        shadow = stage.require_equal()
        label, digests = engine.answer()
        self.look(engine, cupboard)
        told = (ack.status, ack.version, ack.root)
        wanted = self.manifests[target]
        beat = stage.beats()[-1]
        is_well = (
            told == (AckStatus.APPLIED, target, wanted.root)
            and (label["version"], label["root"]) == (target, wanted.root)
            and digests == dict(shadow.digests) == self.digests[target]
            and beat is not None and (beat.version, beat.root) == (target, wanted.root)
        )  # fmt: skip
        if not is_well:
            os._exit(NOT_HEALED)


def in_a_child(work: Callable[[], object]) -> int:
    """How a child ends that does this: 0, its exit status, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(arguments: list[str]) -> None:
    """Kill at every step, and heal after each."""
    folder, scenario = Path(arguments[0]), arguments[1]
    start, target = SCENARIOS[scenario]
    place = Place(folder)
    counted = folder / "steps"
    in_a_child(lambda: counted.write_text(f"{place.killed(-1, start, target)}"))
    found = []
    for step in range(int(counted.read_text())):
        killed = in_a_child(lambda: place.killed(step, start, target))  # noqa: B023 - done at once
        found.append([killed, in_a_child(lambda: place.restarted(target))])
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
