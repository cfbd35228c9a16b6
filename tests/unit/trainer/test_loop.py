"""The loop on a bus in memory: versions come out, and a killed trainer goes on as if it had not
been killed."""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from schemas import codec, topics
from schemas.atdp.weights import Proposal
from schemas.bus.api import read_to_end
from schemas.bus.memory import MemoryBus
from schemas.settings import TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.versions import read_history, restore
from tests.unit.trainer.batches import POLICY, load, make_model, new_bus, put, stream
from trainer.checkpoint import Checkpoints
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.loop import Loop
from trainer.publish import Versions, root_of_all
from trainer.sentinels import Bounds

SIZE = 8


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Death:
    """At the n-th call of something durable, before or after it did its work."""

    at: str
    number: int
    after: bool


class Trainer:
    """One life of a trainer."""

    def __init__(
        self, bus: MemoryBus, folder: Path, model: Path, death: Death | None = None
    ) -> None:
        own = TrainerSettings(policy=POLICY, min_trajectories=SIZE, learning_rate=1e-3, model=model)
        policy = load(model)
        self.learner = Learner(policy, own, Bounds(), load(model))
        self.versions = Versions(bus, BlobStore((folder / "blobs").as_uri()), POLICY, "default")
        checkpoints = Checkpoints(folder / "checkpoints")
        if death is not None:
            targets = {
                "learn": self.learner, "save": checkpoints, "publish": self.versions._publisher,
                "_propose": self.versions,
            }  # fmt: skip
            dying(targets[death.at], death)
        self.metrics = Metrics()
        self._folder, self._own = folder, own
        self.loop = Loop(own, self.learner, checkpoints, self.versions, Unseen(), self.metrics)
        limits = Limits(POLICY, policy.vocabulary_size, policy.max_length)
        start = self.loop.begin()
        self.intake = Intake(bus, BlobStore("memory://none"), limits, start, self.metrics)

    def run(self) -> None:
        """Until nothing comes any more."""
        at_end = False
        while not at_end:
            at_end = self.intake._consumer.at_end()
            self.loop.turn(self.intake, 0.0)


class Unseen:
    """A board that nobody looks at."""

    def show(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def dying(target: object, death: Death) -> None:
    """Let a method of this object end everything at one of its calls."""
    real, calls = getattr(target, death.at), itertools.count(1)

    def call(*args: object, **kwargs: object) -> object:
        now = next(calls) == death.number
        if now and not death.after:
            raise Killed
        result = real(*args, **kwargs)
        if now:
            raise Killed
        return result

    setattr(target, death.at, call)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


def final_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.learner.policy.parameters().items()}


def proposals(bus: MemoryBus) -> Iterator[Proposal]:
    for record in read_to_end(bus, topics.WEIGHTS_PROMOTIONS):
        event = codec.decode(record.value)
        if isinstance(event, Proposal):
            yield event


def test_versions_come_out_and_are_what_was_learned(tmp_path: Path, model: Path) -> None:
    bus = new_bus()
    put(bus, *stream(load(model), 4, SIZE))
    trainer = Trainer(bus, tmp_path, model)
    trainer.run()
    blobs = BlobStore((tmp_path / "blobs").as_uri())
    history = read_history(bus, POLICY)
    assert sorted(history.versions) == [1, 2, 3, 4, 5]
    assert restore(bus, blobs, history, 1).root == root_of_all(load(model).tensors())
    assert restore(bus, blobs, history, 5).root == root_of_all(trainer.learner.policy.tensors())
    newest = history.versions[5]
    assert (newest.trainer_step, newest.data_watermark[0].offset) == (4, 4)
    assert {s.name for s in newest.statistics} >= {"reward", "loss", "agreement_k3"}
    assert [p.target.version for p in proposals(bus)] == [1, 2, 3, 4, 5]


def test_a_killed_trainer_goes_on_to_the_same_weights(tmp_path: Path, model: Path) -> None:
    """Killed before and after each durable act, at random: bit by bit the undisturbed weights."""
    batches = stream(load(model), 6, SIZE)
    calm_bus = new_bus()
    put(calm_bus, *batches)
    calm = Trainer(calm_bus, tmp_path / "calm", model)
    calm.run()
    expected, history = final_weights(calm), read_history(calm_bus, POLICY)

    chosen = random.Random(7)
    for life in range(4):
        bus, folder = new_bus(), tmp_path / f"killed-{life}"
        put(bus, *batches)
        deaths, trainer = 0, None
        while trainer is None:
            death = None
            if deaths < 6:
                at = chosen.choice(["learn", "save", "publish", "_propose"])
                death = Death(at, chosen.randint(1, 3), chosen.random() < 0.5)
            try:
                trainer = Trainer(bus, folder, model, death)
                trainer.run()
            except Killed:
                deaths, trainer = deaths + 1, None
        assert deaths > 0
        found = final_weights(trainer)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        again = read_history(bus, POLICY)
        assert {v: m.root for v, m in again.versions.items()} == {
            v: m.root for v, m in history.versions.items()
        }
        assert again.versions[max(again.versions)].data_watermark[0].offset == 6
        assert {p.target.version for p in proposals(bus)} == {*history.versions}


def test_what_came_twice_is_learned_once(tmp_path: Path, model: Path) -> None:
    batches = stream(load(model), 3, SIZE)
    once, twice = new_bus(), new_bus()
    put(once, *batches)
    put(twice, batches[0], batches[1], batches[0], batches[2], batches[1])
    found = []
    for name, bus in (("once", once), ("twice", twice)):
        trainer = Trainer(bus, tmp_path / name, model)
        trainer.run()
        found.append(final_weights(trainer))
        assert max(read_history(bus, POLICY).versions) == 4
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    stopped = trainer.metrics.counter("headrace_trainer_stopped", reason="no_tokens")
    assert stopped._value.get() == 2


def test_a_step_waits_for_enough_trajectories(tmp_path: Path, model: Path) -> None:
    bus = new_bus()
    put(bus, *stream(load(model), 7, SIZE // 2))
    trainer = Trainer(bus, tmp_path, model)
    trainer.run()
    assert trainer.learner.num_steps == 3
    newest = read_history(bus, POLICY).newest
    assert newest is not None
    assert newest.data_watermark[0].offset == 6


def test_statistics_are_finite_numbers(tmp_path: Path, model: Path) -> None:
    bus = new_bus()
    put(bus, *stream(load(model), 2, SIZE))
    Trainer(bus, tmp_path, model).run()
    for manifest in read_history(bus, POLICY).versions.values():
        assert np.isfinite([s.value for s in manifest.statistics]).all()
