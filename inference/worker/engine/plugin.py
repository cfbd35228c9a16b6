"""The entry point of vLLM's group `vllm.general_plugins`: runs in each of its processes."""

import os
import threading
import time
from typing import Any

BACKEND = "headrace"
_LOOK_SECONDS = 0.5
#: Processes that have a watcher already; a forked child inherits the set, but not the thread.
_watched: set[int] = set()


def register() -> None:
    """Make our weight transfer known, and keep linear weights as the checkpoint has them."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.platforms import current_platform

    if os.getpid() not in _watched:
        _watched.add(os.getpid())
        _end_with_parent()
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "inference.worker.engine.transfer", "InPlaceTransfer"
        )
    if current_platform.is_cpu():
        _keep_weights_unpacked()


def _keep_weights_unpacked() -> None:
    """On CPUs with AVX-512 or AMX vLLM packs linear weights and drops what could be written."""
    import torch
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:  # noqa: ARG001, FBT001 - vLLM's signature
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


def _end_with_parent() -> None:
    """The kernel tells only the server of the worker's end; the other processes look themselves."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="headrace-parent", daemon=True).start()
