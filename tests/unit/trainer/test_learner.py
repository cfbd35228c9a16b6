"""A step: what may not matter does not, and what is learned is learned."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from schemas.atdp.training import SequenceKind, TrainedSpan
from schemas.errors import ConfigError
from schemas.settings import TrainerSettings
from tests.unit.trainer.batches import (
    VOCABULARY,
    load,
    make_model,
    microbatch,
    sequence,
    some_examples,
    with_logprobs,
)
from trainer.examples import Example, examples_of
from trainer.learner import Learner, Step
from trainer.policy import Policy, in_parts
from trainer.sentinels import Alarm, Bounds


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def learner(model: Path, bounds: Bounds | None = None, **settings: object) -> Learner:
    own = TrainerSettings.model_validate(
        {"learning_rate": 1e-3, "agreement_sequences": 4} | settings
    )
    policy = load(model)
    anchor = None if own.anchor == "none" else load(model)
    return Learner(policy, own, bounds or Bounds(), anchor)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in learner.policy.parameters().items()}


def gradients(learner: Learner, examples: list[Example]) -> dict[str, torch.Tensor]:
    """What the optimizer is given in a step."""
    found: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        found.update(
            {
                n: p.grad.clone()
                for n, p in learner.policy.parameters().items()
                if p.grad is not None
            }
        )

    learner.optimizer.register_step_pre_hook(keep)
    assert learner.learn(examples, 1).alarm is None
    return found


@pytest.mark.parametrize("objective", ["reinforce_tracker", "decoupled_ppo", "supervised"])
def test_split_into_micro_batches_and_padding_change_nothing(model: Path, objective: str) -> None:
    examples = some_examples(load(model), 12)
    whole = gradients(learner(model, objective=objective, micro_batch_tokens=10_000), examples)
    split = gradients(learner(model, objective=objective, micro_batch_tokens=1), examples)
    backwards = gradients(
        learner(model, objective=objective, micro_batch_tokens=20), examples[::-1]
    )
    for name in whole:
        torch.testing.assert_close(split[name], whole[name], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(backwards[name], whole[name], rtol=1e-4, atol=1e-6)


def test_parts_hold_everything_once_and_are_not_too_large(model: Path) -> None:
    examples = some_examples(load(model), 20)
    for limit in (1, 17, 40, 10_000):
        parts = list(in_parts(examples, limit))
        assert sorted(i for part in parts for i in part) == list(range(20))
        for part in parts:
            longest = max(examples[i].token_ids.size for i in part)
            assert len(part) == 1 or longest * len(part) <= limit


def test_log_probabilities_are_those_of_a_plain_forward_pass(model: Path) -> None:
    policy = load(model)
    examples = some_examples(policy, 5)
    found = policy.figures(examples, 1.0)
    expected = []
    for example in examples:
        logits = policy.model(torch.from_numpy(example.token_ids)[None]).logits[0]
        scores = logits.float().log_softmax(-1)
        expected += [float(scores[p - 1, example.token_ids[p]].detach()) for p in example.positions]
    assert found.logp.tolist() == pytest.approx(expected, abs=1e-5)
    assert (found.entropy > 0).all()
    assert (found.entropy <= math.log(VOCABULARY) + 1e-5).all()


def test_weights_survive_the_way_out_and_back(model: Path) -> None:
    policy, other = load(model), load(make_model(model.parent / "other", seed=1))
    other.load_tensors(policy.tensors())
    for name, spec in policy.layout.items():
        assert (other.tensors()[name].bits == policy.tensors()[name].bits).all()
        assert spec == other.layout[name]


def toy(policy: Policy, number: int, seed: int) -> list[Example]:
    """One answer of one token for each of several prompts; even tokens are right."""
    random = np.random.default_rng(seed)
    prompts = random.integers(4, VOCABULARY, (number, 2))
    made = []
    with torch.no_grad():
        logits = policy.model(torch.from_numpy(prompts)).logits[:, -1].float()
    chances = logits.softmax(-1).double().numpy()
    for row, prompt in enumerate(prompts):
        token = int(random.choice(VOCABULARY, p=chances[row] / chances[row].sum()))
        made.append(
            Example(
                sample_id=f"{seed}-{row}", revision=1, trajectory=f"acme/{seed}-{row}",
                task=f"acme/{seed}-{row}", kind=SequenceKind.POLICY_GRADIENT,
                reward=float(token % 2 == 0), replaces=None, replaced_reward=None,
                token_ids=np.array([*prompt, token]), positions=np.array([2]),
                behaviour=np.log(chances[row][[token]]), versions=np.zeros(1, np.int64),
                turns=np.zeros(1, np.int64), approximate=np.zeros(1, np.bool_),
            )
        )  # fmt: skip
    return made


def rewards(learner: Learner, num_steps: int) -> list[float]:
    found = []
    for step in range(num_steps):
        examples = toy(learner.policy, 64, step)
        found.append(float(np.mean([e.reward for e in examples])))
        learner.learn(examples, 0)
    return found


@pytest.mark.parametrize("objective", ["reinforce_tracker", "decoupled_ppo"])
def test_traffic_without_groups_teaches_a_toy_task(model: Path, objective: str) -> None:
    """Every task comes once. Here that is enough."""
    found = rewards(learner(model, objective=objective, learning_rate=3e-3), 25)
    assert np.mean(found[-5:]) - np.mean(found[:5]) > 0.25


def test_groups_of_one_teach_nothing_at_all(model: Path) -> None:
    """The same traffic under advantages normalised within groups: exactly the same weights."""
    one = learner(model, objective="grpo", learning_rate=3e-3)
    before = weights(one)
    steps = [one.learn(toy(one.policy, 64, seed), 0) for seed in range(3)]
    assert [step.alarm for step in steps] == [Alarm.ZERO_VARIANCE] * 3
    assert all(torch.equal(before[name], value) for name, value in weights(one).items())


def without_update(model: Path, examples: list[Example], **settings: object) -> Step:
    """A step that has to leave the weights as they were."""
    one = learner(model, **settings)
    one.agreement.keep(1, one.policy.tensors())
    before = weights(one)
    step = one.learn(examples, 1)
    assert step.alarm is not None
    assert all(torch.equal(before[name], value) for name, value in weights(one).items())
    return step


def test_equal_rewards_make_no_update(model: Path) -> None:
    examples = [replace(e, reward=1.0, task="t") for e in some_examples(load(model))]
    assert without_update(model, examples, kl=0.0).alarm is Alarm.ZERO_VARIANCE


def test_an_engine_that_computes_otherwise_stops_the_update(model: Path) -> None:
    examples = [replace(e, behaviour=e.behaviour - 0.3) for e in some_examples(load(model))]
    step = without_update(model, examples)
    assert step.alarm is Alarm.DISAGREEMENT
    expected = math.exp(0.3) - 1 - 0.3
    assert step.figures["agreement_k3"] == pytest.approx(expected, rel=0.05)


def test_an_engine_that_computes_the_same_agrees(model: Path) -> None:
    one = learner(model)
    one.agreement.keep(1, one.policy.tensors())
    step = one.learn(some_examples(one.policy), 1)
    assert step.alarm is None
    assert step.figures["agreement_k3"] < 1e-9


@pytest.mark.parametrize(
    ("shift", "every", "alarm"), [(4.0, 2, Alarm.MASKED), (6.0, 12, Alarm.SAMPLE_SIZE)]
)
def test_tokens_of_another_policy_stop_the_update(
    model: Path, shift: float, every: int, alarm: Alarm
) -> None:
    """Many outside of the bounds of the ratio; or a few that outweigh all others."""
    examples = [
        replace(e, behaviour=e.behaviour - shift * (i % every == 0), versions=e.versions + 1)
        for i, e in enumerate(some_examples(load(model)))
    ]
    assert without_update(model, examples).alarm is alarm


def test_stale_and_approximate_tokens_are_not_in_the_loss(model: Path) -> None:
    examples = some_examples(load(model))
    assert learner(model).learn(examples, 1).figures["num_tokens"] == sum(
        e.positions.size for e in examples
    )
    late = learner(model, max_version_lag=2)
    before = weights(late)
    assert late.learn(examples, 4).alarm is Alarm.NO_TOKENS
    assert all(torch.equal(before[name], value) for name, value in weights(late).items())
    marked = [replace(e, approximate=np.ones(e.positions.size, bool)) for e in examples]
    assert learner(model).learn(marked, 1).alarm is Alarm.NO_TOKENS
    assert learner(model, train_approximate=True).learn(marked, 1).figures["num_tokens"] > 0


def long_and_short(policy: Policy, number: int) -> tuple[list[Example], list[Example]]:
    """Answers of ten tokens, and the same cut off after the first."""
    random = np.random.default_rng(5)
    sequences = [
        sequence(
            n, random, token_ids=tuple(int(t) for t in random.integers(4, VOCABULARY, 12)),
            trained=(TrainedSpan(first=2, end=12, version=1, step_id=f"step-{n}"),),
        )
        for n in range(number)
    ]  # fmt: skip
    batch = microbatch(with_logprobs(policy, sequences))
    long = examples_of(batch, policy.vocabulary_size, policy.max_length)
    parts = {name: slice(1) for name in ("positions", "behaviour", "versions", "turns")}
    short = [
        replace(
            e, sample_id=f"{e.sample_id}-short", token_ids=e.token_ids[:3],
            approximate=e.approximate[:1], **{n: getattr(e, n)[cut] for n, cut in parts.items()},
        )
        for e in long
    ]  # fmt: skip
    return long, short


def test_answers_are_short_when_they_were_sampled_short_not_when_they_are_stale(
    model: Path,
) -> None:
    one = learner(model, Bounds(warmup_steps=1), max_version_lag=2, learning_rate=1e-6)
    long, short = long_and_short(one.policy, 12)
    assert one.learn(long, 1).alarm is None
    stale = [
        replace(e, sample_id=f"{e.sample_id}-stale",
                versions=np.where(np.arange(e.versions.size) == 0, 4, 1))
        for e in long
    ]  # fmt: skip
    step = one.learn(stale, 4)
    assert step.figures["num_tokens"] == len(stale)  # one of ten tokens of each
    assert step.figures["length"] == 10.0
    assert step.alarm is None
    assert one.learn(short, 1).alarm is Alarm.LENGTH


def test_demonstrations_are_learned_beside_rewards(model: Path) -> None:
    one = learner(model, learning_rate=1e-2)
    shown = [
        replace(e, kind=SequenceKind.SUPERVISED, reward=None, behaviour=e.behaviour * np.nan)
        for e in some_examples(one.policy, 4)
    ]
    before = one.policy.figures(shown, 1.0).logp.sum()
    step = one.learn([*shown, *some_examples(one.policy, 16, seed=3)][:16], 1)
    assert step.alarm is None
    assert float((one.policy.figures(shown, 1.0).logp.sum() - before).detach()) > 0


def test_a_checkpoint_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    one = learner(model)
    state = one.state()
    state["parameters"] = {"elsewhere": torch.zeros(1)}
    with pytest.raises(ConfigError, match="another model"):
        one.restore(state, 1)
