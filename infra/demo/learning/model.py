"""The model of the demo: pre-trained here on text of the demo's own making, once, then cached.
Or another model, which reads some of that text, so that it knows what an answer looks like.
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from infra.demo.learning.tasks import lessons
from infra.local.locks import in_turn
from schemas.errors import ConfigError
from schemas.tether import tethered
from trainer.relaunch import command, environment

NAME = "headrace-desk"
_NUM_PAIRS, _NUM_STEPS = 20_000, 180
#: How a model that was named reads: it knows words already, and is slow.
_READS = ("--steps", "60", "--batch", "8", "--learning-rate", "1e-4", "--tell-every", "5")
_SEED = 1
_MAKE_SECONDS = 7_200.0
Say = Callable[[str], None]


def ensure_desk_model(python: Path, say: Say, base: Path | None = None) -> Path:
    """The checkpoint folder; made where it is not there yet, in one to three minutes, or with
    `base`, the checkpoint folder of a model to begin with, in as long as that takes.

    `python` is the engine's. ConfigError when it cannot be made.
    """
    pairs = "".join(
        json.dumps({"prompt": request, "completion": answer}) + "\n"
        for request, answer in islice(lessons(_SEED), _NUM_PAIRS)
    )
    begins = f"{_NUM_STEPS}" if base is None else f"{base.absolute()}{_READS}"
    digest = hashlib.sha256(f"{pairs}{begins}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    final = cache / f"desk-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    if not final.is_dir():
        with in_turn(final.with_suffix(".lock"), "the demo's model", _MAKE_SECONDS, say):
            if not final.is_dir():  # another process may have made it while we waited
                _make(python, pairs, final, say, base)
    return final


def _make(python: Path, pairs: str, final: Path, say: Say, base: Path | None) -> None:
    if base is None:
        say("pre-training a model of 2.4 million parameters (once, a minute or two)")
        how = ["--steps", str(_NUM_STEPS)]
    else:
        say(
            f"{base.name} reads what answers look like (once; minutes for each 100 million weights)"
        )
        how = ["--from", str(base.absolute()), *_READS]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".desk-", dir=final.parent) as folder:
        file, made, site = (Path(folder) / name for name in ("pairs.jsonl", "made", "site"))
        file.write_text(pairs)
        arguments = [str(file), str(made), *how, "--seed", str(_SEED)]
        _run(tethered(command(python, site, "trainer.pretrain", arguments)), site, say)
        made.rename(final)
    say(f"the model is ready after {time.monotonic() - started:.0f} s")


def _run(arguments: list[str], site: Path, say: Say) -> None:
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment(os.environ, site), "OMP_NUM_THREADS": "1"},
        text=True,
    ) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line.strip()
            if "/" in last.partition(" ")[0]:
                say(f"  step {last.partition(' ')[0]}, loss {last.partition(' ')[2]}")
    if process.returncode != 0:
        raise ConfigError(f"The demo's model could not be made: {last}")
