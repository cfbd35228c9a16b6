"""LoRA adapters for the tiny model, as PEFT saves them, made by hand."""

import json
from typing import Any

import numpy as np

from schemas.weights.adapters import Adapter
from schemas.weights.checkpoints import shard
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Tensor, tensor
from tests import tiny_model as model

#: Fused with others in the engine, and by itself; not all of a fused one.
MODULES = {
    "self_attn.q_proj": (model.HEADS * model.HEAD_DIM, model.HIDDEN),
    "self_attn.v_proj": (model.KV_HEADS * model.HEAD_DIM, model.HIDDEN),
    "mlp.down_proj": (model.HIDDEN, model.MLP),
}


def tiny_adapter(
    seed: int, *, rank: int = 4, alpha: int = 12, module: str | None = None, **config: Any
) -> Adapter:
    """An adapter that changes answers; `module` puts it where the model has none."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Tensor] = {}
    for layer in range(model.LAYERS):
        for name, (rows, columns) in MODULES.items():
            at = f"base_model.model.model.layers.{layer}.{module or name}"
            tensors[f"{at}.lora_A.weight"] = _random(random, (rank, columns))
            tensors[f"{at}.lora_B.weight"] = _random(random, (rows, rank))
    settings = {
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none",
        "target_modules": sorted(name.rpartition(".")[2] for name in MODULES), **config,
    }  # fmt: skip
    return Adapter(shard(tensors), json.dumps(settings).encode())


def _random(random: np.random.Generator, shape: tuple[int, int]) -> Tensor:
    values = random.normal(0, 2.0, shape).astype(np.float32)
    return tensor(Dtype.BF16, shape, (values.view(np.uint32) >> 16).astype(np.uint16))
