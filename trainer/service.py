"""The trainer's parts, put together as the settings say."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import torch

from schemas.bus.api import Bus
from schemas.errors import ConfigError, TransientError
from schemas.secrets import load_weights_key
from schemas.settings import Settings, TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.tensors import Tensors
from trainer.adapter_versions import AdapterVersions
from trainer.answers import encoder_of
from trainer.board import Board, board_of
from trainer.checkpoint import Checkpoints
from trainer.device import best_device
from trainer.group import Group, joined
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.loop import Loop
from trainer.lora import Lora, with_adapter
from trainer.own import rate_of
from trainer.policy import Policy
from trainer.publish import Versions
from trainer.sentinels import Bounds
from trainer.together import NoBoard, SharedCheckpoints, SharedIntake, SharedVersions

_log = structlog.get_logger("trainer")
_POLL_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 30.0
#: Failures in a row, none of them followed by a step, after which the process gives up.
_MAX_FAILURES = 10


def folder_of(settings: Settings) -> Path:
    """Where a trainer keeps what is its own."""
    return (settings.data_dir / "trainer" / settings.trainer.policy).absolute()


def serve(
    settings: Settings,
    bus: Bus,
    stop: threading.Event,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Train until `stop` is set. ConfigError says what to change.

    What fails for a while is tried again from the last checkpoint; TransientError when that did
    not help.
    """
    own = settings.trainer
    torch.set_num_threads(own.num_threads)
    torch.manual_seed(own.seed)
    metrics = Metrics()
    folder = folder_of(settings)
    group = joined()
    try:
        if not group.is_first:
            _Session(own, None, folder, NoBoard(), metrics, group).run(stop)
            return
        if settings.metrics_port is not None:
            metrics.answer(settings.metrics_host, settings.metrics_port)
        with _alone(folder, own.policy):
            board = board_of(own, folder)
            blobs, key = BlobStore(settings.blobs), load_weights_key(settings.weights_key_file)
            shelf = Shelf(bus, blobs, key)
            session = _Session(own, shelf, folder, board, metrics, group, on_ready)
            try:
                _keep_trying(lambda: session.run(stop), stop, group)
            finally:
                board.close()
    finally:
        group.close()


def _keep_trying(session: Callable[[], int], stop: threading.Event, group: Group) -> None:
    num_failures = 0
    while not stop.is_set():
        try:
            session()
        except TransientError as error:
            num_failures += 1
            if num_failures >= _MAX_FAILURES or group.size > 1:  # the others wait for this one
                raise
            seconds = min(error.retry_after_seconds * 2**num_failures, _MAX_BACKOFF_SECONDS)
            _log.warning("trainer_waits", reason=str(error), seconds=seconds)
            stop.wait(seconds)
        else:
            return


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where versions and micro-batches are. The first process of a group alone has one."""

    bus: Bus
    blobs: BlobStore
    key: bytes | None


@dataclass(frozen=True, slots=True)
class _Session:
    """From the last checkpoint until it is stopped."""

    own: TrainerSettings
    shelf: Shelf | None
    folder: Path
    board: Board
    metrics: Metrics
    group: Group
    on_ready: Callable[[], None] = lambda: None

    def run(self, stop: threading.Event) -> int:
        """The number of steps."""
        own, group, metrics = self.own, self.group, self.metrics
        base = Policy.load(_model(own), best_device())
        at_base = base.tensors() if own.lora_rank else {}
        again = partial(_fresh, own)
        policy = _adapted(base, own).split(group, again)
        anchor = _anchor(policy, own)
        at_first = None if anchor is not None else lambda: again().split(group, again)
        learner = Learner(policy, own, Bounds(), anchor, at_first, group)
        at_start = policy.tensors()
        num_steps = 0
        versions = SharedVersions(group, self._versions(at_base, at_start))
        try:
            kept = SharedCheckpoints(group, Checkpoints(self.folder) if group.is_first else None)
            loop = Loop(own, learner, kept, versions, self.board, metrics)
            next_offset = loop.begin()
            intake = SharedIntake(group, self._intake(policy, next_offset))
            self.on_ready()
            try:
                while not group.told(stop.is_set()):
                    num_steps += loop.turn(intake, _POLL_SECONDS) is not None
            finally:
                intake.close()
        finally:
            versions.close()
        return num_steps

    def _versions(self, base: Tensors, at_start: Tensors) -> Versions | None:
        own, shelf = self.own, self.shelf
        if shelf is None:
            return None
        bus, blobs, key = shelf.bus, shelf.blobs, shelf.key
        if own.lora_rank is None:
            return Versions(bus, blobs, own.policy, own.ring, key=key)
        return AdapterVersions(
            bus, blobs, own.policy, own.ring, key=key, base=base, lora=_lora(own),
            untouched=at_start,
        )  # fmt: skip

    def _intake(self, policy: Policy, next_offset: int | None) -> Intake | None:
        own, shelf = self.own, self.shelf
        if shelf is None:
            return None
        limits = Limits(own.policy, policy.vocabulary_size, policy.max_length)
        rate = rate_of(own.reward, _model(own), own.code)
        encode = encoder_of(_model(own))
        return Intake(shelf.bus, shelf.blobs, limits, next_offset, self.metrics, rate, encode)


def _fresh(own: TrainerSettings) -> Policy:
    """The policy that has learned nothing."""
    return _adapted(Policy.load(_model(own), best_device()), own)


def _adapted(base: Policy, own: TrainerSettings) -> Policy:
    return base if own.lora_rank is None else with_adapter(base, _lora(own))


def _anchor(policy: Policy, own: TrainerSettings) -> Policy | None:
    """The weights at the start, which the penalty pulls to. They are never moved."""
    if own.anchor == "none" or own.kl == 0 or own.objective == "supervised":
        return None
    return policy.copy()


def _lora(own: TrainerSettings) -> Lora:
    assert own.lora_rank is not None
    return Lora(own.lora_rank, own.lora_alpha, own.lora_targets, own.seed)


def _model(own: TrainerSettings) -> Path:
    if own.model is None:
        raise ConfigError("Set HEADRACE_TRAINER__MODEL to the checkpoint folder to start from.")
    return own.model


@contextmanager
def _alone(folder: Path, policy: str) -> Iterator[None]:
    """One process for a policy: two would publish against each other."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(
            f"A trainer of policy {policy} runs already. Stop it, or set HEADRACE_TRAINER__POLICY."
        ) from None
    finally:
        os.close(handle)
