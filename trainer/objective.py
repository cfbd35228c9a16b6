"""Objectives: what a step of the optimizer makes smaller. Pure functions over tokens.

    objective(logp, logp_prox, logp_behaviour, advantage, mask, sequence_ids, version_lag)
        → (loss, stats)

All arguments are flat and of one length, an entry for each sampled token of some whole sequences:

  logp            log-probability under the weights that learn; the only one with a gradient
  logp_prox       under the weights at the start of the step, or under the anchor
  logp_behaviour  under the weights that sampled it, as the engine said; NaN where it said nothing
  advantage       how much better than expected, already discounted by turns
  mask            weight of the token in the loss, 0 for none; see `weights_of`
  sequence_ids    number of the sequence, any integers
  version_lag     versions between the one that sampled the token and the one that learns

The loss is a sum of weighted tokens, never a mean, so how tokens are packed, padded or split into
micro-batches changes nothing: sums of parts are the sum of the whole. `stats` are sums too;
`summary` makes figures of them. A token without a behaviour log-probability is left out by every
objective that needs one, and counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

Tokens: TypeAlias = torch.Tensor
Stats = dict[str, torch.Tensor]
Objective = Callable[[Tokens, Tokens, Tokens, Tokens, Tokens, Tokens, Tokens], tuple[Tokens, Stats]]


@dataclass(frozen=True, slots=True)
class Options:
    """What the objectives may be told.

    `low`, `high`: IcePop's bounds of the ratio to the behaviour; tokens outside are left out.
    `kl`: weight of the divergence from the anchor. `clip_low`, `clip_high`: PPO's bounds around 1.
    `max_correction`: bound of decoupled PPO's weight for stale tokens.
    """

    low: float = 0.5
    high: float = 5.0
    kl: float = 1e-3
    clip_low: float = 0.2
    clip_high: float = 0.28
    max_correction: float = 5.0


def reinforce_tracker(options: Options) -> Objective:
    """REINFORCE with a stop-gradient ratio (CISPO), IcePop's mask and a k2 penalty.

    `logp_prox` is the anchor that the penalty pulls to. The gradient of k2 under samples of the
    policy itself is that of the divergence.
    """

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        known, log_ratio = _log_ratio(logp.detach(), logp_behaviour, mask)
        ratio = log_ratio.exp()
        kept = known & (ratio >= options.low) & (ratio <= options.high)
        weight = torch.where(kept, mask, torch.zeros_like(mask))
        gain = ratio * advantage * logp
        penalty = 0.5 * (logp - logp_prox) ** 2
        loss = (weight * (options.kl * penalty - gain)).sum()
        return loss, _stats(mask, known, kept, log_ratio, version_lag)

    return loss_of


def decoupled_ppo(options: Options) -> Objective:
    """PPO whose trust region lies around the weights at the start of the step (AReaL).

    `logp_prox` is theirs. What the behaviour was older than that is corrected by a bounded weight
    without a gradient.
    """

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        known, log_ratio = _log_ratio(logp_prox.detach(), logp_behaviour, mask)
        correction = log_ratio.exp()
        kept = known & (correction <= options.max_correction)
        weight = torch.where(kept, mask * correction, torch.zeros_like(mask))
        ratio = (logp - logp_prox.detach()).exp()
        loss = (weight * -_clipped(ratio, advantage, options)).sum()
        return loss, _stats(mask, known, kept, log_ratio, version_lag)

    return loss_of


def grpo(options: Options) -> Objective:
    """PPO's clipped surrogate with a k3 penalty, for advantages normalised within groups.

    `logp_prox` is the anchor's. `clip_high` above `clip_low` is DAPO's form.
    """

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        known, log_ratio = _log_ratio(logp, logp_behaviour, mask)
        weight = torch.where(known, mask, torch.zeros_like(mask))
        anchor = logp_prox.detach() - logp
        penalty = anchor.exp() - 1 - anchor
        gain = _clipped(log_ratio.exp(), advantage, options)
        loss = (weight * (options.kl * penalty - gain)).sum()
        return loss, _stats(mask, known, known, log_ratio.detach(), version_lag)

    return loss_of


def gspo(options: Options) -> Objective:
    """GRPO whose ratio is one for a whole sequence: the geometric mean over its tokens."""

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        known, log_ratio = _log_ratio(logp, logp_behaviour, mask)
        weight = torch.where(known, mask, torch.zeros_like(mask))
        _, place = torch.unique(sequence_ids, return_inverse=True)
        num_sequences = int(place.max()) + 1 if place.numel() else 0
        zeros = torch.zeros(num_sequences, dtype=logp.dtype, device=logp.device)
        total = zeros.index_add(0, place, log_ratio)
        number = zeros.index_add(0, place, known.to(logp.dtype))
        ratio = (total / number.clamp_min(1.0)).exp()[place]
        loss = (weight * -_clipped(ratio, advantage, options)).sum()
        return loss, _stats(mask, known, known, log_ratio.detach(), version_lag)

    return loss_of


def supervised(options: Options) -> Objective:
    """Plain maximum likelihood of what got a positive advantage, weighted by it.

    Needs no behaviour: it serves demonstrations, and steps of models that tell no
    log-probabilities (reward-filtered).
    """

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        known, log_ratio = _log_ratio(logp.detach(), logp_behaviour, mask)
        loss = -(mask * advantage.clamp_min(0.0) * logp).sum()
        stats = _stats(mask, known, known, log_ratio, version_lag)
        stats["shown"] = stats.pop("missing")  # nothing is left out for it
        return loss, stats

    return loss_of


#: The objectives by the names that settings use.
OBJECTIVES: Mapping[str, Callable[[Options], Objective]] = {
    "reinforce_tracker": reinforce_tracker,
    "decoupled_ppo": decoupled_ppo,
    "grpo": grpo,
    "gspo": gspo,
    "supervised": supervised,
}


def standard_stats(
    logp: Tokens, logp_behaviour: Tokens, mask: Tokens, version_lag: Tokens
) -> Stats:
    """The sums of an objective that leaves no token out."""
    known, log_ratio = _log_ratio(logp.detach(), logp_behaviour, mask)
    return _stats(mask, known, known, log_ratio, version_lag)


def weights_of(trained: torch.Tensor, trajectories: torch.Tensor) -> torch.Tensor:
    """Weights of tokens for `mask`: each trajectory counts the same, however long it is.

    `trained` says which tokens count, `trajectories` to which trajectory each belongs. To be
    computed over the whole batch of a step, before it is split. The weights add up to 1.
    """
    if not bool(trained.any()):
        return torch.zeros(trained.shape)
    _, place = torch.unique(trajectories, return_inverse=True)
    lengths = torch.zeros(int(place.max()) + 1).index_add(0, place, trained.float())
    num_trajectories = (lengths > 0).sum()
    return trained.float() / (lengths[place].clamp_min(1.0) * num_trajectories)


def _log_ratio(
    logp: torch.Tensor, logp_behaviour: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which counted tokens have a behaviour, and their log-ratio; 0 elsewhere, without a gradient.

    The unknown ones are replaced before the subtraction: a NaN behind a mask still has a gradient
    of NaN.
    """
    known = torch.isfinite(logp_behaviour) & (mask != 0)
    behaviour = torch.where(known, logp_behaviour, logp.detach())
    difference = torch.where(known, logp - behaviour, torch.zeros_like(logp))
    return known, difference.clamp(-20.0, 20.0)


