"""The trainer's loop: take, learn, keep, publish. And how it begins again where it was.

intake ─▶ enough trajectories? ─▶ learn ─▶ checkpoint ─▶ publish ─▶ propose
                                    │
rolled back ─▶ fork from what the ring serves now
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from schemas.settings import TrainerSettings
from schemas.telemetry import Metrics
from schemas.weights.tensors import Tensors
from trainer.board import Board
from trainer.checkpoint import Checkpoint, Checkpoints
from trainer.examples import Example
from trainer.intake import Intake
from trainer.learner import Learner, Step
from trainer.publish import Promise, Versions
from trainer.together import SharedCheckpoints, SharedIntake, SharedVersions

_log = structlog.get_logger("trainer")


@dataclass(slots=True)
class Pending:
    """Examples that wait for enough others, and the offset after them."""

    examples: list[Example] = field(default_factory=list)
    next_offset: int | None = None

    @property
    def num_trajectories(self) -> int:
        """Independent trajectories among them."""
        return len({example.trajectory for example in self.examples})


class Loop:
    """One trainer of one policy. Not for several threads."""

    def __init__(
        self,
        own: TrainerSettings,
        learner: Learner,
        checkpoints: Checkpoints | SharedCheckpoints,
        versions: Versions | SharedVersions,
        board: Board,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own, self._learner = own, learner
        self._checkpoints, self._versions = checkpoints, versions
        self._board, self._metrics, self._clock = board, metrics, clock
        self._pending = Pending()
        self._published_steps = 0
        self._sequence = 0
        self._root = ""
        self._version = 0

    def begin(self) -> int | None:
        """Go on from the last checkpoint, else from the newest version, else publish version 1.

        The offset to read from; None for the first record.
        """
        checkpoint = self._checkpoints.latest()
        if checkpoint is None:
            self._begin_anew()
            return None
        self._restore(checkpoint)
        tensors = self._learner.policy.tensors()
        self._versions.catch_up(_promise(checkpoint), tensors)
        self._keep_recent(tensors)
        return checkpoint.next_offset

    def _begin_anew(self) -> None:
        policy = self._learner.policy
        found = self._versions.begin()
        if found is None:
            self._publish(None, {})
            return
        self._version, self._root, tensors = found
        policy.load_tensors(tensors)
        self._learner.agreement.keep(self._version, policy.tensors())

    def turn(self, intake: Intake | SharedIntake, timeout_seconds: float) -> Step | None:
        """Take what came; a step when there is enough for one."""
        self._fork_if_rolled_back()
        taken = intake.poll(timeout_seconds)
        if taken is None:
            return None
        self._pending.examples += taken.examples
        self._pending.next_offset = taken.next_offset
        if self._pending.num_trajectories < self._own.min_trajectories:
            return None
        pending, self._pending = self._pending, Pending()
        return self._step(pending)

    def _step(self, pending: Pending) -> Step:
        started = self._clock()
        step = self._learner.learn(pending.examples, self._version)
        learned = self._clock()
        figures = {**step.figures, "learn_seconds": learned - started}
        due = self._learner.num_steps - self._published_steps >= self._own.publish_every_steps
        if step.alarm is not None:
            self._metrics.counter("headrace_trainer_stopped", reason=step.alarm.value).inc()
            _log.warning("update_stopped", step=step.number, reason=step.alarm.value)
            figures |= {"stopped": 1.0, f"stopped_{step.alarm.value}": 1.0}
        if due:  # also after a stopped update: the samples are consumed
            num_bytes = self._publish(pending.next_offset, step.figures)
            figures |= {"publish_seconds": self._clock() - learned, "delta_bytes": num_bytes}
        self._tell(step, figures)
        return step

    def _publish(self, next_offset: int | None, statistics: Mapping[str, float]) -> int:
        """Checkpoint, manifest, proposal, in this order; the bytes of the payload."""
        tensors = self._learner.policy.tensors()
        root = self._versions.root_of(tensors)
        base = self._versions.baseline
        version = self._version if root == self._root else (self._versions.newest or 0) + 1
        checkpoint = self._checkpoint(next_offset, version, root, base, statistics)
        self._checkpoints.save(checkpoint)
        self._published_steps = self._learner.num_steps
        if root == self._root:
            return 0  # the step was too small for the number format; nothing to publish
        manifest = self._versions.publish(_promise(checkpoint), tensors)
        self._version, self._root = version, root
        self._learner.agreement.keep(version, tensors)
        _log.info("version_published", version=version, step=checkpoint.num_steps,
                  num_bytes=manifest.num_bytes, density=round(manifest.density, 4))  # fmt: skip
        return manifest.num_bytes

    def _checkpoint(
        self,
        next_offset: int | None,
        version: int,
        root: str,
        base: int | None,
        statistics: Mapping[str, float],
    ) -> Checkpoint:
        return Checkpoint(
            policy=self._own.policy,
            num_steps=self._learner.num_steps,
            next_offset=next_offset,
            version=version,
            root=root,
            base_version=base,
            sequence=self._sequence,
            statistics=dict(statistics),
            learned=self._learner.state(),
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._learner.restore(checkpoint.learned, checkpoint.num_steps)
        self._published_steps = checkpoint.num_steps
        self._sequence = checkpoint.sequence
        self._version, self._root = checkpoint.version, checkpoint.root

    def _keep_recent(self, tensors: Tensors) -> None:
        """The versions that are compared with the engine, as before the restart."""
        recent = self._versions.recent(self._version, self._own.num_kept_versions)
        for version in recent[:-1]:
            self._learner.agreement.keep(version, self._versions.tensors_of(version))
        self._learner.agreement.keep(self._version, tensors)

    def _fork_if_rolled_back(self) -> None:
        """What was served is taken back, and so is what was learned on top of it."""
        assignment = self._versions.rolled_back(self._sequence)
        if assignment is None:
            return
        self._sequence = assignment.sequence
        champion = assignment.stable
        if champion.root == self._root:
            return
        self._learner.policy.load_tensors(self._versions.fork_from(champion.version))
        self._learner.fresh_optimizer()
        self._version, self._root = champion.version, champion.root
        self._learner.agreement.keep(champion.version, self._learner.policy.tensors())
        _log.warning("forked_from_champion", version=champion.version)

    def _tell(self, step: Step, figures: Mapping[str, float]) -> None:
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        self._board.show(step.number, {"version": float(self._version), **finite})
        self._metrics.counter("headrace_trainer_steps").inc()
        for reason, number in step.left_out.items():
            self._metrics.counter("headrace_trainer_left_out", reason=reason).inc(number)
        gauges = {"reward", "lag", "agreement_k3", "entropy", "ess", "gradient_norm"}
        for name in gauges & finite.keys():
            self._metrics.gauge("headrace_trainer_figure", figure=name).set(finite[name])
        self._metrics.gauge("headrace_trainer_version").set(self._version)
        _log.info("step", step=step.number, **{n: round(v, 5) for n, v in finite.items()})


def _promise(checkpoint: Checkpoint) -> Promise:
    return Promise(
        checkpoint.version,
        checkpoint.root,
        checkpoint.base_version,
        checkpoint.num_steps,
        checkpoint.next_offset,
        checkpoint.statistics,
    )
