"""The whole demo of weights: its stack, its scenes, and what the store says at the end."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.demo.serving_stage import serving
from infra.demo.stage import TENANT
from infra.demo.weights.learning import Lesson
from infra.demo.weights.scenes import Played, Scenery, Show, play
from infra.local.serving import ensure_served
from infra.local.stack import Ports
from infra.store import open_reader
from schemas.secrets import load_weights_key
from schemas.settings import load_settings
from schemas.store import BlobStore

#: What the demo ends with; a reader can run it again.
SQL = """SELECT policy_version, left(any(weights_root), 12) AS root, count() AS steps,
       countIf(length(token_ids) = length(logprobs) AND notEmpty(token_ids)) AS with_tokens,
       any(JSONExtractString(output[1], 'content')) AS answer
FROM steps GROUP BY policy_version ORDER BY min(started_at)"""
_STEPS_SECONDS = 90.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Shown:
    """What was played, and what the store then held."""

    played: Played
    rows: list[dict[str, Any]]
    seconds: float

    @property
    def problems(self) -> list[str]:
        """What did not go as it should, in sentences; empty where all did."""
        answered = [reply for reply in self.played.replies if reply.is_answer]
        num_steps = sum(row["steps"] for row in self.rows)
        num_with_tokens = sum(row["with_tokens"] for row in self.rows)
        by_version = {row["policy_version"] for row in self.rows}
        found = {
            f"the store holds {num_steps} steps of {len(answered)} answers": num_steps
            != len(answered),
            f"{num_steps - num_with_tokens} steps lack their tokens": num_with_tokens != num_steps,
            "the store names other versions than the answers": by_version
            != {reply.version for reply in answered},
        }
        return [*self.played.problems, *(text for text, is_so in found.items() if is_so)]

    def numbers(self) -> dict[str, Any]:
        """The line of `--json`."""
        played = self.played
        whole, delta = played.snapshot.manifest, played.learned.manifest
        return {
            "calls": len(played.replies),
            "failed": played.num_failed,
            "mislabelled": played.num_mislabelled,
            "snapshot_bytes": whole.num_bytes,
            "delta_bytes": delta.num_bytes,
            "density": round(delta.density, 5),
            "publish_ms": round(played.learned.seconds * 1000, 1),
            "stage_ms": played.promoted.ack.stage_ms,
            "pause_ms": played.promoted.ack.pause_ms,
            "apply_ms": played.promoted.ack.apply_ms,
            "refusal": played.refused.ack.error,
            "rollback_apply_ms": played.rolled_back.ack.apply_ms,
            "steps": {str(row["policy_version"]): row["steps"] for row in self.rows},
            "problems": self.problems,
            "seconds": round(self.seconds, 1),
        }


def run(
    data_dir: Path, model: str | None, lesson: Lesson, show: Show, *,
    keep: bool, ports: Ports | None = None,
) -> Shown:  # fmt: skip
    """Everything, from an empty folder to the rows of the store."""
    started = time.monotonic()
    settings = load_settings(data_dir=data_dir)
    served = ensure_served(settings, model, lambda text: show("model", text))
    with serving(data_dir, served, show, keep=keep, ports=ports) as stage:
        worker = stage.settings.worker
        scenery = Scenery(
            bus=stage.bus,
            blobs=BlobStore(stage.settings.blobs),
            gateway_url=stage.target.gateway_url,
            key=stage.target.agent_key,
            policy=worker.policy,
            ring=worker.rings[0],
            served=served,
            folder=data_dir,
            weights_key=load_weights_key(stage.settings.weights_key_file),
        )
        played = play(scenery, lesson, show)
        num_answers = sum(reply.is_answer for reply in played.replies)
        rows = _rows(data_dir, num_answers)
    return Shown(played, rows, time.monotonic() - started)


def _rows(data_dir: Path, num_steps: int) -> list[dict[str, Any]]:
    """What the query finds once all steps are there, or after a while what is there."""
    deadline = time.monotonic() + _STEPS_SECONDS
    with open_reader(data_dir) as reader:
        while True:
            (found,) = reader.rows(
                "SELECT count() AS steps FROM steps WHERE tenant_id = {tenant:String}",
                {"tenant": TENANT},
            )
            if found["steps"] >= num_steps or time.monotonic() > deadline:
                return reader.rows(SQL)
            time.sleep(_POLL_SECONDS)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as lines."""
    head = f"{'version':>7}  {'root':12}  {'steps':>5}  {'with tokens':>11}  answer"
    return [
        head,
        *(
            f"{row['policy_version'] or '-':>7}  {row['root'] or '-':12}  {row['steps']:>5}  "
            f"{row['with_tokens']:>11}  {row['answer']}"
            for row in rows
        ),
    ]