def _clipped(ratio: torch.Tensor, advantage: torch.Tensor, options: Options) -> torch.Tensor:
    within = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    return torch.minimum(ratio * advantage, within * advantage)


def _stats(
    mask: torch.Tensor,
    known: torch.Tensor,
    kept: torch.Tensor,
    log_ratio: torch.Tensor,
    version_lag: torch.Tensor,
) -> Stats:
    """Sums over the tokens. `log_ratio` is learner minus behaviour."""
    counted = mask != 0
    log_ratio = log_ratio.detach()
    ratio = log_ratio.exp() * known
    k3 = (ratio - 1 - log_ratio) * known
    return {
        "tokens": counted.sum().double(),
        "missing": (counted & ~known).sum().double(),
        "masked": (known & ~kept).sum().double(),
        "ratio": ratio.double().sum(),
        "ratio_squared": (ratio.double() ** 2).sum(),
        "k3": k3.double().sum(),
        "lag": (version_lag * counted).double().sum(),
    }


def summed(parts: Iterable[Stats]) -> Stats:
    """The sums of a whole step from those of its micro-batches."""
    total: Stats = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


def summary(stats: Stats) -> dict[str, float]:
    """Figures of a step: shares and means over tokens; the effective sample size as a share."""
    sums = {name: float(value) for name, value in stats.items()}
    num_tokens = sums.get("tokens", 0.0)
    num_known = num_tokens - sums.get("missing", 0.0) - sums.get("shown", 0.0)
    per_token, per_known = 1.0 / max(num_tokens, 1.0), 1.0 / max(num_known, 1.0)
    squared = sums.get("ratio_squared", 0.0)
    return {
        "num_tokens": num_tokens,
        "missing_share": sums.get("missing", 0.0) * per_token,
        "masked_share": sums.get("masked", 0.0) * per_known,
        "ratio_mean": sums.get("ratio", 0.0) * per_known,
        "k3": sums.get("k3", 0.0) * per_known,
        "lag_mean": sums.get("lag", 0.0) * per_token,
        "ess": sums.get("ratio", 0.0) ** 2 * per_known / squared if squared > 0 else 0.0,
    }
