"""Whether an adapter in the memory that vLLM computes with is the one in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import xxhash


def digests_of_adapter(manager: Any, adapter_id: int, folder: Path) -> dict[str, str]:
    """XXH3-128 in hex of the folder's tensors, by name. ValueError where the engine differs.

    vLLM keeps an adapter in a slot of padded matrices, fused modules side by side, B times the
    scaling: so the comparison does as it does, bit by bit, and wants zeros everywhere else.
    """
    from safetensors.torch import load_file
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    tensors = load_file(folder / "adapter_model.safetensors")
    helper = PEFTHelper.from_local_dir(str(folder), None)
    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    expected = LoRAModel.from_lora_tensors(
        lora_model_id=adapter_id,
        tensors={name: tensor.clone() for name, tensor in tensors.items()},
        peft_helper=helper,
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        weights_mapper=None if mapper is None else mapper.get_rename_mapper(),
    )
    slot = manager.lora_index_to_id.index(adapter_id)
    wanted = {name: lora.optimize() for name, lora in expected.loras.items()}
    for module, part, name in _slices(manager):
        lora = wanted.pop(name, None)
        found_a = module.lora_a_stacked[part][slot, 0]
        found_b = module.lora_b_stacked[part][slot, 0]
        for found, matrix in ((found_a, lora and lora.lora_a), (found_b, lora and lora.lora_b)):
            if not torch.equal(found.cpu(), _padded(matrix, found)):
                raise ValueError(f"the engine's {name[:100]} is not the adapter's")
    if wanted:
        raise ValueError(f"the engine has no place for {next(iter(wanted))[:100]}")
    return {name: _digest(tensor) for name, tensor in tensors.items()}


def _slices(manager: Any) -> Iterator[tuple[Any, int, str]]:
    """Every matrix pair of the engine that an adapter may fill: module, part, name in the model."""
    for name, module in manager.modules.items():
        parts = manager.packed_modules.get(name, [name])
        for index, part in enumerate(parts):
            if hasattr(module, "lora_a_stacked") and isinstance(module.lora_a_stacked, tuple):
                yield module, index, part


def _padded(matrix: Any, like: Any) -> Any:
    whole = torch.zeros_like(like, device="cpu")
    if matrix is not None:
        whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    return whole


def _digest(tensor: Any) -> str:
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    return xxhash.xxh3_128_hexdigest(flat.numpy().data)
