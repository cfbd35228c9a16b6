"""Do trainer and engine compute the same? Log-probabilities of both at the same version, compared.

The trainer has moved on by the time it sees what a version sampled, so the weights of the last
few versions are kept as they were published and looked at with a second model.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from schemas.weights.tensors import Tensors
from trainer.examples import Example
from trainer.policy import Policy


class Agreement:
    """Keeps versions and compares. Not for several threads."""

    def __init__(
        self, policy: Policy, num_versions: int, num_sequences: int, temperature: float
    ) -> None:
        self._probe: Policy | None = None
        self._policy = policy
        self._num_versions, self._num_sequences = num_versions, num_sequences
        self._temperature = temperature
        self._kept: OrderedDict[int, Tensors] = OrderedDict()
        self._loaded: int | None = None

    def keep(self, version: int, tensors: Tensors) -> None:
        """The weights of a version, as published. The oldest of too many are let go."""
        self._kept[version] = tensors
        while len(self._kept) > self._num_versions:
            self._kept.popitem(last=False)

    def k3(self, examples: Sequence[Example]) -> float | None:
        """Mean k3 divergence over the tokens of some sequences of one kept version.

        None where no sequence was sampled by one version that is kept, with log-probabilities.
        """
        usable: dict[int, list[Example]] = {}
        for example in examples:
            version = _version_of(example)
            if version is not None and version in self._kept:
                usable.setdefault(version, []).append(example)
        if not usable or self._num_sequences == 0:
            return None
        number = Counter({version: len(found) for version, found in usable.items()})
        version = max(number, key=lambda v: (number[v], v))
        chosen = usable[version][: self._num_sequences]
        with torch.no_grad():
            logp = self._at(version).figures(chosen, self._temperature).logp
        engine = torch.from_numpy(np.concatenate([e.behaviour for e in chosen])).to(logp.device)
        log_ratio = logp.to(engine.dtype) - engine
        return float((log_ratio.exp() - 1 - log_ratio).mean())

    def _at(self, version: int) -> Policy:
        if self._probe is None:
            self._probe = self._policy.copy()
        if self._loaded != version:
            self._probe.load_tensors(self._kept[version])
            self._loaded = version
        return self._probe


def _version_of(example: Example) -> int | None:
    """The one version that sampled all of it in its own context; None where that is not known."""
    versions = example.versions
    if versions.size == 0 or example.approximate.any() or (versions != versions[0]).any():
        return None
    return int(versions[0]) if np.isfinite(example.behaviour).all() else None
