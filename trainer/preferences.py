"""Preferences: direct preference optimization (DPO) over pairs of answers to one prompt.

    loss = - sum of weight * log sigmoid(beta * margin)
    margin = (better - its reference) - (worse - its reference)

`better` and `worse` are log-probabilities of whole answers, the references those under the weights
that the policy started from. Pairs are off-policy: no version and no behaviour matters. A loss is a
sum over pairs, so how they are put into parts changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trainer.examples import Example
from trainer.group import Group
from trainer.objective import Stats, Tokens
from trainer.policy import Policy, in_parts


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt."""

    better: Example
    worse: Example

    @property
    def longer(self) -> Example:
        """The one that decides how much room the pair takes."""
        return max(self.better, self.worse, key=lambda example: example.token_ids.size)


def dpo(
    better: Tokens, worse: Tokens, better_reference: Tokens, worse_reference: Tokens,
    weight: Tokens, beta: float,
) -> Tokens:  # fmt: skip
    """The loss of some pairs; only `better` and `worse` have a gradient."""
    margin = (better - better_reference) - (worse - worse_reference)
    return -(weight * torch.nn.functional.logsigmoid(beta * margin)).sum()


def pairs_of(examples: Sequence[Example]) -> list[Pair]:
    """The two examples of each sample, in the order in which samples first come."""
    found: dict[str, dict[bool, Example]] = {}
    for example in examples:
        found.setdefault(example.sample_id, {})[example.is_better] = example
    return [Pair(both[True], both[False]) for both in found.values() if len(both) == 2]


@dataclass(slots=True)
class Sums:
    """What the pairs of a step add to its figures."""

    value: float = 0.0
    entropy: float = 0.0
    num_tokens: int = 0

    def stats(self) -> Stats:
        """As those of an objective that needs no behaviour."""
        number = torch.tensor(float(self.num_tokens), dtype=torch.float64)
        return {"tokens": number, "shown": number}


class Preferences:
    """Gradients of pairs. The reference is looked for when the first pair comes."""

    def __init__(
        self,
        policy: Policy,
        reference: Callable[[], Policy],
        beta: float,
        max_tokens: int,
        group: Group | None = None,
    ) -> None:
        self._policy, self._find, self._beta = policy, reference, beta
        self._max_tokens, self._group = max_tokens, group or Group()
        self._reference: Policy | None = None

    def add_gradient(self, pairs: Sequence[Pair], weight: float) -> Sums:
        """Add the gradient of pairs that weigh so much each to that of the policy."""
        sums = Sums()
        if not pairs:
            return sums
        if self._reference is None:
            self._reference = self._find()
        parts = [*in_parts([pair.longer for pair in pairs], max(self._max_tokens // 2, 1))]
        for part, factor in self._group.share(parts):
            self._add(sums, [pairs[index] for index in part], weight, factor)
        return sums

    def _add(self, sums: Sums, pairs: Sequence[Pair], weight: float, factor: float) -> None:
        examples = [p.better for p in pairs] + [p.worse for p in pairs]
        found = self._policy.figures(examples, 1.0)
        assert self._reference is not None
        with torch.no_grad():
            reference = self._reference.figures(examples, 1.0).logp
        number = len(pairs)
        answers, anchors = _of_answers(found.logp, examples), _of_answers(reference, examples)
        weights = torch.full((number,), weight, device=answers.device)
        loss = dpo(
            answers[:number], answers[number:], anchors[:number], anchors[number:],
            weights, self._beta,
        )  # fmt: skip
        (loss * factor).backward()
        if factor == 0:
            return  # another process counts it
        sums.value += float(loss.detach())
        sums.entropy += float(found.entropy.sum())
        sums.num_tokens += found.logp.numel()


def _of_answers(logp: torch.Tensor, examples: Sequence[Example]) -> torch.Tensor:
    """The log-probability of each whole answer from those of its tokens in a row."""
    rows = np.repeat(np.arange(len(examples)), [e.positions.size for e in examples])
    place = torch.from_numpy(rows).to(logp.device)
    return torch.zeros(len(examples), device=logp.device).index_add(0, place, logp)
