"""Writing a step into vLLM's model: in place, and with vLLM's own loader of patches.

Runs in the engine's environment, as `python -m inference.worker.engine.comparison MODEL PATCH
LAYOUT`. Prints JSON: milliseconds of each way, round by round. Both write the same values, so
repeating them is harmless.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROUNDS = 5


def main(arguments: list[str]) -> int:
    """Start an engine in this process and measure in it."""
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
                       "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"})  # fmt: skip
    model, patch, layout = arguments
    from vllm import LLM

    from inference.worker.engine.plugin import register

    register()
    engine = LLM(model=model, enforce_eager=True, max_model_len=512, dtype="bfloat16")
    (found,) = engine.collective_rpc(measured, args=(patch, layout))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    return 0


def measured(worker: Any, patch: str, layout: str) -> dict[str, list[float]]:
    """Milliseconds by way. Runs where the model is."""
    import torch
    from vllm.model_executor.model_loader.checkpoint_weight_patch import (
        CheckpointWeightPatch,
        load_checkpoint_weight_patches,
    )

    from inference.worker.engine import layout_file, patch_file
    from inference.worker.engine.live import LiveModel

    model = worker.model_runner.model
    specs = layout_file.loads(Path(layout).read_text())
    live = LiveModel(model, specs)

    def in_place() -> None:
        for name, change in patch_file.read(Path(patch)).items():
            live.write(name, change)

    def by_loader() -> None:
        patches = [
            CheckpointWeightPatch(
                name=name,
                shape=specs[name].shape,
                dtype=torch.bfloat16,
                values=torch.from_numpy(change.bits.view("int16")).view(torch.bfloat16),
                indices=torch.from_numpy(change.positions.view("int32")),
            )
            for name, change in patch_file.read(Path(patch)).items()
        ]
        load_checkpoint_weight_patches(model, patches)

    ways = {"in_place": in_place, "by_loader": by_loader}
    before = {}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, write in ways.items():
            started = time.perf_counter()
            write()
            times[name].append(1000 * (time.perf_counter() - started))
            before[name] = live.digests()
    if before["in_place"] != before["by_loader"]:
        raise RuntimeError("The two ways have written different weights.")
    return times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
