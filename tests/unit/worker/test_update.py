"""One update of an engine: all or nothing, whatever fails."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

from inference.worker.engine.middleware import Label
from inference.worker.update import (
    EngineError,
    EngineLostError,
    Fault,
    Timing,
    UpdateFailedError,
    Updater,
)
from schemas.weights.shadow import Shadow
from tests.unit.worker.engines import NumpyEngine, small_model, stepped


@dataclass
class Bench:
    engine: NumpyEngine
    shadow: Shadow
    updater: Updater

    def move(self, seed: int = 1) -> Timing:
        """The shadow moves, then the engine; whoever fails leaves the shadow ahead."""
        before = dict(self.shadow.digests)
        random = np.random.default_rng(seed)
        delta, _ = self.shadow.diff(stepped(self.shadow.tensors, random, 0.2))
        patch = self.shadow.apply(delta)
        return self.updater.update(patch, before, self.shadow, Label("main", seed, delta.root))


@pytest.fixture(params=["wait", "keep"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    mode: Literal["wait", "keep"] = request.param
    base = small_model()
    engine = NumpyEngine(base)
    bench = Bench(engine, Shadow(base), Updater(engine, tmp_path / "patch", mode, 1.0))
    bench.updater.relabel(bench.shadow, Label("main", 0, bench.shadow.root))
    return bench


def test_engine_and_label_move_together(bench: Bench) -> None:
    timing = bench.move()
    label, digests = bench.engine.answer()
    assert (label["version"], label["root"]) == (1, bench.shadow.root)
    assert digests == bench.shadow.digests
    assert timing.pause_ms >= 0


@pytest.mark.parametrize("fail_after", [0, 1, 4, 8])
def test_an_error_in_the_middle_is_undone(bench: Bench, fail_after: int) -> None:
    before = bench.engine.answer()
    bench.engine.fail_after, bench.engine.num_failures = fail_after, 1
    with pytest.raises(UpdateFailedError) as caught:
        bench.move()
    assert caught.value.fault is Fault.ENGINE_FAILED
    assert bench.engine.answer() == before


def test_what_is_written_elsewhere_is_noticed_and_quarantined(bench: Bench) -> None:
    bench.engine.flips = True
    with pytest.raises(EngineLostError) as caught:
        bench.move(seed=3)
    assert caught.value.fault is Fault.ENGINE_DIFFERS
    assert bench.engine.labels[-1]["refusal"]


def test_an_engine_that_cannot_be_undone_serves_nothing(bench: Bench) -> None:
    bench.engine.fail_after, bench.engine.num_failures = 2, 2
    with pytest.raises(EngineLostError):
        bench.move()
    assert bench.engine.labels[-1]["refusal"]


def test_a_dead_engine_is_lost(bench: Bench) -> None:
    bench.engine.is_dead = True
    with pytest.raises(EngineLostError):
        bench.move()


def test_a_busy_engine_is_left_alone(bench: Bench) -> None:
    before = bench.engine.answer()
    bench.engine.is_busy = True
    with pytest.raises(UpdateFailedError) as caught:
        bench.move()
    assert caught.value.fault is Fault.ENGINE_BUSY
    assert bench.engine.answer() == before
    assert bench.engine.num_writes == 0


@pytest.mark.parametrize("dies", ["hold", "drop_cache", "write", "digests", "label", "release"])
def test_wherever_the_engine_dies_it_is_lost(
    bench: Bench, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: Callable[..., object] = getattr(bench.engine, dies)

    def dying(*arguments: object, **options: object) -> object:
        bench.engine.is_dead = True
        return inner(*arguments, **options)

    monkeypatch.setattr(bench.engine, dies, dying)
    with pytest.raises(EngineLostError):
        bench.move()


def test_a_label_whose_answer_is_lost_is_moved_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = bench.engine.label
    calls: list[object] = []

    def moving(wanted: Mapping[str, object], progress: dict[str, int] | None = None) -> None:
        label(wanted, progress)
        calls.append(wanted)
        if len(calls) == 1:
            raise EngineError("timed out")

    monkeypatch.setattr(bench.engine, "label", moving)
    before = bench.engine.answer()
    with pytest.raises(UpdateFailedError):
        bench.move()
    assert len(calls) == 2
    assert bench.engine.answer() == before


def test_few_tensors_are_looked_at_in_a_pause_and_never_none(tmp_path: Path) -> None:
    class Counting(NumpyEngine):
        asked: ClassVar[list[int]] = []

        def digests(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
            self.asked.append(len(names or []))
            return super().digests(names)

    base = small_model()
    engine = Counting(base)
    updater = Updater(engine, tmp_path / "patch", "wait", 1.0, check_bytes=1)
    Bench(engine, Shadow(base), updater).move()
    assert engine.asked == [1]
