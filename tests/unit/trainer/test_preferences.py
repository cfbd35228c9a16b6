"""Demonstrations and preferences: text becomes tokens, pairs are learned by DPO."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prometheus_client import CollectorRegistry

from schemas.atdp.training import SequenceKind, TrainedSpan, TrainingSequence
from schemas.errors import PermanentError
from schemas.settings import TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from tests.unit.trainer.batches import (
    POLICY,
    VOCABULARY,
    load,
    make_model,
    microbatch,
    new_bus,
    put,
    some_examples,
)
from trainer.examples import Example, examples_of
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.policy import Policy
from trainer.preferences import Preferences, dpo, pairs_of
from trainer.sentinels import Bounds


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def encode(text: str) -> list[int]:
    """Words are token ids, as the test writes them; 1 ends a turn."""
    return [*(int(word) for word in text.split()), 1]


def told(kind: SequenceKind, number: int = 0, answer: str = "7 8 9", **given: Any) -> Any:
    """A demonstration or a preference as batching sends it: the prompt is 4 5, the answer 6 10."""
    is_pair = kind is SequenceKind.PREFERENCE
    tokens = (4 + number % 5, 5, 6, 10) if is_pair else (4 + number % 5, 5)
    made = TrainingSequence(
        sample_id=f"sample-{number}", tenant_id="acme", trajectory_id=f"t-{number}", kind=kind,
        token_ids=tokens, answer=answer,
        trained=(TrainedSpan(first=2, end=len(tokens), step_id="s"),),
    )  # fmt: skip
    return replace(made, **given)


def made(*sequences: TrainingSequence, max_length: int = 64) -> list[Example]:
    return examples_of(microbatch([*sequences]), VOCABULARY, max_length, encode)


def learner(model: Path, **settings: Any) -> Learner:
    own = TrainerSettings.model_validate({"learning_rate": 1e-3} | settings)
    return Learner(load(model), own, Bounds(), load(model))


def test_a_demonstration_is_its_prompt_and_its_text_and_the_end_of_the_turn() -> None:
    [example] = made(told(SequenceKind.DEMONSTRATION))
    assert example.kind is SequenceKind.SUPERVISED
    assert example.token_ids.tolist() == [4, 5, 7, 8, 9, 1]
    assert example.positions.tolist() == [2, 3, 4, 5]
    assert np.isnan(example.behaviour).all()


@pytest.mark.parametrize("is_better", [True, False])
def test_a_preference_is_two_answers_to_one_prompt(is_better: bool) -> None:
    [pair] = pairs_of(made(told(SequenceKind.PREFERENCE, answer_is_better=is_better)))
    text, given = (pair.better, pair.worse) if is_better else (pair.worse, pair.better)
    assert text.token_ids.tolist() == [4, 5, 7, 8, 9, 1]
    assert given.token_ids.tolist() == [4, 5, 6, 10]


def test_an_answer_that_is_too_long_is_left_out_and_counted_and_its_batch_is_not(
    tmp_path: Path,
) -> None:
    bus, registry = new_bus(), CollectorRegistry()
    long = told(SequenceKind.DEMONSTRATION, 1, " ".join(["7"] * 70))
    put(bus, microbatch([told(SequenceKind.DEMONSTRATION), long]))
    intake = Intake(
        bus, BlobStore(tmp_path.as_uri()), Limits(POLICY, VOCABULARY, 64), None, Metrics(registry),
        encode=encode,
    )  # fmt: skip
    taken = intake.poll(1.0)
    assert taken is not None
    assert [example.sample_id for example in taken.examples] == ["acme/sample-0"]
    left_out = registry.get_sample_value(
        "headrace_trainer_left_out_total", {"reason": "answer_too_long"}
    )
    assert left_out == 1.0


@pytest.mark.parametrize(
    "broken",
    [
        {"answer": None},
        {"trained": ()},
        {"answer": "99"},
        {"token_ids": (4, 99, 6, 10)},
    ],
)
def test_what_cannot_be_one_is_poison(broken: dict[str, Any]) -> None:
    with pytest.raises(PermanentError):
        made(replace(told(SequenceKind.PREFERENCE), **broken))


# --- the loss ---------------------------------------------------------------------------------


def numbers(seed: int, num_pairs: int = 6) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    found = [-4.0 + torch.randn(num_pairs, generator=random, dtype=torch.float64) for _ in range(4)]
    weight = torch.rand(num_pairs, generator=random, dtype=torch.float64)
    return [*found, weight]


def gradients(seed: int, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    better, worse, *rest = numbers(seed)
    better, worse = better.requires_grad_(), worse.requires_grad_()
    dpo(better, worse, *rest, beta).backward()  # type: ignore[arg-type, no-untyped-call, misc]
    assert better.grad is not None
    assert worse.grad is not None
    return better.grad, worse.grad


@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_of_finite_differences(seed: int) -> None:
    beta, step = 0.7, 1e-6
    for place, found in enumerate(gradients(seed, beta)):
        for index in range(found.numel()):
            losses = []
            for sign in (1, -1):
                given = numbers(seed)
                given[place][index] += sign * step
                losses.append(float(dpo(*given, beta)))
            quotient = (losses[0] - losses[1]) / (2 * step)
            assert float(found[index]) == pytest.approx(quotient, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_of_choosing_between_two(seed: int) -> None:
    """The paper's other reading: the cross-entropy of a choice by scores of beta * log-ratio."""
    beta = 0.7
    better, worse, better_before, worse_before, weight = numbers(seed)
    better, worse = better.requires_grad_(), worse.requires_grad_()
    scores = beta * torch.stack([better - better_before, worse - worse_before], 1)
    first = torch.zeros(len(weight), dtype=torch.long)
    losses = torch.nn.functional.cross_entropy(scores, first, reduction="none")
    (weight * losses).sum().backward()  # type: ignore[no-untyped-call]
    for found, expected in zip(gradients(seed, beta), (better.grad, worse.grad), strict=True):
        torch.testing.assert_close(found, expected)


