"""LoRA: low-rank matrices beside some linear layers learn, all other weights stand still.

    y = W x + (alpha / rank) · B A x        A random, B zero at the start: nothing is changed yet

What is published has the names and the number format of PEFT's files.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from schemas.errors import ConfigError
from schemas.weights.adapters import Adapter
from schemas.weights.checkpoints import shard
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Layout, Spec, Tensors
from trainer.policy import Policy

#: What PEFT puts before the names of the model.
_PREFIX = "base_model.model."
_PARTS = ("lora_A", "lora_B")


@dataclass(frozen=True, slots=True)
class Lora:
    """Rank of the matrices, their weight, and the last parts of the names of the layers."""

    rank: int
    alpha: int
    targets: tuple[str, ...]
    seed: int = 0

    @property
    def config(self) -> bytes:
        """PEFT's description of it."""
        said = {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": self.rank,
            "lora_alpha": self.alpha, "lora_dropout": 0.0, "bias": "none",
            "target_modules": sorted(self.targets),
        }  # fmt: skip
        return json.dumps(said, sort_keys=True).encode()

    def adapter_of(self, tensors: Tensors) -> Adapter:
        """Both files of an adapter with these tensors."""
        return Adapter(shard(dict(tensors)), self.config)


class LoraLinear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer that stands still, with two matrices beside it that learn."""

    def __init__(self, base: torch.nn.Linear, lora: Lora, random: torch.Generator) -> None:
        super().__init__()
        self.base = base
        self.lora_A = torch.nn.Linear(base.in_features, lora.rank, bias=False)
        self.lora_B = torch.nn.Linear(lora.rank, base.out_features, bias=False)
        self._scale = lora.alpha / lora.rank
        bound = 1.0 / math.sqrt(base.in_features)
        with torch.no_grad():
            self.lora_A.weight.uniform_(-bound, bound, generator=random)
            self.lora_B.weight.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output and what the matrices add."""
        return self.base(x) + self.lora_B(self.lora_A(x)) * self._scale


class LoraPolicy(Policy):
    """A policy of which the adapter alone learns, and alone is published."""

    def __init__(
        self, model: torch.nn.Module, layout: Layout, device: torch.device, lora: Lora
    ) -> None:
        """`model` has its adapter; `layout` is that of the adapter."""
        super().__init__(model, layout, device)
        self.lora = lora

    def _copied(self) -> "LoraPolicy":
        return LoraPolicy(copy.deepcopy(self.model), self.layout, self.device, self.lora)

    def parameters(self) -> dict[str, torch.Tensor]:
        """The matrices, by the names of the model."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def _state(self) -> Mapping[str, torch.Tensor]:
        return {_PREFIX + n: t for n, t in self.model.state_dict().items() if _is_part(n)}


def with_adapter(policy: Policy, lora: Lora) -> LoraPolicy:
    """The policy with a fresh adapter. ConfigError where no layer has one of the names."""
    random = torch.Generator().manual_seed(lora.seed)
    model = policy.model
    for parameter in model.parameters():
        parameter.requires_grad_(requires_grad=False)
    found = [n for n, m in model.named_modules() if _is_target(n, m, lora.targets)]
    if not found:
        raise ConfigError(
            f"The model has no linear layer named {', '.join(lora.targets)}. Set "
            "HEADRACE_TRAINER__LORA_TARGETS to the last parts of the names of such layers."
        )
    for name in found:
        above, _, last = name.rpartition(".")
        layer = model.get_submodule(name)
        assert isinstance(layer, torch.nn.Linear)
        setattr(model.get_submodule(above), last, LoraLinear(layer, lora, random))
    layout = {
        _PREFIX + name: Spec(Dtype.BF16, tuple(tensor.shape))
        for name, tensor in sorted(model.state_dict().items())
        if _is_part(name)
    }
    return LoraPolicy(model, layout, policy.device, lora)


def is_untouched(tensors: Tensors) -> bool:
    """Whether an adapter changes nothing: every B is zero, as at the start."""
    return not any(
        (tensor.bits & 0x7FFF).any() for name, tensor in tensors.items() if "lora_B" in name
    )


def _is_part(name: str) -> bool:
    return any(f".{part}." in name for part in _PARTS)


def _is_target(name: str, module: torch.nn.Module, targets: Sequence[str]) -> bool:
    return isinstance(module, torch.nn.Linear) and name.rpartition(".")[2] in targets
