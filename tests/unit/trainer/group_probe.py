"""Runs in each process that `torchrun` starts in test_group.py, where tests cannot be imported.

argv: model folder, file of micro-batches, folder for what comes out
"""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from schemas import codec, topics
from schemas.bus.api import Record, deliver_now
from schemas.bus.memory import MemoryBus
from schemas.settings import TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.versions import read_history
from trainer.checkpoint import Checkpoints
from trainer.device import best_device
from trainer.group import Group, joined, whole
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.loop import Loop
from trainer.policy import Policy
from trainer.publish import Versions
from trainer.sentinels import Bounds
from trainer.together import NoBoard, SharedCheckpoints, SharedIntake, SharedVersions

OWN = TrainerSettings(
    policy="toy", min_trajectories=8, learning_rate=1e-3, micro_batch_tokens=24,
    agreement_sequences=2,
)  # fmt: skip


def bus_with(batches: list[Any]) -> MemoryBus:
    """A bus on which they lie."""
    bus = MemoryBus()
    bus.admin().create_topics(list(topics.all_topics()), 1, 1)
    records = [Record(topics.MICROBATCHES, b"toy", codec.encode(batch)) for batch in batches]
    deliver_now(bus.producer("test"), records, 5.0)
    return bus


class Life:
    """One life of a trainer of the group."""

    def __init__(self, group: Group, bus: MemoryBus, model: Path, folder: Path) -> None:
        def fresh() -> Policy:
            return Policy.load(model, best_device())

        policy = fresh().split(group, fresh)
        self.learner = Learner(policy, OWN, Bounds(), policy.copy(), None, group)
        blobs = BlobStore((folder / "blobs").as_uri())
        first = group.is_first
        versions = SharedVersions(group, Versions(bus, blobs, "toy", "default") if first else None)
        kept = SharedCheckpoints(group, Checkpoints(folder / "checkpoints") if first else None)
        self.loop = Loop(OWN, self.learner, kept, versions, NoBoard(), Metrics())
        start = self.loop.begin()
        limits = Limits("toy", policy.vocabulary_size, policy.max_length)
        own = Intake(bus, blobs, limits, start, Metrics()) if first else None
        self.intake = SharedIntake(group, own)
        self.figures: list[Mapping[str, float]] = []
        self.gradient: dict[str, torch.Tensor] = {}
        self.start = {n: p.clone() for n, p in self.learner.state()["parameters"].items()}
        self.learner.optimizer.register_step_pre_hook(self._keep)

    def _keep(self, *_: object) -> None:
        """The gradient of the first step, as the optimizer gets it."""
        found = {n: whole(p.grad).clone() for n, p in self.learner.policy.parameters().items()}
        self.gradient = self.gradient or found

    def take(self, number: int) -> None:
        """So many micro-batches."""
        for _ in range(number):
            step = self.loop.turn(self.intake, 1.0)
            assert step is not None
            self.figures.append(step.figures)


def main(model: Path, batches: Path, out: Path) -> None:
    """An undisturbed life, and one that is cut off after two steps and begun again."""
    torch.set_num_threads(1)
    group, given = joined(), pickle.loads(batches.read_bytes())  # noqa: S301 - the test wrote it
    whole = bus_with(given)
    undisturbed = Life(group, whole, model, out / "whole")
    undisturbed.take(len(given))
    cut = bus_with(given)
    Life(group, cut, model, out / "cut").take(2)
    again = Life(group, cut, model, out / "cut")
    again.take(len(given) - 2)
    said = {
        "rank": group.rank,
        "size": group.size,
        "figures": undisturbed.figures,
        "gradient": undisturbed.gradient,
        "state": undisturbed.learner.state()["parameters"],
        "again": again.learner.state()["parameters"],
        "versions": {
            name: {v: m.root for v, m in read_history(bus, "toy").versions.items()}
            for name, bus in (("whole", whole), ("cut", cut))
        },
        "parts": {n: type(p).__name__ for n, p in undisturbed.learner.policy.parameters().items()},
    }
    torch.save(said, out / f"rank-{group.rank}.pt")
    group.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