def test_how_pairs_are_put_together_does_not_matter(model: Path) -> None:
    sequences = [told(SequenceKind.PREFERENCE, n, " ".join(["7"] * (1 + n))) for n in range(5)]
    pairs = pairs_of(made(*sequences))
    found = []
    for max_tokens in (1, 40, 10_000):
        policy: Policy = load(model)
        Preferences(policy, lambda: load(model), 0.1, max_tokens).add_gradient(pairs, 0.2)
        found.append({n: p.grad for n, p in policy.parameters().items()})
    for other in found[1:]:
        for name, grad in found[0].items():
            torch.testing.assert_close(grad, other[name], rtol=1e-4, atol=1e-6)


# --- in a step --------------------------------------------------------------------------------


def margin(policy: Policy, example_pairs: Any) -> float:
    with torch.no_grad():
        sums = [
            float(policy.figures([pair.better], 1.0).logp.sum())
            - float(policy.figures([pair.worse], 1.0).logp.sum())
            for pair in example_pairs
        ]
    return sum(sums)


def test_preferences_alone_make_a_step_that_prefers(model: Path) -> None:
    one = learner(model)
    examples = made(*(told(SequenceKind.PREFERENCE, n) for n in range(6)))
    before = margin(one.policy, pairs_of(examples))
    step = one.learn(examples, 1)
    assert step.alarm is None
    assert (step.figures["num_pairs"], step.figures["num_tokens"]) == (6.0, 36.0)
    assert margin(one.policy, pairs_of(examples)) > before


def test_the_first_step_starts_where_both_are_as_likely_as_at_first(model: Path) -> None:
    one = learner(model)
    step = one.learn(made(*(told(SequenceKind.PREFERENCE, n) for n in range(6))), 1)
    assert step.figures["loss"] == pytest.approx(float(torch.tensor(2.0).log()), rel=1e-5)


def test_a_preference_is_consumed_once(model: Path) -> None:
    one = learner(model)
    examples = made(told(SequenceKind.PREFERENCE))
    one.learn(examples, 1)
    again = one.learn(examples, 2)
    assert again.left_out == {"trained_before": 1}
    assert again.figures["num_pairs"] == 0.0


def test_a_pair_behind_changed_text_is_learned_only_where_that_is_allowed(model: Path) -> None:
    span = TrainedSpan(first=2, end=4, step_id="s", approximate=True)
    examples = made(told(SequenceKind.PREFERENCE, trained=(span,)))
    assert learner(model).learn(examples, 1).figures["num_pairs"] == 0.0
    allowed = learner(model, train_approximate=True).learn(examples, 1)
    assert allowed.figures["num_pairs"] == 1.0


def test_rewards_pairs_and_demonstrations_weigh_the_same_each(model: Path) -> None:
    one = learner(model)
    rated = some_examples(one.policy, 6)
    shown = made(*(told(SequenceKind.DEMONSTRATION, n + 10) for n in range(2)))
    compared = made(*(told(SequenceKind.PREFERENCE, n + 20) for n in range(2)))
    step = one.learn([*rated, *shown, *compared], 1)
    assert step.alarm is None
    assert (step.figures["num_sequences"], step.figures["num_pairs"]) == (8.0, 2.0)


def test_many_demonstrations_are_no_small_sample_of_the_policy(model: Path) -> None:
    """They have no ratio to a behaviour, so they say nothing of the effective sample size."""
    one = learner(model)
    rated = some_examples(one.policy, 2)
    shown = made(*(told(SequenceKind.DEMONSTRATION, n + 10) for n in range(30)))
    step = one.learn([*rated, *shown], 1)
    assert step.alarm is None
    assert step.figures["ess"] == pytest.approx(1.0, abs=0.01)
