"""One step of the optimizer: credit, loss in parts, gradient, sentinels, update.

    examples ─▶ credit ─▶ parts of similar length ─▶ objective ─▶ gradient ─▶ sentinels ─┬▶ update
                                                                                        └▶ reason
Deterministic on a CPU: the same state and the same examples make the same weights, bit by bit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from schemas.atdp.training import SequenceKind
from schemas.errors import ConfigError
from schemas.settings import TrainerSettings
from trainer.advantage import Baselines
from trainer.agreement import Agreement
from trainer.credit import SHOWN, Credit, Rules, give_credit
from trainer.examples import UNKNOWN_VERSION, Example
from trainer.group import Group, put_into, split_state, whole, whole_state
from trainer.ledger import Ledger
from trainer.objective import Options, Stats, summary, summed, supervised, weights_of
from trainer.own import objective_of
from trainer.policy import Policy, in_parts
from trainer.preferences import Preferences, pairs_of
from trainer.sentinels import Alarm, Bounds, Figures, Sentinels


@dataclass(frozen=True, slots=True)
class Step:
    """What a step came to. Without an alarm the weights moved."""

    number: int
    alarm: Alarm | None
    figures: Mapping[str, float]
    left_out: Mapping[str, int]


@dataclass(slots=True)
class _Loss:
    value: float = 0.0
    entropy: float = 0.0
    stats: Stats | None = None

    def over(self, group: Group) -> "_Loss":
        """Summed over the processes that each computed a part."""
        if group.size == 1:
            return self
        own = {name: float(value) for name, value in (self.stats or {}).items()}
        found = group.summed({**own, "": self.value, " ": self.entropy})
        value, entropy = found.pop(""), found.pop(" ")
        stats = {name: torch.tensor(number).double() for name, number in found.items()}
        return _Loss(value, entropy, stats)


class Learner:
    """The policy, its optimizer and all that a step remembers. Not for several threads."""

    def __init__(
        self,
        policy: Policy,
        own: TrainerSettings,
        bounds: Bounds,
        anchor: Policy | None,
        reference: Callable[[], Policy] | None = None,
        group: Group | None = None,
    ) -> None:
        """`anchor` is what the penalty pulls to; None where there is no penalty. `reference` finds
        what preferences are compared with, by default the anchor. `group` are the processes that
        learn together, each with a learner that is told the same."""
        self.policy, self._own, self._anchor = policy, own, anchor
        self._group = group or Group()
        self.ledger = Ledger()
        self.baselines = Baselines(binary=own.binary_rewards, memory=own.baseline_memory)
        self.sentinels = Sentinels(bounds)
        self.agreement = Agreement(
            policy, own.num_kept_versions, own.agreement_sequences, own.temperature
        )
        self._preferences = Preferences(
            policy,
            reference or self._found_anchor,
            own.dpo_beta,
            own.micro_batch_tokens,
            self._group,
        )
        options = Options(kl=own.kl if anchor is not None else 0.0)
        self._objective = objective_of(own.objective, options, own.code)
        self._supervised = supervised(options)
        self._rules = Rules(
            own.objective, own.deviation_floor, own.revision_min_change, own.revision_max_steps
        )
        self.num_steps = 0
        self.optimizer = self.fresh_optimizer()

    def _found_anchor(self) -> Policy:
        if self._anchor is None:
            raise ValueError("preferences need a reference where there is no anchor")
        return self._anchor

    def fresh_optimizer(self) -> Any:
        """An optimizer that remembers nothing: at the start, and after weights from elsewhere."""
        own = self._own
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters().values(), lr=own.learning_rate, weight_decay=own.weight_decay
        )
        return self.optimizer

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, as plain values and tensors: for a checkpoint."""
        parameters = self.policy.parameters()
        return {
            "parameters": {name: whole(p.detach()).cpu() for name, p in parameters.items()},
            "optimizer": whole_state(self.optimizer.state_dict()),
            "baselines": self.baselines.state(),
            "sentinels": dict(self.sentinels.state()),
            "ledger": self.ledger.state(),
            "random": torch.get_rng_state(),
        }

    def restore(self, state: Mapping[str, Any], num_steps: int) -> None:
        """Take back what `state` gave. ConfigError when it is another model's."""
        parameters, saved = self.policy.parameters(), state["parameters"]
        if {n: p.shape for n, p in parameters.items()} != {n: p.shape for n, p in saved.items()}:
            raise ConfigError(
                "The checkpoint is of another model. Set HEADRACE_TRAINER__MODEL to the one it was "
                "made with, or HEADRACE_TRAINER__POLICY to another name."
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                put_into(parameter, saved[name])
        self.fresh_optimizer()
        kept = split_state(state["optimizer"], [*parameters.values()])
        self.optimizer.load_state_dict(kept)
        self.baselines.restore(state["baselines"])
        self.sentinels.restore(state["sentinels"])
        self.ledger.restore(state["ledger"])
        torch.set_rng_state(state["random"])
        self.num_steps = num_steps

    def learn(self, examples: Sequence[Example], version: int) -> Step:
        """Take a step from these examples; `version` is the newest one that is published.

        The examples count as consumed also when a sentinel stopped the update.
        """
        self.num_steps += 1
        credit = give_credit(examples, self.num_steps, self.ledger, self.baselines, self._rules)
        batch = _Batch.of(credit, version, self._own)
        loss = self._gradient(batch)
        norm = self._gradient_norm()
        k3 = self.agreement.k3(credit.examples)
        before = self._probed(batch)
        figures = self._figures(batch, loss, norm, k3)
        alarm: Alarm | None = self._group.told(self.sentinels.look(figures))
        if alarm is None:
            self._update(batch)
            alarm = self.sentinels.look_after(_largest_change(before, self._probed(batch)), 1)
        self.optimizer.zero_grad(set_to_none=True)
        told = _told(figures, loss, credit, batch)
        return Step(self.num_steps, alarm, told, credit.left_out)

    def _update(self, batch: "_Batch") -> None:
        parameters = self.policy.parameters().values()
        torch.nn.utils.clip_grad_norm_(parameters, self._own.max_gradient_norm)
        self.optimizer.step()
        for _ in range(self._own.passes - 1):
            self._gradient(batch)
            torch.nn.utils.clip_grad_norm_(parameters, self._own.max_gradient_norm)
            self.optimizer.step()

    def _gradient(self, batch: "_Batch") -> _Loss:
        """The gradient of the whole batch, summed over its parts."""
        self.optimizer.zero_grad(set_to_none=True)
        total, stats = _Loss(), []
        parts = [*in_parts(batch.examples, self._own.micro_batch_tokens)]
        for part, factor in self._group.share(parts):
            examples = [batch.examples[index] for index in part]
            found = self.policy.figures(examples, self._own.temperature)
            tokens = batch.tokens(part, self.policy.device)
            prox = self._prox(batch, part, examples, found.logp)
            loss, told = self._loss(found.logp, prox, tokens)
            (loss * factor).backward()
            if factor == 0:
                continue  # another process counts it
            total.value += float(loss.detach())
            total.entropy += float((found.entropy * (tokens["mask"] != 0)).sum())
            stats.append(told)
        batch.prox_is_known = True
        pairs = self._preferences.add_gradient(batch.pairs, batch.pair_weight)
        total.value += pairs.value
        total.entropy += pairs.entropy
        total.stats = summed([*stats, pairs.stats()])
        return total.over(self._group)

    def _loss(
        self, logp: torch.Tensor, prox: torch.Tensor, tokens: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, Stats]:
        """Shown answers by their likelihood, all others by the objective."""
        rest = (tokens["behaviour"], tokens["advantage"])
        ids = (tokens["sequence_ids"], tokens["version_lag"])
        shown = tokens["shown"]
        mask = tokens["mask"]
        loss, stats = self._objective(logp, prox, *rest, mask * ~shown, *ids)
        if not bool(shown.any()):
            return loss, stats
        other, told = self._supervised(logp, prox, *rest, mask * shown, *ids)
        return loss + other, summed([stats, told])

    def _prox(
        self, batch: "_Batch", part: list[int], examples: list[Example], logp: torch.Tensor
    ) -> torch.Tensor:
        """The weights at the start of the step for decoupled PPO, else the anchor's."""
        if self._own.objective != "decoupled_ppo" and self._anchor is not None:
            with torch.no_grad():
                return self._anchor.figures(examples, self._own.temperature).logp
        key = part[0]
        if not batch.prox_is_known:
            batch.prox[key] = logp.detach()
        return batch.prox[key]

    def _gradient_norm(self) -> float:
        gradients = [p.grad for p in self.policy.parameters().values() if p.grad is not None]
        return float(whole(torch.nn.utils.get_total_norm(gradients))) if gradients else 0.0

    def _probed(self, batch: "_Batch") -> torch.Tensor:
        """Log-probabilities of a few tokens, to see whether an update moved anything."""
        shown = [*batch.examples[:2], *(pair.better for pair in batch.pairs[:1])]
        if not shown:
            return torch.zeros(0)
        with torch.no_grad():
            return self.policy.figures(shown[:2], self._own.temperature).logp

    def _figures(self, batch: "_Batch", loss: _Loss, norm: float, k3: float | None) -> Figures:
        found = summary(loss.stats or {})
        known = found["num_tokens"]
        advantages = batch.advantages
        return Figures(
            num_tokens=known,
            ess=found["ess"],
            masked_share=found["masked_share"],
            agreement_k3=k3,
            advantage_deviation=math.sqrt(sum(a * a for a in advantages) / max(len(advantages), 1)),
            gradient_norm=norm,
            entropy=loss.entropy / max(known, 1.0),
            length=batch.mean_length,
            loss=loss.value,
            needs_behaviour=self._own.objective != "supervised" and not batch.all_shown,
        )


class _Batch:
    """The examples of a step with a weight and an advantage for each token."""

    def __init__(self, credit: Credit, own: TrainerSettings) -> None:
        rated = [
            (example, advantage)
            for example, advantage in zip(credit.examples, credit.advantages, strict=True)
            if example.kind is not SequenceKind.PREFERENCE
        ]
        self.examples = [example for example, _ in rated]
        self.credited = [advantage for _, advantage in rated]
        self.advantages = credit.advantages
        compared = [e for e in credit.examples if e.kind is SequenceKind.PREFERENCE]
        self.pairs = [
            pair
            for pair in pairs_of(compared)
            if own.train_approximate or not pair.worse.approximate.any()
        ]
        self.all_shown = all(e.kind in SHOWN for e in credit.examples)
        #: Trajectories and pairs, each of which weighs the same.
        num_trajectories = len({example.trajectory for example in self.examples})
        self.pair_weight = 1.0 / max(num_trajectories + len(self.pairs), 1)
        self.share = num_trajectories * self.pair_weight
        #: First example of a part → what `_prox` found for it.
        self.prox: dict[int, torch.Tensor] = {}
        self.prox_is_known = False
        self._tokens: list[dict[str, torch.Tensor]] = []

    @property
    def mean_length(self) -> float:
        """Tokens of an answer, also those that are left out of the loss."""
        answers = [*self.examples, *(e for p in self.pairs for e in (p.better, p.worse))]
        return sum(example.positions.size for example in answers) / max(len(answers), 1)

    @classmethod
    def of(cls, credit: Credit, version: int, own: TrainerSettings) -> "_Batch":
        """Weights are made here, over all tokens of the step, so that parts may be any."""
        batch = cls(credit, own)
        examples = batch.examples
        names = {name: i for i, name in enumerate(dict.fromkeys(e.trajectory for e in examples))}
        trained = [_trained(example, version, own) for example in examples]
        if not trained:
            return batch
        place = [np.full(e.positions.size, names[e.trajectory]) for e in examples]
        weights = weights_of(
            torch.from_numpy(np.concatenate(trained)), torch.from_numpy(np.concatenate(place))
        )
        if batch.pairs:
            weights = weights * batch.share
        masks = weights.split([e.positions.size for e in examples])
        for number, (example, mask) in enumerate(zip(examples, masks, strict=True)):
            credited = batch.credited[number] * own.discount ** example.turns.astype(np.float64)
            size = example.positions.size
            batch._tokens.append(
                {
                    "behaviour": torch.from_numpy(example.behaviour).float(),
                    "advantage": torch.from_numpy(credited).float(),
                    "mask": mask,
                    "sequence_ids": torch.full((size,), number),
                    "version_lag": torch.from_numpy(_lag(example, version)),
                    "shown": torch.full((size,), example.kind is SequenceKind.SUPERVISED),
                }
            )
        return batch

    def tokens(self, part: Sequence[int], device: torch.device) -> dict[str, torch.Tensor]:
        """The arguments of an objective for some examples."""
        chosen = [self._tokens[index] for index in part]
        return {name: torch.cat([c[name] for c in chosen]).to(device) for name in chosen[0]}


def _lag(example: Example, version: int) -> np.ndarray:
    """Versions since each token was sampled; 0 where that is not known."""
    unknown = example.versions == UNKNOWN_VERSION
    return np.where(unknown, 0, np.maximum(version - example.versions, 0))


def _trained(example: Example, version: int, own: TrainerSettings) -> np.ndarray:
    """Which of its tokens are in the loss: not the stale ones, nor those of another context."""
    fresh = _lag(example, version) <= own.max_version_lag
    return fresh if own.train_approximate else fresh & ~example.approximate


def _largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((after - before).abs().max()) if before.numel() else 0.0


def _told(figures: Figures, loss: _Loss, credit: Credit, batch: _Batch) -> dict[str, float]:
    """The figures of a step by the names that manifests, boards and metrics use."""
    found = summary(loss.stats or {})
    rewards = credit.rewards
    told = {
        "loss": figures.loss,
        "reward": sum(rewards) / len(rewards) if rewards else math.nan,
        "num_rewards": float(len(rewards)),
        "num_sequences": float(len(batch.examples)),
        "num_pairs": float(len(batch.pairs)),
        "num_tokens": found["num_tokens"],
        "gradient_norm": figures.gradient_norm,
        "entropy": figures.entropy,
        "length": figures.length,
        "ess": found["ess"],
        "k3": found["k3"],
        "masked_share": found["masked_share"],
        "missing_share": found["missing_share"],
        "lag": found["lag_mean"],
        "agreement_k3": math.nan if figures.agreement_k3 is None else figures.agreement_k3,
    }
    return {name: value for name, value in told.items() if math.isfinite(value)}
