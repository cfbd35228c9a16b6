"""What `--with model` adds to the stack: a worker that serves a model, and who decides its version.

worker (vLLM on CPU) ◀── gateway, which routes by the worker's ring
promotion            ──▶ what the ring serves
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.children import ChildSpec, FileProbe, HttpProbe, Port
from infra.local.engine import ensure_engine
from infra.local.model import ensure_model
from infra.local.state import run_dir
from schemas import topics
from schemas.settings import Settings

_LOOPBACK = "127.0.0.1"
_WORKER = "inference.worker"
#: An engine imports torch, reads the weights and warms up; on a busy machine that takes minutes.
_WORKER_SECONDS = 600.0


@dataclass(frozen=True)
class Served:
    """The model of a local worker: where it lies, what clients call it, what runs it.

    With `learns` a trainer makes it better, too.
    """

    folder: Path
    name: str
    python: Path
    learns: bool = False

    def settings(self) -> dict[str, str]:
        """The same as settings of the worker, under their environment names."""
        return {
            "HEADRACE_WORKER__MODEL": str(self.folder),
            "HEADRACE_WORKER__SERVED_MODEL_NAME": self.name,
            "HEADRACE_WORKER__PYTHON": str(self.python),
        }


def ensure_served(
    settings: Settings, model: str | None, say: Callable[[str], None], *, learns: bool = False
) -> Served:
    """The model and the engine, made where they are not there yet. ConfigError, see `say`.

    `model` wins over the setting `worker.model`; without either the packaged model is served.
    """
    python = ensure_engine(settings.worker.python, say)
    found = ensure_model(model or settings.worker.model, python, say)
    name = settings.worker.served_model_name or found.name
    return Served(found.folder, name, python, learns)


def serving_endpoints(settings: Settings, served: Served, port: int) -> dict[str, str]:
    """Settings that the gateway and clients of the stack need to find the worker."""
    ring = settings.gateway.ring or settings.worker.rings[0]
    return {
        "HEADRACE_GATEWAY__RING": ring,
        "HEADRACE_WORKER__POLICY": settings.worker.policy,
        "HEADRACE_WORKER__PORT": str(port),
        **_tokenizers(settings, served),
        **served.settings(),
    }


def _tokenizers(settings: Settings, served: Served) -> dict[str, str]:
    """With its tokenizer, tokens of redacted calls are kept without what was redacted."""
    file = served.folder / "tokenizer.json"
    if not file.is_file():
        return {}
    known = {policy: str(path) for policy, path in settings.redaction.tokenizers.items()}
    files = {settings.worker.policy: str(file), **known}
    return {"HEADRACE_REDACTION__TOKENIZERS": json.dumps(files)}


def promotion_child(environment: Mapping[str, str], data_dir: Path) -> ChildSpec:
    """Who decides what a ring serves, wherever its workers run."""
    return ChildSpec(
        name="promotion",
        command=[sys.executable, "-m", topics.PROMOTION],
        probe=FileProbe(run_dir(data_dir) / f"{topics.PROMOTION}.ready"),
        after=["topics"],
        environment=environment,
    )


def serving_children(environment: Mapping[str, str], data_dir: Path, port: int) -> list[ChildSpec]:
    """The worker and the promotion."""
    return [
        promotion_child(environment, data_dir),
        ChildSpec(
            name="worker",
            command=[sys.executable, "-m", _WORKER],
            # It refuses calls until it has proved what it serves.
            probe=HttpProbe(f"http://{_LOOPBACK}:{port}/v1/models"),
            after=["topics"],
            environment=environment,
            ports=(Port(port, "the worker", "--worker-port"),),
            ready_within_seconds=_WORKER_SECONDS,
            stop_grace_seconds=30.0,
        ),
    ]
