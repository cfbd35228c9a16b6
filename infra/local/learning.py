"""What `--with learning` adds to the stack.

samples ─▶ batching ─▶ micro-batches ─▶ trainer ─▶ versions
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from infra.local.children import ChildSpec, FileProbe, Port
from infra.local.serving import Served
from infra.local.state import run_dir
from schemas import topics
from schemas.errors import ConfigError
from schemas.settings import Settings

#: A trainer imports torch and transformers; on a busy machine that takes minutes.
_TRAINER_SECONDS = 600.0


def learning_children(
    environment: Mapping[str, str],
    settings: Settings,
    served: Served,
    data_dir: Path,
    ports: tuple[int, int],
) -> list[ChildSpec]:
    """Batching and the trainer, each with a port for its metrics.

    ConfigError where the worker would refuse the adapters that the trainer makes.
    """
    rank = settings.trainer.lora_rank
    if rank is not None and rank > (settings.worker.max_lora_rank or 0):
        raise ConfigError(
            f"trainer.lora_rank is {rank}, and the worker takes no adapter of that rank. Set "
            f"HEADRACE_WORKER__MAX_LORA_RANK to {rank} or more."
        )
    return [
        batching_child(environment, data_dir, ports[0]),
        trainer_child(environment, settings, served, ports[1]),
    ]


def trainer_child(
    environment: Mapping[str, str], settings: Settings, served: Served, port: int
) -> ChildSpec:
    """The trainer of the policy that the worker serves. It starts from the same checkpoint."""
    own = {
        "HEADRACE_TRAINER__POLICY": settings.worker.policy,
        "HEADRACE_TRAINER__RING": settings.worker.rings[0],
        "HEADRACE_TRAINER__MODEL": str(served.folder),
        "HEADRACE_TRAINER__PYTHON": str(served.python),
        "HEADRACE_METRICS_PORT": str(port),
    }
    data_dir = Path(environment["HEADRACE_DATA_DIR"])
    return ChildSpec(
        name="trainer",
        command=[sys.executable, "-m", topics.TRAINER],
        probe=FileProbe(run_dir(data_dir) / f"{topics.TRAINER}.ready"),
        after=["topics"],
        environment={**environment, **own},
        ports=(Port(port, "metrics of the trainer", "--gateway-port"),),
        ready_within_seconds=_TRAINER_SECONDS,
        stop_grace_seconds=30.0,
    )


def batching_child(environment: Mapping[str, str], data_dir: Path, port: int) -> ChildSpec:
    """The processor that makes micro-batches; `port` is that of its metrics."""
    return ChildSpec(
        name="batching",
        command=[sys.executable, "-m", topics.BATCHING],
        probe=FileProbe(run_dir(data_dir) / f"{topics.BATCHING}.ready"),
        after=["topics"],
        environment={
            **environment,
            "HEADRACE_WORKER_NAME": "local",
            "HEADRACE_METRICS_PORT": str(port),
        },
        ports=(Port(port, "metrics of batching", "--gateway-port"),),
    )
