"""The adapters that an engine has, and which of them answers. In vLLM's server process.

vLLM lets whoever knows an adapter's name ask for it. So what the worker has loaded is taken out of
vLLM's list at once, and comes back into it only as what the served name stands for: vLLM looks
there first, and clients go on asking for the model that they know.
"""

import copy
from collections.abc import MutableMapping
from typing import Any


class Shelf:
    """For one server process, as the label is."""

    def __init__(self) -> None:
        self._requests: dict[str, Any] = {}

    def take(self, scope: MutableMapping[str, Any], name: str) -> int:
        """Take what vLLM has just loaded out of its list; the number that its engine knows it by.

        KeyError for what it has not loaded.
        """
        self._requests[name] = _models(scope).lora_requests.pop(name)
        return int(self._requests[name].lora_int_id)

    def forget(self, scope: MutableMapping[str, Any], name: str) -> None:
        """Forget one, taken or not. The engine itself drops the oldest ones when it needs room."""
        self._requests.pop(name, None)
        models = _models(scope)
        if models is not None:
            models.lora_requests.pop(name, None)

    def answer_with(self, scope: MutableMapping[str, Any], name: str | None) -> None:
        """Let requests for the served model be answered with this one, or with the bare weights."""
        models = _models(scope)
        if models is None:
            if name is not None:
                raise RuntimeError("This vLLM has no list of adapters.")
            return
        served = models.base_model_paths[0].name
        models.lora_requests.pop(served, None)
        if name is not None:
            request = copy.copy(self._requests[name])
            request.lora_name = served
            models.lora_requests[served] = request


def _models(scope: MutableMapping[str, Any]) -> Any:
    """vLLM's list of what it serves; None where the application is not vLLM."""
    return getattr(scope["app"].state, "openai_serving_models", None) if "app" in scope else None
