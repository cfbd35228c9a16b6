"""Faults in a real step: each sentinel stops the update, keeps the weights, and learning goes on.
And what groups are for: several answers to one prompt."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.trainer.batches import make_model, some_examples
from tests.unit.trainer.test_learner import learner, toy, weights
from trainer.examples import Example
from trainer.learner import Learner
from trainer.policy import Policy
from trainer.sentinels import Alarm, Bounds

BOUNDS = Bounds(warmup_steps=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def fresh(policy: Policy, seed: int) -> list[Example]:
    """Traffic that the policy sampled just now."""
    return [
        replace(e, sample_id=f"{seed}/{e.sample_id}", trajectory=f"{seed}/{e.trajectory}")
        for e in some_examples(policy, 12, seed)
    ]


def scaled(factor: float) -> Callable[[Learner], None]:
    """What the last layer says, times a factor."""

    def break_it(one: Learner) -> None:
        with torch.no_grad():
            one.policy.model.model.norm.weight.mul_(factor)

    return break_it


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [(scaled(float("inf")), Alarm.NOT_FINITE), (scaled(2_000.0), Alarm.ENTROPY)],
)
def test_weights_that_broke_are_not_learned_from_and_not_made_worse(
    model: Path, break_it: Callable[[Learner], None], expected: Alarm
) -> None:
    bounds = replace(BOUNDS, gradient_factor=1e9, ess=0.0, masked_share=1.0)
    one = learner(model, bounds, kl=0.0, agreement_sequences=0)
    assert one.learn(fresh(one.policy, 1), 1).alarm is None
    examples = fresh(one.policy, 2)
    break_it(one)
    before = weights(one)
    assert one.learn(examples, 1).alarm is expected
    for name, now in weights(one).items():
        assert torch.equal(now.nan_to_num(), before[name].nan_to_num())


def test_a_gradient_far_above_the_usual_stops_the_update_and_the_next_one_is_made(
    model: Path,
) -> None:
    one = learner(model, BOUNDS, kl=0.0, agreement_sequences=0)
    assert one.learn(fresh(one.policy, 1), 1).alarm is None
    usual = one.sentinels.state()["norms"][0]
    one.sentinels.restore({**one.sentinels.state(), "norms": [usual / 100]})
    before = weights(one)
    assert one.learn(fresh(one.policy, 2), 1).alarm is Alarm.GRADIENT
    assert all(torch.equal(before[name], now) for name, now in weights(one).items())
    one.sentinels.restore({**one.sentinels.state(), "norms": [usual]})
    assert one.learn(fresh(one.policy, 3), 1).alarm is None


def test_an_update_without_effect_is_told(model: Path) -> None:
    one = learner(model, learning_rate=1e-30, agreement_sequences=0)
    assert one.learn(fresh(one.policy, 1), 1).alarm is Alarm.NO_EFFECT
    other = learner(model, learning_rate=1e-3, agreement_sequences=0)
    assert other.learn(fresh(other.policy, 1), 1).alarm is None


def grouped(policy: Policy, seed: int) -> list[Example]:
    """Sixteen prompts with four answers each, as a replay or an evaluation makes them."""
    once = toy(policy, 16, seed)
    prompts = np.array([e.token_ids[:2] for e in once])
    with torch.no_grad():
        logits = policy.model(torch.from_numpy(prompts)).logits[:, -1].double()
    chances, random = logits.softmax(-1).numpy(), np.random.default_rng(seed)
    made = []
    for row, example in enumerate(once):
        for number in range(4):
            token = int(random.choice(chances.shape[1], p=chances[row] / chances[row].sum()))
            name = f"{example.sample_id}-{number}"
            made.append(
                replace(
                    example, sample_id=name, trajectory=f"acme/{name}",
                    reward=float(token % 2 == 0), token_ids=np.array([*prompts[row], token]),
                    behaviour=np.log(chances[row][[token]]),
                )
            )  # fmt: skip
    return made


@pytest.mark.parametrize("objective", ["grpo", "gspo"])
def test_groups_teach_the_toy_task(model: Path, objective: str) -> None:
    one = learner(model, objective=objective, learning_rate=3e-3)
    found = []
    for seed in range(20):
        examples = grouped(one.policy, seed)
        found.append(float(np.mean([e.reward for e in examples])))
        one.learn(examples, 0)
    assert np.mean(found[-5:]) - np.mean(found[:5]) > 0.2


def test_a_policy_without_faults_has_no_alarm(model: Path) -> None:
    one = learner(model, BOUNDS, learning_rate=1e-4)
    alarms = []
    for seed in range(8):
        one.agreement.keep(seed, one.policy.tensors())
        examples = [
            replace(e, versions=np.full_like(e.versions, seed)) for e in fresh(one.policy, seed)
        ]
        alarms.append(one.learn(examples, seed).alarm)
    assert alarms == [None] * 8
