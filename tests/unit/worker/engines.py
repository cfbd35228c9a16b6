"""An engine in process for the tests: vLLM's way to keep weights, fused and padded, in numpy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference.worker.engine import patch_file
from inference.worker.engine.places import Place, places
from inference.worker.update import EngineError
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Layout, Tensor, Tensors, digest, layout_of, tensor

PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
_AT = "model.layers.0."
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (10, 8),
    _AT + "self_attn.q_proj.weight": (8, 8),
    _AT + "self_attn.k_proj.weight": (4, 8),
    _AT + "self_attn.v_proj.weight": (4, 8),
    _AT + "self_attn.o_proj.weight": (8, 8),
    _AT + "mlp.gate_proj.weight": (16, 8),
    _AT + "mlp.up_proj.weight": (16, 8),
    _AT + "mlp.down_proj.weight": (8, 16),
    "model.norm.weight": (8,),
}
PARAMETERS: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (64, 8),  # padded
    _AT + "self_attn.qkv_proj.weight": (16, 8),
    _AT + "self_attn.o_proj.weight": (8, 8),
    _AT + "mlp.gate_up_proj.weight": (32, 8),
    _AT + "mlp.down_proj.weight": (8, 16),
    "model.norm.weight": (8,),
}


def small_model(seed: int = 0) -> dict[str, Tensor]:
    """Version 1 of a model with these shapes."""
    random = np.random.default_rng(seed)
    return {
        name: tensor(Dtype.BF16, shape, random.integers(0, 0x7F00, shape).astype(np.uint16))
        for name, shape in SHAPES.items()
    }


def stepped(tensors: Tensors, random: np.random.Generator, density: float) -> dict[str, Tensor]:
    """The next version: some elements anywhere, any finite value."""
    moved = {}
    for name, old in tensors.items():
        values = random.integers(0, 0x7F00, old.bits.size).astype(np.uint16)
        chosen = random.random(old.bits.size) < density
        moved[name] = Tensor(old.spec, np.where(chosen, values, old.bits))
    return moved


class NumpyEngine:
    """Implements what an update asks of an engine; can be told to fail."""

    def __init__(self, base: Tensors) -> None:
        self._base = base
        self._layout: Layout = layout_of(base)
        self._places: dict[str, Place] = places(self._layout, PARAMETERS, PACKED)
        self.is_dead = self.is_open = self.is_paused = False
        self.labels: list[dict[str, Any]] = []
        self.num_writes = 0
        #: Tensors after which the next write fails, and how many writes fail.
        self.fail_after: int | None = None
        self.num_failures = 0
        #: Flip a bit after the next write, as if something had been written elsewhere.
        self.flips = False
        self.is_busy = False
        self.start()

    def start(self) -> None:
        """A fresh process: the weights of the checkpoint, no label."""
        self._flat = {
            name: np.zeros(int(np.prod(shape)), np.uint16) for name, shape in PARAMETERS.items()
        }
        for name, old in self._base.items():
            self._view(name)[:] = old.bits
        self.is_dead, self.is_open, self.is_paused = False, True, False

    def _view(self, name: str) -> Any:
        place = self._places[name]
        end = place.first_element + place.num_elements
        return self._flat[place.parameter][place.first_element : end]

    def _require_alive(self) -> None:
        if self.is_dead:
            raise EngineError("it is dead")

    def answer(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What a client would see: the label, and a digest of what computed the answer."""
        assert self.is_open
        assert not self.is_paused
        return self.labels[-1], self.digests()

    def hold(self, seconds: float, *, drain: bool = True) -> bool:  # noqa: ARG002 - a port
        self._require_alive()
        if self.is_busy:
            return False
        self.is_open = not drain
        return True

    def release(self) -> None:
        self._require_alive()
        self.is_open = True

    def pause(self) -> None:
        self._require_alive()
        self.is_paused = True

    def resume(self) -> None:
        self._require_alive()
        self.is_paused = False

    def drop_cache(self, *, running: bool) -> bool:  # noqa: ARG002 - a port
        self._require_alive()
        return True

    def write(self, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        self._require_alive()
        assert self.is_paused or not self.is_open, "weights are written while requests run"
        changes = patch_file.read(patch)
        self.num_writes += 1
        for index, (name, change) in enumerate(changes.items()):
            if self.num_failures and index == self.fail_after:
                self.num_failures -= 1
                raise EngineError("failed on request")
            self._view(name)[change.positions] = change.bits
            self._wrote(name)
        if self.flips:
            self.flips = False
            self._flat["model.norm.weight"][0] ^= 1
        return self.digests(names)

    def _wrote(self, name: str) -> None:
        """For those who want to know that a tensor is written, and others are not yet."""

    def digests(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        self._require_alive()
        return {name: digest(self._view(name)) for name in (names or self._layout)}

    def progress(self) -> dict[str, int]:
        return {}

    def label(self, label: Mapping[str, object], progress: dict[str, int] | None = None) -> None:  # noqa: ARG002 - a port
        self._require_alive()
        assert self.is_paused or not self.is_open or label.get("refusal")
        self.labels.append(dict(label))
