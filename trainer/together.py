"""What the first process of a group does for all: reading, publishing, checkpoints.

Each class has the methods of what it stands for. The first process does it and tells the others
what came of it; they have nothing of their own.
"""

from collections.abc import Mapping

from schemas.atdp.weights import RingAssignment, WeightsManifest
from schemas.weights.tensors import Tensors
from trainer.checkpoint import Checkpoint, Checkpoints
from trainer.group import Group
from trainer.intake import Intake, Taken
from trainer.publish import Promise, Versions


class SharedIntake:
    """Micro-batches that the first process reads. None elsewhere."""

    def __init__(self, group: Group, own: Intake | None) -> None:
        self._group, self._own = group, own

    def poll(self, timeout_seconds: float) -> Taken | None:
        """The next record for all."""
        taken = None if self._own is None else self._own.poll(timeout_seconds)
        told: Taken | None = self._group.told(taken)
        return told

    def close(self) -> None:
        """Release the connections."""
        if self._own is not None:
            self._own.close()


class SharedCheckpoints:
    """Checkpoints that the first process writes and reads."""

    def __init__(self, group: Group, own: Checkpoints | None) -> None:
        self._group, self._own = group, own

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable for all when this returns."""
        if self._own is not None:
            self._own.save(checkpoint)
        self._group.told(None)

    def latest(self) -> Checkpoint | None:
        """The newest one, for all."""
        told: Checkpoint | None = self._group.told(
            None if self._own is None else self._own.latest()
        )
        return told


class SharedVersions:
    """Versions that the first process publishes."""

    def __init__(self, group: Group, own: Versions | None) -> None:
        self._group, self._own = group, own

    @property
    def newest(self) -> int | None:
        """The highest committed version."""
        told: int | None = self._group.told(None if self._own is None else self._own.newest)
        return told

    @property
    def baseline(self) -> int | None:
        """The version that the next one starts from."""
        told: int | None = self._group.told(None if self._own is None else self._own.baseline)
        return told

    def root_of(self, tensors: Tensors) -> str:
        """The root that a manifest of these tensors will have."""
        told: str = self._group.told(None if self._own is None else self._own.root_of(tensors))
        return told

    def begin(self) -> tuple[int, str, Tensors] | None:
        """What a policy that has learned nothing goes on from."""
        told: tuple[int, str, Tensors] | None = self._group.told(
            None if self._own is None else self._own.begin()
        )
        return told

    def tensors_of(self, version: int) -> Tensors:
        """What is in a committed version."""
        told: Tensors = self._group.told(
            None if self._own is None else self._own.tensors_of(version)
        )
        return told

    def fork_from(self, version: int) -> Tensors:
        """Go on from another version."""
        told: Tensors = self._group.told(
            None if self._own is None else self._own.fork_from(version)
        )
        return told

    def recent(self, version: int, number: int) -> list[int]:
        """The last versions up to one."""
        told: list[int] = self._group.told(
            None if self._own is None else self._own.recent(version, number)
        )
        return told

    def catch_up(self, promise: Promise, tensors: Tensors) -> None:
        """Make true what the checkpoint says."""
        if self._own is not None:
            self._own.catch_up(promise, tensors)
        self._group.told(None)

    def publish(self, promise: Promise, tensors: Tensors) -> WeightsManifest:
        """Publish and propose."""
        made = None if self._own is None else self._own.publish(promise, tensors)
        told: WeightsManifest = self._group.told(made)
        return told

    def rolled_back(self, after_sequence: int) -> RingAssignment | None:
        """The assignment that took a version back."""
        found = None if self._own is None else self._own.rolled_back(after_sequence)
        told: RingAssignment | None = self._group.told(found)
        return told

    def close(self) -> None:
        """Release the connections."""
        if self._own is not None:
            self._own.close()


class NoBoard:
    """Where the figures of all processes but the first go."""

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """They are the first one's, too."""

    def close(self) -> None:
        """There is nothing to close."""
