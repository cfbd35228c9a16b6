"""Where a checkpoint's tensor lies among the engine's parameters. Pure; no torch.

vLLM fuses some tensors into one parameter, row block behind row block: q, k and v, gate and up. A
model with tied embeddings has one parameter for two names. What is computed here is a claim; the
worker proves it by digesting each tensor in the running engine before it writes the first one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.weights.tensors import Layout

_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


class NoPlaceError(ValueError):
    """The engine keeps a tensor in a form that cannot be written in place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of a parameter, in row-major order, that are a tensor of the checkpoint."""

    parameter: str
    first_element: int
    num_elements: int


def places(
    layout: Layout,
    parameters: Mapping[str, tuple[int, ...]],
    packed: Mapping[str, Sequence[str]],
    renamed: Callable[[str], str | None] = lambda name: name,
) -> dict[str, Place]:
    """Name in the checkpoint → place.

    `parameters` are the engine's by name with their shapes, `packed` its fused modules with those
    that are in them, in order; `renamed` is the engine's own map of names. NoPlaceError names the
    first tensor that has none.
    """
    names = {name: renamed(name) for name in layout}
    of_name = {new: old for old, new in names.items() if new is not None}
    found = {}
    for name, new in names.items():
        place = None
        if new is not None:
            place = _direct(name, new, layout, parameters) or _fused(
                new, layout, parameters, packed, of_name
            )
        if place is None:
            raise NoPlaceError(
                f"The engine has no place for {name[:100]}. It can only follow versions of models "
                "that it keeps as the checkpoint has them: no quantization, no tensor parallelism."
            )
        found[name] = place
    return found


def _direct(
    name: str, new: str, layout: Layout, parameters: Mapping[str, tuple[int, ...]]
) -> Place | None:
    if new == _HEAD and new not in parameters:
        new = _EMBEDDING  # tied: one parameter for both
    shape, wanted = parameters.get(new), layout[name].shape
    # The rows of an embedding are padded at the end, so what is there lies at the beginning.
    if shape is None or shape[1:] != wanted[1:] or math.prod(shape) < math.prod(wanted):
        return None
    return Place(new, 0, layout[name].num_elements)


def _fused(
    new: str,
    layout: Layout,
    parameters: Mapping[str, tuple[int, ...]],
    packed: Mapping[str, Sequence[str]],
    of_name: Mapping[str, str],
) -> Place | None:
    for fused, parts in packed.items():
        for part in parts:
            if f".{part}." not in new:
                continue
            before, _, after = new.rpartition(f".{part}.")
            parameter = f"{before}.{fused}.{after}"
            siblings = [of_name.get(f"{before}.{p}.{after}") for p in parts]
            if parameter not in parameters or None in siblings:
                continue
            sizes = [layout[sibling].num_elements for sibling in siblings if sibling is not None]
            if sum(sizes) == math.prod(parameters[parameter]):
                index = list(parts).index(part)
                return Place(parameter, sum(sizes[:index]), sizes[index])
    return None
