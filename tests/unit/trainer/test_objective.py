"""Every objective: gradients, an independent form, and what may not matter."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.objective import (
    OBJECTIVES,
    Options,
    summary,
    summed,
    weights_of,
)

OPTIONS = Options(kl=0.05)
Tokens = dict[str, torch.Tensor]
NAMES = ("logp", "logp_prox", "logp_behaviour", "advantage", "mask", "sequence_ids", "version_lag")


def tokens(num_sequences: int = 5, seed: int = 0, *, missing: bool = True) -> Tokens:
    random = torch.Generator().manual_seed(seed)

    def normal(number: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(number, generator=random, dtype=torch.float64)

    lengths = torch.randint(1, 7, (num_sequences,), generator=random)
    sequence_ids = torch.repeat_interleave(torch.arange(num_sequences), lengths)
    number = int(lengths.sum())
    logp = -1.0 + normal(number, 0.3)
    behaviour = logp + normal(number, 0.6)
    if missing:
        behaviour[torch.rand(number, generator=random) < 0.2] = math.nan
    counted = torch.rand(number, generator=random) < 0.9
    return {
        "logp": logp,
        "logp_prox": logp + normal(number, 0.2),
        "logp_behaviour": behaviour,
        "advantage": normal(num_sequences)[sequence_ids],
        "mask": weights_of(counted, sequence_ids).double(),
        "sequence_ids": sequence_ids,
        "version_lag": torch.randint(0, 4, (number,), generator=random),
    }


def loss_of(name: str, given_: Tokens, **replaced: torch.Tensor) -> torch.Tensor:
    arguments = {**given_, **replaced}
    loss, _ = OBJECTIVES[name](OPTIONS)(*(arguments[n] for n in NAMES))
    return loss


def gradient(name: str, given_: Tokens) -> torch.Tensor:
    logp = given_["logp"].clone().requires_grad_()
    loss_of(name, given_, logp=logp).backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    return logp.grad


def away_from_edges(given_: Tokens, name: str) -> Tokens:
    """Where a clip begins a difference quotient means nothing: keep ratios off the bounds."""
    logp, other = given_["logp"], given_["logp_behaviour"]
    if name == "decoupled_ppo":
        other = given_["logp_prox"]
    for edge in (OPTIONS.low, OPTIONS.high, 1 - OPTIONS.clip_low, 1 + OPTIONS.clip_high):
        near = ((logp - other) - math.log(edge)).abs() < 1e-3
        logp = torch.where(near, logp + 0.01, logp)
    return {**given_, "logp": logp}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_of_finite_differences(name: str, seed: int) -> None:
    """A stop-gradient ratio is held fixed by holding fixed the weights it is made of."""
    data = away_from_edges(tokens(seed=seed), name)
    found, step = gradient(name, data), 1e-6
    for index in range(data["logp"].numel()):
        losses = []
        for sign in (1, -1):
            moved = data["logp"].clone()
            moved[index] += sign * step
            changed = {**data, "logp": moved}
            if name == "reinforce_tracker":  # the ratio has no gradient, so it must not move
                changed["logp_behaviour"] = data["logp_behaviour"] + (moved - data["logp"])
            losses.append(float(loss_of(name, changed)))
        assert float(found[index]) == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-6)


def _reinforce(d: dict[str, float]) -> float:
    """d loss / d logp by hand, for one token."""
    penalty = OPTIONS.kl * (d["logp"] - d["logp_prox"])
    ratio = math.exp(d["logp"] - d["logp_behaviour"])
    kept = OPTIONS.low <= ratio <= OPTIONS.high
    return d["mask"] * (penalty - ratio * d["advantage"]) if kept else 0.0


def _surrogate(ratio: float, advantage: float) -> float:
    """d min(r A, clip(r) A) / d logp: r A where the clip is not in force."""
    if advantage > 0 and ratio > 1 + OPTIONS.clip_high:
        return 0.0
    if advantage < 0 and ratio < 1 - OPTIONS.clip_low:
        return 0.0
    return ratio * advantage


def _decoupled(d: dict[str, float]) -> float:
    correction = math.exp(d["logp_prox"] - d["logp_behaviour"])
    if correction > OPTIONS.max_correction:
        return 0.0
    return (
        -d["mask"] * correction * _surrogate(math.exp(d["logp"] - d["logp_prox"]), d["advantage"])
    )


def _grpo(d: dict[str, float]) -> float:
    gain = _surrogate(math.exp(d["logp"] - d["logp_behaviour"]), d["advantage"])
    penalty = OPTIONS.kl * (1.0 - math.exp(d["logp_prox"] - d["logp"]))
    return d["mask"] * (penalty - gain)


def _supervised(d: dict[str, float]) -> float:
    return -d["mask"] * max(d["advantage"], 0.0)


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("reinforce_tracker", _reinforce), ("decoupled_ppo", _decoupled),
        ("grpo", _grpo), ("supervised", _supervised),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_worked_out_by_hand(
    name: str, by_hand: Callable[[dict[str, float]], float], seed: int
) -> None:
    data = tokens(8, seed)
    found = gradient(name, data)
    for index in range(found.numel()):
        one = {key: float(value[index]) for key, value in data.items()}
        unknown = math.isnan(one["logp_behaviour"]) and name != "supervised"
        expected = 0.0 if unknown or one["mask"] == 0 else by_hand(one)
        assert float(found[index]) == pytest.approx(expected, abs=1e-12)


def test_gspo_is_a_loop_over_sequences() -> None:
    data = tokens(8, 3)
    logp = data["logp"].clone().requires_grad_()
    total: Any = 0.0
    for sequence in data["sequence_ids"].unique():
        inside = data["sequence_ids"] == sequence
        known = inside & data["logp_behaviour"].isfinite() & (data["mask"] != 0)
        if not bool(known.any()):
            continue
        ratio = (logp[known] - data["logp_behaviour"][known]).mean().exp()
        advantage = data["advantage"][inside][0]
        within = ratio.clamp(1 - OPTIONS.clip_low, 1 + OPTIONS.clip_high)
        gain = torch.minimum(ratio * advantage, within * advantage)
        total = total - gain * data["mask"][known].sum()
    total.backward()
    assert logp.grad is not None
    torch.testing.assert_close(gradient("gspo", data), logp.grad)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000), cut=st.integers(1, 5))
def test_split_and_order_and_padding_change_nothing(name: str, seed: int, cut: int) -> None:
    data = tokens(6, seed)
    whole, whole_stats = OBJECTIVES[name](OPTIONS)(*(data[n] for n in NAMES))
    first = data["sequence_ids"] < cut
    parts = []
    for chosen in (~first, first):
        part = {key: value[chosen] for key, value in data.items()}
        pads = {  # a padded token has weight 0, whatever else it holds
            key: torch.cat([value, torch.full_like(value[:1], 7)]) if value.numel() else value
            for key, value in part.items()
        }
        if part["mask"].numel():
            pads["mask"][-1] = 0.0
        parts.append(OBJECTIVES[name](OPTIONS)(*(pads[n] for n in NAMES)))
    assert float(sum(loss for loss, _ in parts)) == pytest.approx(float(whole), abs=1e-12)
    assert summary(summed(stats for _, stats in parts)) == pytest.approx(summary(whole_stats))


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"supervised"}))
def test_a_missing_behaviour_is_left_out_and_counted(name: str) -> None:
    data = tokens(4, missing=False)
    data["logp_behaviour"][2] = math.nan
    assert float(gradient(name, data)[2]) == 0.0
    _, stats = OBJECTIVES[name](OPTIONS)(*(data[n] for n in NAMES))
    assert float(stats["missing"]) == float(data["mask"][2] != 0)
    assert all(math.isfinite(float(value)) for value in stats.values())


def test_a_ratio_outside_of_the_bounds_is_masked_on_both_sides() -> None:
    data = tokens(1, missing=False)
    number = data["logp"].numel()
    for shift, masked in ((math.log(5.1), number), (math.log(0.49), number), (0.1, 0)):
        shifted = {**data, "logp_behaviour": data["logp"] - shift, "mask": torch.ones(number) / 9}
        loss, stats = OBJECTIVES["reinforce_tracker"](OPTIONS)(*(shifted[n] for n in NAMES))
        assert float(stats["masked"]) == masked
        assert (float(loss) == 0.0) is (masked > 0)


def test_every_trajectory_weighs_the_same() -> None:
    trajectories = torch.tensor([3, 3, 3, 3, 9, 9, 4])
    trained = torch.tensor([1, 1, 0, 1, 1, 0, 0]).bool()
    weights = weights_of(trained, trajectories)
    assert weights.tolist() == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6, 1 / 2, 0, 0])
    assert weights_of(torch.zeros(3).bool(), torch.tensor([1, 2, 3])).tolist() == [0, 0, 0]


def test_summary_of_equal_policies() -> None:
    data = tokens(4, missing=False)
    data["logp_behaviour"] = data["logp"].clone()
    _, stats = OBJECTIVES["reinforce_tracker"](OPTIONS)(*(data[n] for n in NAMES))
    found = summary(stats)
    assert found["ess"] == pytest.approx(1.0)
    assert found["ratio_mean"] == pytest.approx(1.0)
    assert (found["k3"], found["masked_share"]) == (0.0, 0.0)
    assert summary({}) == {**dict.fromkeys(found, 0.0)}
