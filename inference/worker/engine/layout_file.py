"""Names, number formats and shapes of a checkpoint as JSON, from the worker to its engine."""

import json

from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Layout, Spec


def dumps(layout: Layout) -> str:
    """The text."""
    return json.dumps({name: [spec.dtype, list(spec.shape)] for name, spec in layout.items()})


def loads(text: str) -> dict[str, Spec]:
    """The layout of a text that `dumps` made."""
    return {
        name: Spec(Dtype(dtype), tuple(shape)) for name, (dtype, shape) in json.loads(text).items()
    }
