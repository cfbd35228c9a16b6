"""What becomes of linear weights in vLLM, with and without our plug-in. Runs in its environment.

Prints JSON with the cases: the elements that are left in `weight` after vLLM's own last step of
loading, and whether what is then written there is what is computed with.
"""

import json
import sys
from typing import Any

import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from inference.worker.engine.plugin import register

ROWS, COLUMNS = 64, 32


def layer() -> Any:
    """What the loader has filled."""
    made: Any = torch.nn.Module()
    made.weight = torch.nn.Parameter(torch.randn(ROWS, COLUMNS).bfloat16(), requires_grad=False)
    made.bias = None
    return made


def loaded(method: Any) -> dict[str, Any]:
    """A layer after the last step of loading, written to in place."""
    made, x = layer(), torch.randn(3, COLUMNS).bfloat16()
    method.process_weights_after_loading(made)
    left = made.weight.numel()
    if left == 0:
        return {"left": 0, "follows": False}
    new = torch.randn(ROWS, COLUMNS).bfloat16()
    made.weight.data.copy_(new)
    found = made.cpu_linear(x, made.weight, None)
    follows = torch.equal(found, torch.nn.functional.linear(x, new))
    return {"left": left, "follows": follows}


def case(*, with_plugin: bool, claims_amx: bool) -> dict[str, Any]:
    """Both kinds of layers on this CPU, or on one that says it has AMX."""
    found = [loaded(UnquantizedLinearMethod()), loaded(UnquantizedEmbeddingMethod())]
    decides = bool(utils.check_cpu_sgl_kernel(ROWS, COLUMNS, torch.bfloat16))
    return {"plugin": with_plugin, "claims_amx": claims_amx, "takes_amx": decides, "layers": found}


def main() -> None:
    """Print what was found. The plug-in is not taken out again, so it comes last."""
    torch.manual_seed(1)
    has_amx, cases = torch.cpu._is_amx_tile_supported, []
    for with_plugin in (False, True):
        if with_plugin:
            register()
        for claims_amx in (False, True):
            torch.cpu._is_amx_tile_supported = (lambda: True) if claims_amx else has_amx
            cases.append(case(with_plugin=with_plugin, claims_amx=claims_amx))
    packs = torch.cpu._is_avx512_supported()
    sys.stdout.write("\n" + json.dumps({"has_avx512": bool(packs), "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
