"""The tensors of the running model under the names that the checkpoint has: read, write, digest."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import xxhash

from inference.worker.engine.patch_file import Values
from inference.worker.engine.places import NoPlaceError, Place, places
from schemas.weights.dtypes import Dtype, num_bytes
from schemas.weights.tensors import Layout

_TORCH = {
    Dtype.BF16: torch.bfloat16,
    Dtype.F16: torch.float16,
    Dtype.F32: torch.float32,
    Dtype.F8_E4M3: torch.float8_e4m3fn,
    Dtype.F8_E5M2: torch.float8_e5m2,
}
#: Bits are moved as signed integers: torch indexes those on every device.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
_NUMPY = {1: np.int8, 2: np.int16, 4: np.int32}


class LiveModel:
    """A view of a model's own memory. What is written here is what the next step computes with."""

    def __init__(self, model: Any, layout: Layout) -> None:
        """NoPlaceError for a model that cannot be written in place."""
        found = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        # Where adapters may be loaded, vLLM wraps each layer and keeps its weights one level below.
        parameters = {name.replace(".base_layer.", "."): p for name, p in found.items()}
        mapper = getattr(model, "hf_to_vllm_mapper", None)
        renamed = mapper.get_rename_mapper().map_name if mapper is not None else lambda name: name
        packed: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", None) or {}
        shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        self._flat = {
            name: _flat(name, layout[name].dtype, parameters, place)
            for name, place in places(layout, shapes, packed, renamed).items()
        }

    def digests(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """XXH3-128 in hex of these tensors, or of all."""
        chosen = self._flat if names is None else names
        return {name: self._digest(name) for name in chosen}

    def _digest(self, name: str) -> str:
        return xxhash.xxh3_128_hexdigest(self._flat[name].cpu().numpy().view(np.uint8).data)

    def require(self, changes: Mapping[str, Values]) -> None:
        """ValueError, before anything is written, for changes that do not fit."""
        for name, change in changes.items():
            flat = self._flat.get(name)
            if flat is None:
                raise ValueError(f"no tensor {name[:100]}")
            positions, bits = change.positions, change.bits
            fits = positions.size == bits.size and bits.dtype.itemsize == flat.element_size()
            if not fits or (positions.size and int(positions.max()) >= flat.numel()):
                raise ValueError(f"changes of {name[:100]} do not fit it")

    def write(self, name: str, change: Values) -> None:
        """Write one tensor's changes. Writing them twice is harmless."""
        flat = self._flat[name]
        bits = np.array(change.bits).view(_NUMPY[flat.element_size()])
        if change.positions.size == flat.numel():
            flat.copy_(torch.from_numpy(bits))
            return
        index = torch.from_numpy(change.positions.astype(np.int64)).to(flat.device)
        flat.index_copy_(0, index, torch.from_numpy(bits).to(flat.device))


def _flat(name: str, dtype: Dtype, parameters: Mapping[str, Any], place: Place) -> Any:
    parameter = parameters[place.parameter].data
    if parameter.dtype != _TORCH[dtype] or not parameter.is_contiguous():
        raise NoPlaceError(
            f"The engine keeps {name[:100]} as {parameter.dtype}, the checkpoint as {dtype}. Start "
            "it with the checkpoint's own number format and without quantization."
        )
    bits = parameter.view(-1).view(_BITS[num_bytes(dtype)])
    return bits[place.first_element : place.first_element + place.num_elements]
