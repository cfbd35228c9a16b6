"""The worker: follows its ring, moves shadow and engine together, says what became of it.

`turn` is one round: read the topics, look after the engine, come nearer to the target. It waits
for Kafka at most a tenth of a second, and for one update as long as that takes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from inference.worker.adapters import Adapters
from inference.worker.announce import Announcer, utc_now
from inference.worker.engine.middleware import Label
from inference.worker.following import Follower
from inference.worker.measures import Measures
from inference.worker.patience import Patience
from inference.worker.plan import Refuse, Relabel, Step, TakeBack, next_step, restore_step
from inference.worker.staging import Staging, take_back
from inference.worker.supervise import Phase, Supervisor
from inference.worker.undo import UndoList
from inference.worker.update import (
    EngineError,
    EngineLostError,
    Fault,
    Timing,
    UpdateFailedError,
    Updater,
)
from schemas.atdp.weights import AckStatus, VersionRef, WeightsAck, WorkerHeartbeat
from schemas.errors import ConfigError, TransientError
from schemas.telemetry import Metrics
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Patch, Shadow, coalesced

#: A manifest is committed before anybody promotes it, but two topics are read in any order.
_UNKNOWN_SECONDS = 5.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Goal:
    """A target, and what was known when it was looked at: with more knowledge it is tried again."""

    target: VersionRef
    sequence: int
    num_manifests: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the worker is, as its heartbeats say it."""

    worker_id: str
    address: str
    policy: str
    rings: tuple[str, ...]


