"""The trainer's parts, put together as the settings say."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import torch

from schemas.bus.api import Bus
from schemas.errors import ConfigError, TransientError
from schemas.secrets import load_weights_key
from schemas.settings import Settings, TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from trainer.adapter_versions import AdapterVersions
from trainer.answers import encoder_of
from trainer.board import Board, board_of
from trainer.checkpoint import Checkpoints
from trainer.device import best_device
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.loop import Loop
from trainer.lora import Lora, LoraPolicy, with_adapter
from trainer.own import rate_of
from trainer.policy import Policy
from trainer.publish import Versions
from trainer.sentinels import Bounds

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
    if settings.metrics_port is not None:
        metrics.answer(settings.metrics_host, settings.metrics_port)
    folder = folder_of(settings)
    with _alone(folder, own.policy):
        board = board_of(own, folder)
        blobs, key = BlobStore(settings.blobs), load_weights_key(settings.weights_key_file)
        try:
            _keep_trying(
                lambda: _session(own, bus, blobs, key, folder, board, metrics, stop, on_ready), stop
            )
        finally:
            board.close()


def _keep_trying(session: Callable[[], int], stop: threading.Event) -> None:
    num_failures = 0
    while not stop.is_set():
        try:
            session()
        except TransientError as error:
            num_failures += 1
            if num_failures >= _MAX_FAILURES:
                raise
            seconds = min(error.retry_after_seconds * 2**num_failures, _MAX_BACKOFF_SECONDS)
            _log.warning("trainer_waits", reason=str(error), seconds=seconds)
            stop.wait(seconds)


def _session(
    own: TrainerSettings,
    bus: Bus,
    blobs: BlobStore,
    key: bytes | None,
    folder: Path,
    board: Board,
    metrics: Metrics,
    stop: threading.Event,
    on_ready: Callable[[], None],
) -> int:
    """From the last checkpoint until `stop`; the number of steps."""
    base = Policy.load(_model(own), best_device())
    at_base = base.tensors() if own.lora_rank else {}
    policy = base if own.lora_rank is None else with_adapter(base, _lora(own))
    anchor = _anchor(policy, own)
    at_first = None if anchor is not None else lambda: Policy.load(_model(own), best_device())
    learner = Learner(policy, own, Bounds(), anchor, at_first)
    rate = rate_of(own.reward, _model(own), own.code)
    limits = Limits(own.policy, policy.vocabulary_size, policy.max_length)
    versions = (
        AdapterVersions(bus, blobs, own.policy, own.ring, key=key, base=at_base, learner=policy)
        if isinstance(policy, LoraPolicy)
        else Versions(bus, blobs, own.policy, own.ring, key=key)
    )
    num_steps = 0
    try:
        loop = Loop(own, learner, Checkpoints(folder), versions, board, metrics)
        encode = encoder_of(_model(own))
        intake = Intake(bus, blobs, limits, loop.begin(), metrics, rate, encode)
        on_ready()
        try:
            while not stop.is_set():
                num_steps += loop.turn(intake, _POLL_SECONDS) is not None
        finally:
            intake.close()
    finally:
        versions.close()
    return num_steps


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
