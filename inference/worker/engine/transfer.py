"""Our weight-transfer engine for vLLM, and what its workers answer beside it.

`update_weights` gets the path of a patch file and writes it in place. The file comes from the
worker on the same machine, which has proved it; vLLM's own loader is not involved.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from inference.worker.engine import layout_file, patch_file
from inference.worker.engine.adapter_proof import digests_of_adapter
from inference.worker.engine.live import LiveModel

BACKEND = "headrace"


@dataclass
class Init(WeightTransferInitInfo):
    """Nothing: there is no connection to make."""


@dataclass
class Update(WeightTransferUpdateInfo):
    """Path of a patch file. `fail_after` tensors the write fails, for tests of what comes next."""

    path: str
    fail_after: int | None = None


class InPlaceTransfer(WeightTransferEngine[Init, Update]):
    """Writes patch files into the model's own memory."""

    init_info_cls = Init
    update_info_cls = Update
    supports_draft_weight_update = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.live: LiveModel | None = None

    def init_transfer_engine(self, init_info: Init) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        """Nothing to do: what is written is whole by itself."""

    def finish_weight_update(self) -> None:
        """Nothing to do: what was written is in use."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base does it, but without its call that fails on a CPU."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Update) -> None:
        """Check all, then write all."""
        if self.live is None:
            raise RuntimeError("headrace_bind has not been called")
        changes = patch_file.read(Path(update_info.path))
        self.live.require(changes)
        for index, (name, change) in enumerate(changes.items()):
            if index == update_info.fail_after:
                raise RuntimeError("failed on request")
            self.live.write(name, change)

    def shutdown(self) -> None:
        """Nothing to release."""


class Readback:
    """Methods that vLLM adds to its workers. Arguments are text, answers JSON objects."""

    weight_transfer_engine: Any
    model_runner: Any
    start_weight_update: Any
    update_weights: Any
    finish_weight_update: Any

    def headrace_bind(self, path: str) -> dict[str, str]:
        """Look the checkpoint's tensors up in the model; {} or what is wrong as `error`."""
        try:
            layout = layout_file.loads(Path(path).read_text())
            transfer = self.weight_transfer_engine
            transfer.live = LiveModel(transfer.model, layout)
        except ValueError as error:
            return {"error": str(error)}
        return {}

    def headrace_update(self, info: str, names: str) -> dict[str, str]:
        """vLLM's own sequence of an update, and the digests after it."""
        self.start_weight_update()
        self.update_weights(json.loads(info))
        self.finish_weight_update()
        return self.headrace_digests(names)

    def headrace_digests(self, names: str) -> dict[str, str]:
        """XXH3-128 of the tensors in the JSON list `names`, or of all for `null`."""
        live: LiveModel = self.weight_transfer_engine.live
        return live.digests(json.loads(names))

    def headrace_adapter(self, folder: str, adapter_id: str) -> dict[str, Any]:
        """XXH3-128 of the adapter's tensors by name, or as `error` where the engine differs."""
        try:
            manager = self.model_runner.lora_manager._adapter_manager
            return digests_of_adapter(manager, int(adapter_id), Path(folder))
        except ValueError as error:
            return {"error": str(error)}

    def headrace_progress(self) -> dict[str, int]:
        """Request → tokens produced so far, of all requests that run."""
        requests = getattr(self.model_runner, "requests", {})
        return {name: len(state.output_token_ids) for name, state in requests.items()}
