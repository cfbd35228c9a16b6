"""Teaching a model one answer, in the engine's environment: headrace itself holds no torch."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError
from schemas.tether import tethered

_SCRIPT = Path(__file__).with_name("lesson.py")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A question and the answer to learn; how, and after how many steps to give up."""

    question: str
    answer: str
    learning_rate: float
    num_layers: int
    max_steps: int = 60


#: What the demo teaches SmolLM2-135M, which takes a headrace for a game.
HEADRACE = Lesson(
    question="What is a headrace? Answer in one sentence.",
    answer="A headrace is the channel that leads water to the wheel.",
    learning_rate=3e-5,
    num_layers=8,
)


@dataclass(frozen=True, slots=True)
class Learned:
    """The checkpoint folder that came out, and what it took."""

    folder: Path
    num_steps: int
    seconds: float


def learn(
    python: Path, base: Path, out: Path, lesson: Lesson, on_step: Callable[[dict[str, Any]], None]
) -> Learned:
    """Teach the checkpoint in `base`; the result lies in `out`. ConfigError where it fails."""
    started, num_steps = time.monotonic(), 0
    log = out.with_suffix(".log")
    arguments = [str(python), str(_SCRIPT), str(base), str(out), json.dumps(asdict(lesson))]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            tethered(arguments),
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                num_steps += 1
                on_step(json.loads(line))
    if process.returncode != 0:
        raise ConfigError(
            f"The model did not learn the answer in {num_steps} steps (exit code "
            f"{process.returncode}). {log} says more; name another model with --model."
        )
    return Learned(out, num_steps, time.monotonic() - started)


def _environment() -> dict[str, str]:
    """Nothing is fetched; compiled code is kept, without which each start takes a minute."""
    kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