class Worker:
    """One engine, one policy. For one thread; what it is given does the waiting."""

    def __init__(
        self,
        identity: Identity,
        follower: Follower,
        supervisor: Supervisor,
        bind: Callable[[], str | None],
        updater: Updater,
        staging: Staging,
        announcer: Announcer,
        base: Callable[[], Shadow],
        undo: UndoList,
        adapters: Adapters | None = None,
        measures: Measures | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`base` reads what a fresh engine holds, `bind` lets it find its tensors.

        Without `adapters` versions that are adapters are refused.
        """
        self._identity, self._follower, self._supervisor = identity, follower, supervisor
        self._bind, self._updater, self._staging = bind, updater, staging
        self._announcer, self._base, self._undo = announcer, base, undo
        self._adapters, self._measures = adapters, measures or Measures(Metrics())
        self._clock, self._now = clock, now
        self._started_at = now()
        self._shadow: Shadow | None = None
        self._is_ready = False
        #: What is proved in the engine right now, and what was last before that.
        self.serving: VersionRef | None = None
        self._last_good: VersionRef | None = None
        self._done: Goal | None = None
        self._seen: tuple[VersionRef, int, float] | None = None
        self._patience = Patience()

    @property
    def shadow(self) -> Shadow | None:
        """What the engine holds; None while there is none."""
        return self._shadow

    def tend(self) -> None:
        """Look after the engine once."""
        match self._supervisor.tend():
            case Phase.CAME_UP:
                self._came_up()
            case Phase.WENT_DOWN:
                self._went_down()

    def follow(self) -> None:
        """Come to the target, if the engine is ready and there is something to do."""
        self._announcer.deliver_acks()
        goal = self._goal()
        if not self._is_ready or goal is None:
            return
        self._patience.turn_to(goal.target, goal.sequence)
        if self._patience.is_waiting(self._clock()):
            return
        is_over = goal == self._done or self._patience.gives_the_version_up
        if is_over or self._is_served(goal):
            self._fall_back(goal)
            return
        self._approach(goal)

    def stop(self) -> None:
        """End the engine and say goodbye."""
        self._announcer.close()
        self._supervisor.end()
        self._staging.close()

    # --- the engine's life ---------------------------------------------------------------------

    def _came_up(self) -> None:
        """A fresh engine: prove that it holds what its checkpoint says. ConfigError otherwise."""
        self._shadow = self._base()
        self._undo.clear()
        if self._adapters is not None:
            self._adapters.forget()
        try:
            problem = self._bind()
            if problem is None:
                self._updater.relabel(self._shadow, Label(policy=self._identity.policy))
        except (EngineError, EngineLostError) as error:
            differs = isinstance(error, EngineLostError) and error.fault is Fault.ENGINE_DIFFERS
            if differs:
                raise ConfigError(
                    "The engine holds other weights than worker.model. Start it in the number "
                    "format of the checkpoint, without quantization and tensor parallelism."
                ) from None
            _log.warning("engine_lost", reason=str(error))
            self._went_down()
            self._supervisor.reject("it did not show its weights")
            return
        if problem is not None:
            raise ConfigError(problem)
        self._is_ready, self._done = True, None
        self._supervisor.has_proved_itself()
        self._measures.engine_came_up()
        self._beat()
        _log.info("engine_ready", root=self._shadow.root)

    def _went_down(self) -> None:
        self._announcer.serve_nothing()
        self._is_ready, self._shadow, self.serving = False, None, None
        self._measures.serves(None)

    def _lost(self) -> None:
        """Nothing is known of the engine any more: end it, so that a fresh one is started."""
        self._went_down()
        self._supervisor.end()

    # --- the target ----------------------------------------------------------------------------

    def _goal(self) -> Goal | None:
        assignment, target = self._follower.assignment, self._follower.target
        if assignment is None or target is None:
            return None
        return Goal(target, assignment.sequence, self._follower.num_manifests)

    def _is_served(self, goal: Goal) -> bool:
        """Whether the target is served and everybody was told for this assignment."""
        told = self._done is not None and self._done.sequence == goal.sequence
        return told and self.serving == goal.target

    def _approach(self, goal: Goal) -> None:
        assert self._shadow is not None
        started = self._since(goal)
        step = next_step(self._shadow.root, goal.target, self._follower.history, self._undo.roots)
        if step == Refuse(Refusal.UNKNOWN_BASE) and self._clock() - started < _UNKNOWN_SECONDS:
            return
        try:
            self._take(step, goal.target, started)
        except RefusedError as error:
            self._refuse(goal, AckStatus.REFUSED, error.refusal.value)
        except UpdateFailedError as error:
            self._failed(goal, error.fault)
        except TransientError as error:
            self._retry_later(str(error))
        except EngineLostError as error:
            self._note_loss(goal, error.fault)
            self._lost()
        else:
            self._patience.has_succeeded()
            self._done = goal

    def _note_loss(self, goal: Goal, fault: Fault) -> None:
        """An engine may die once by chance; a fresh one tries again, and not a third one."""
        self._patience.num_losses += 1
        if self._patience.gives_the_version_up:
            self._refuse(goal, AckStatus.QUARANTINED, fault.value)

    def _failed(self, goal: Goal, fault: Fault) -> None:
        """The engine serves on. What was not begun is tried again for a while, what failed not."""
        is_begun = fault not in {Fault.ENGINE_BUSY, Fault.NO_ROOM}
        if not is_begun and not self._patience.has_waited_enough:
            self._retry_later(fault.value)
        else:
            self._refuse(goal, AckStatus.REFUSED, fault.value)

    def _take(self, step: Step, target: VersionRef, started: float, *, tell: bool = True) -> None:
        """Take the step; by a snapshot where the deltas are not to be had."""
        adapter = None if isinstance(step, Refuse) else self._adapter(target)
        try:
            timing, stage_ms = self._stepped(step, target, adapter)
        except RefusedError as refused:
            timing, stage_ms = self._healed(step, target, adapter, refused)
        self.serving = self._last_good = target
        self._beat()
        self._measures.serves(target)
        if self._adapters is not None:
            self._adapters.keep_only(target)
        if tell:
            apply_ms = 1000 * (self._clock() - started)
            self._acknowledge(
                target, AckStatus.APPLIED, None,
                stage_ms=stage_ms, pause_ms=timing.pause_ms, apply_ms=apply_ms,
            )  # fmt: skip
        _log.info("version_applied", version=target.version, step=type(step).__name__,
                  stage_ms=round(stage_ms, 1), pause_ms=round(timing.pause_ms, 1))  # fmt: skip

    def _healed(
        self, step: Step, target: VersionRef, adapter: str | None, refused: RefusedError
    ) -> tuple[Timing, float]:
        """By a snapshot; what was refused first says most where that does not do either."""
        healing = restore_step(target, self._follower.history)
        if isinstance(step, Refuse | Relabel) or isinstance(healing, Refuse):
            raise refused
        try:
            return self._stepped(healing, target, adapter)
        except RefusedError:
            raise refused from None

    def _stepped(self, step: Step, target: VersionRef, adapter: str | None) -> tuple[Timing, float]:
        assert self._shadow is not None
        shadow = self._shadow
        if isinstance(step, Refuse):
            raise RefusedError(step.refusal, f"version {target.version}")
        label = Label(self._identity.policy, target.version, target.root, adapter=adapter)
        if isinstance(step, Relabel):
            return self._updater.relabel(shadow, label), 0.0
        before, begun = dict(shadow.digests), self._clock()
        patches = self._staging.stage(step, shadow, self._undo, self._follower.history)
        stage_ms = 1000 * (self._clock() - begun)
        try:
            timing = self._updater.update(coalesced(patches), before, shadow, label)
        except UpdateFailedError:
            take_back(patches, shadow)
            raise
        self._remember(step, patches)
        return timing, stage_ms

    def _adapter(self, target: VersionRef) -> str | None:
        """The adapter of a version, loaded and proved beside what is served."""
        history = self._follower.history
        if history.weights_of(target) == target:
            return None
        if self._adapters is None:
            raise RefusedError(Refusal.ADAPTERS_OFF, f"version {target.version}")
        try:
            return self._adapters.bring(target, history)
        except EngineError:
            raise EngineLostError(Fault.ENGINE_FAILED) from None

    def _remember(self, step: Step, patches: list[Patch]) -> None:
        match step:
            case TakeBack():
                self._undo.forget(step.num_updates)
            case _:
                for patch in patches:
                    self._undo.add(patch)

    def _fall_back(self, goal: Goal) -> None:
        """After a fresh start with a target that was refused, serve what was served before."""
        if self.serving is not None or self._last_good in {None, goal.target}:
            return
        if self._patience.gives_all_up:
            return
        assert self._shadow is not None
        assert self._last_good is not None
        step = next_step(self._shadow.root, self._last_good, self._follower.history)
        try:
            self._take(step, self._last_good, self._clock(), tell=False)
        except (RefusedError, UpdateFailedError, TransientError) as error:
            self._retry_later(str(error))
        except EngineLostError:
            self._patience.num_losses += 1
            self._lost()

    def _since(self, goal: Goal) -> float:
        """When this target was first seen for this assignment."""
        if self._seen is None or self._seen[:2] != (goal.target, goal.sequence):
            self._seen = goal.target, goal.sequence, self._clock()
        return self._seen[2]

    def _retry_later(self, reason: str) -> None:
        seconds = self._patience.wait(self._clock())
        _log.warning("update_waits", reason=reason, seconds=seconds)

    # --- telling -------------------------------------------------------------------------------

    def _refuse(self, goal: Goal, status: AckStatus, error: str) -> None:
        self._done = goal
        _log.warning("version_refused", version=goal.target.version, status=status, reason=error)
        self._acknowledge(goal.target, status, error)

    def _acknowledge(
        self,
        target: VersionRef,
        status: AckStatus,
        error: str | None,
        *,
        stage_ms: float | None = None,
        pause_ms: float | None = None,
        apply_ms: float | None = None,
    ) -> None:
        ack = WeightsAck(
            worker_id=self._identity.worker_id,
            policy=self._identity.policy,
            version=target.version,
            root=target.root if status is AckStatus.APPLIED else None,
            status=status,
            stage_ms=stage_ms,
            pause_ms=pause_ms,
            apply_ms=apply_ms,
            error=error,
            occurred_at=self._now(),
        )
        self._measures.told(ack)
        self._announcer.acknowledge(ack)

    def _beat(self) -> None:
        identity = self._identity
        beat = WorkerHeartbeat(
            worker_id=identity.worker_id,
            address=identity.address,
            policy=identity.policy,
            rings=identity.rings,
            started_at=self._started_at,
            heartbeat_at=self._now(),
        )
        if self.serving is not None:
            beat = replace(beat, version=self.serving.version, root=self.serving.root)
        self._announcer.serve(beat)
