"""Several processes that learn one policy together, as `torchrun` starts them.

    first    reads micro-batches, checkpoints, publishes, shows ──▶ tells the others what it took
    others   take what they are told

All run the same steps over the same examples: each computes its share of the parts, FSDP2 splits
weights and gradients among them, and a loss is a sum of its parts. So how many processes there are
changes nothing but rounding. What fails in one ends all of them: they go on from the checkpoint.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from schemas.tether import bind_to_parent

T = TypeVar("T")


class Group:
    """The processes, seen from one of them. Every method is to be called by all of them alike."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that reads and writes."""
        return self.rank == 0

    def told(self, value: Any) -> Any:
        """The first one's value, to all. What the others give does not matter."""
        if self.size == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

    def summed(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, always in the same order."""
        if self.size == 1:
            return dict(numbers)
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, dict(numbers))
        names = dict.fromkeys(name for one in found for name in one)
        return {name: sum(one.get(name, 0.0) for one in found) for name in names}

    def share(self, parts: Sequence[T]) -> Iterator[tuple[T, float]]:
        """This process's parts, each with a factor for its loss.

        All have as many, since they compute each layer together: who has none left takes one with
        the factor 0. FSDP takes the mean of the gradients, so the others count times the number of
        processes.
        """
        for first in range(0, len(parts), self.size):
            mine = first + self.rank
            if mine < len(parts):
                yield parts[mine], float(self.size)
            else:
                yield parts[first], 0.0

    def split(self, model: torch.nn.Module) -> None:
        """Split the weights of a model among the processes, layer by layer.

        Also the outermost ones are split again after each use: else who names the parameters after
        a look without a gradient gets whole ones, which have none.
        """
        if self.size == 1:
            return
        names = getattr(model, "_no_split_modules", None) or ()
        for module in [m for m in model.modules() if type(m).__name__ in names]:
            fully_shard(module)
        fully_shard(model, reshard_after_forward=True)

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1:
            torch.distributed.destroy_process_group()


def joined() -> Group:
    """The group that `torchrun` started this process for; one process alone without it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Group()
    bind_to_parent()  # a torchrun that is killed leaves nobody behind who goes on publishing
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group()
    return Group(torch.distributed.get_rank(), torch.distributed.get_world_size())


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that may be split among the processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def put_into(target: torch.Tensor, values: torch.Tensor) -> None:
    """Write a whole tensor into one that may be split."""
    target.copy_(split_like(target, values))


def split_like(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A whole tensor, split as the target is."""
    if not isinstance(target, DTensor) or values.dim() == 0:
        return values
    values = values.to(device=target.device, dtype=values.dtype)
    return distribute_tensor(values, target.device_mesh, target.placements)


def whole_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's state with whole tensors, on the CPU."""
    return {
        "param_groups": state["param_groups"],
        "state": {
            index: {name: whole(value).cpu() for name, value in values.items()}
            for index, values in state["state"].items()
        },
    }


def split_state(state: Mapping[str, Any], parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The other way round: whole tensors become split as the parameters are."""
    return {
        "param_groups": state["param_groups"],
        "state": {
            index: {name: split_like(parameters[index], value) for name, value in values.items()}
            for index, values in state["state"].items()
        },
    }
