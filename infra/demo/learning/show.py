"""`headrace demo --learn` from an empty folder to its figures."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.demo import serving_stage
from infra.demo.learning.course import Board, Classroom, Course, Plan
from infra.demo.learning.curve import write_png
from infra.demo.learning.figures import Served, numbers
from infra.demo.learning.model import NAME, ensure_desk_model
from infra.local import serving
from infra.local.engine import ensure_engine
from infra.local.model import ensure_model
from infra.local.stack import Ports
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, ManifestKind, WeightsAck
from schemas.bus.api import Bus, read_to_end
from schemas.errors import PermanentError
from schemas.settings import load_settings
from schemas.weights.versions import read_history

#: One place for how the demo's stack differs from the usual one: short waits, since its
#: trajectories are one call long; batches and a rate that suit a model of 2.4 million parameters.
_SETTINGS = """\
training_eligible_tenants = ["demo"]
[kafka]
linger_seconds = 0.15
[assembly]
idle_seconds = 1.5
tick_seconds = 0.5
settle_seconds = 0.2
[redaction]
tier = "regex"
[sink]
max_batch_wait_seconds = 2.0
[batching]
batch_sequences = 64
max_wait_seconds = 10.0
[trainer]
learning_rate = {learning_rate}
min_trajectories = 64
anchor = "none"
max_version_lag = 16
num_kept_versions = {num_kept_versions}
"""
_DESK = {"learning_rate": "1e-4", "num_kept_versions": 18}
#: For a model that was named: a hundred times as large, so fewer versions are kept.
_NAMED = {"learning_rate": "1e-5", "num_kept_versions": 3}

Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """The course, and the figures."""

    course: Course
    numbers: dict[str, Any]
    picture: Path
    updates: bool

    @property
    def problems(self) -> list[str]:
        """What did not go as it should, in sentences; empty where all did."""
        found = self.numbers
        return [
            sentence
            for sentence, is_so in {
                f"{found['failed_calls']} calls failed": found["failed_calls"] > 0,
                f"{found['failed_rewards']} rewards were not taken": found["failed_rewards"] > 0,
                "no update was made; the logs of the stack say why": (
                    self.updates and found["updates"] == found["updates_stopped"]
                ),
            }.items()
            if is_so
        ]


def run(
    data_dir: Path, plan: Plan, say: Say, show_line: Callable[[str], None], *,
    updates: bool, keep: bool, ports: Ports | None = None, model: str | None = None,
) -> Shown:  # fmt: skip
    """All of it. Without `updates` no trainer runs: the control of the whole course.

    `model` names another model than the demo's own: a folder, a GGUF file, a name on the hub.
    """
    started = time.monotonic()
    python = ensure_engine(load_settings().worker.python, lambda text: say("engine", text))
    folder = _folder(model, python, lambda text: say("model", text))
    served = serving.Served(folder, NAME, python, learns=updates)
    with serving_stage.serving(
        data_dir,
        served,
        say,
        keep=keep,
        ports=ports,
        settings=_SETTINGS.format_map(_DESK if model is None else _NAMED),
    ) as stage:
        policy = stage.settings.worker.policy
        board = Board(data_dir / "trainer" / policy / "steps.jsonl")
        target = stage.target
        room = Classroom(target.gateway_url, target.agent_key, target.feedback_key, NAME, board)
        course = asyncio.run(room.hold(plan, lambda text: say("demo", text), show_line))
        found = _served(stage.bus, policy)
        if found.full_bytes == 0:
            found = replace(found, full_bytes=(folder / "model.safetensors").stat().st_size)
        picture = data_dir / "learning-curve.png"
        write_png(picture, [o.reward for o in course.outcomes], [o.reward for o in course.control])
        seconds = time.monotonic() - started
        return Shown(course, numbers(course, board.lines(), found, seconds), picture, updates)


def _folder(model: str | None, python: Path, say: Callable[[str], None]) -> Path:
    base = None if model is None else ensure_model(model, python, say).folder
    return ensure_desk_model(python, say, base)


def _served(bus: Bus, policy: str) -> Served:
    history = read_history(bus, policy)
    acks = []
    for record in read_to_end(bus, topics.WEIGHTS_ACKS):
        try:
            event = codec.decode(record.value)
        except PermanentError:
            continue
        if isinstance(event, WeightsAck) and event.status is AckStatus.APPLIED:
            acks.append(event)
    manifests = history.versions.values()
    return Served(
        tuple(m.num_bytes for m in manifests if m.kind is ManifestKind.DELTA),
        max((m.num_bytes for m in history.snapshots.values()), default=0),
        tuple(ack.pause_ms for ack in acks if ack.pause_ms is not None),
        tuple(sorted({ack.version for ack in acks})),
    )
