"""Who gets which advantage; late, revised and retracted rewards to the number."""

from dataclasses import replace

import numpy as np
import pytest

from schemas.atdp.training import SequenceKind
from trainer.advantage import Baselines
from trainer.credit import LeftOut, Rules, give_credit
from trainer.examples import Example
from trainer.ledger import MAX_SAMPLES, Ledger

RULES = Rules("reinforce_tracker", deviation_floor=0.1)


def example(sample_id: str, reward: float | None, **given: object) -> Example:
    made = Example(
        sample_id=sample_id, revision=1, trajectory=f"acme/{sample_id}", task="acme/t",
        kind=SequenceKind.POLICY_GRADIENT, reward=reward, replaces=None, replaced_reward=None,
        token_ids=np.array([1, 2, 3]), positions=np.array([1, 2]), behaviour=np.zeros(2),
        versions=np.zeros(2, np.int64), turns=np.zeros(2, np.int64), approximate=np.zeros(2, bool),
    )  # fmt: skip
    return replace(made, **given)  # type: ignore[arg-type]


def fresh() -> tuple[Ledger, Baselines]:
    return Ledger(), Baselines(binary=True, memory=64.0)


def test_rewards_are_compared_with_what_was_expected_and_whitened() -> None:
    ledger, baselines = fresh()
    found = give_credit(
        [example("a", 1.0), example("b", 0.0), example("c", 0.0), example("d", 0.0)],
        1, ledger, baselines, RULES,
    )  # fmt: skip
    deviation = 0.75**0.5 / 2
    assert found.advantages == pytest.approx([0.75 / deviation] + 3 * [-0.25 / deviation])
    assert found.rewards == (1.0, 0.0, 0.0, 0.0)
    assert baselines.value("acme/t") == pytest.approx(2 / 6)


def test_a_sample_of_several_sequences_counts_once_and_all_of_it_is_credited() -> None:
    ledger, baselines = fresh()
    found = give_credit(
        [example("a", 1.0), example("a", 1.0), example("b", 0.0)], 1, ledger, baselines, RULES
    )
    assert found.advantages == pytest.approx([1.0, 1.0, -1.0])
    assert found.rewards == (1.0, 0.0)
    assert baselines.value("acme/t") == pytest.approx(0.5)


def test_a_sample_is_consumed_once() -> None:
    ledger, baselines = fresh()
    give_credit([example("a", 1.0)], 1, ledger, baselines, RULES)
    before = baselines.state()
    found = give_credit([example("a", 1.0)], 2, ledger, baselines, RULES)
    assert (found.examples, found.left_out) == ((), {LeftOut.TRAINED_BEFORE: 1})
    assert baselines.state() == before


def corrected(change_to: float, *, step: int, rules: Rules = RULES) -> tuple[object, Baselines]:
    """What a later reward for a sample that was trained at step 1 comes to."""
    ledger, baselines = fresh()
    give_credit([example("a", 0.0), example("b", 1.0)], 1, ledger, baselines, rules)
    late = example("a2", change_to, revision=2, replaces="a", replaced_reward=0.0)
    found = give_credit(
        [late, example("c", 1.0), example("d", 0.0)], step, ledger, baselines, rules
    )
    return found, baselines


def test_a_large_and_early_correction_trains_the_difference() -> None:
    found, baselines = corrected(1.0, step=2)
    assert [e.sample_id for e in found.examples] == ["a2", "c", "d"]  # type: ignore[attr-defined]
    # c and d deviate by one half; so the difference of one whole counts twice as much.
    assert found.advantages == pytest.approx([2.0, 1.0, -1.0])  # type: ignore[attr-defined]
    # Successes a2, b, c of four rewards, with the first two pseudo-counts.
    assert baselines.value("acme/t") == pytest.approx((1 + 3) / (2 + 4))


@pytest.mark.parametrize(
    ("reward", "step", "reason"),
    [(0.2, 2, LeftOut.SMALL_CHANGE), (1.0, 52, LeftOut.LATE_CHANGE)],
)
def test_a_small_or_late_correction_moves_the_baseline_alone(
    reward: float, step: int, reason: LeftOut
) -> None:
    found, baselines = corrected(reward, step=step)
    assert [e.sample_id for e in found.examples] == ["c", "d"]  # type: ignore[attr-defined]
    assert found.left_out == {reason: 1}  # type: ignore[attr-defined]
    assert baselines.value("acme/t") == pytest.approx((1 + 1 + reward + 1) / (2 + 4))


def test_a_success_that_was_none_is_unlearned_by_the_difference() -> None:
    ledger, baselines = fresh()
    give_credit([example("a", 1.0), example("b", 1.0)], 1, ledger, baselines, RULES)
    late = example("a2", 0.25, revision=2, replaces="a", replaced_reward=1.0)
    found = give_credit([late, example("c", 1.0), example("d", 0.0)], 2, ledger, baselines, RULES)
    assert found.advantages == pytest.approx([-0.75 / 0.5, 1.0, -1.0])
    # Rewards a2, b, c, d of 0.25, 1, 1 and 0, with the first two pseudo-counts.
    assert baselines.value("acme/t") == pytest.approx((1 + 2.25) / (2 + 4))


def test_a_correction_of_what_was_never_trained_is_a_sample_like_others() -> None:
    ledger, baselines = fresh()
    late = example("a2", 1.0, revision=2, replaces="a", replaced_reward=0.0)
    found = give_credit([late, example("b", 0.0)], 1, ledger, baselines, RULES)
    assert found.advantages == pytest.approx([1.0, -1.0])


def test_a_retraction_trains_nothing_and_takes_the_reward_back() -> None:
    ledger, baselines = fresh()
    give_credit([example("a", 1.0)], 1, ledger, baselines, RULES)
    gone = example("a2", None, kind=SequenceKind.RETRACTION, replaces="a", replaced_reward=1.0)
    found = give_credit([gone], 2, ledger, baselines, RULES)
    assert (found.examples, found.left_out) == ((), {LeftOut.RETRACTED: 1})
    # A success of 2/3 expected was one of 1: what is expected falls by a third of one reward.
    assert baselines.value("acme/t") == pytest.approx((2 - 1 / 3) / 3)


def test_a_demonstration_has_an_advantage_of_one_and_no_baseline() -> None:
    ledger, baselines = fresh()
    shown = example("a", None, kind=SequenceKind.SUPERVISED)
    found = give_credit([shown, example("b", 1.0)], 1, ledger, baselines, RULES)
    assert found.advantages[0] == 1.0
    assert found.rewards == (1.0,)


def test_singletons_have_no_advantage_within_groups_and_rewards_filter_by_themselves() -> None:
    batch = [example("a", 1.0, task="x"), example("b", 0.0, task="y")]
    for objective, expected in (("grpo", [0.0, 0.0]), ("supervised", [1.0, 0.0])):
        found = give_credit(batch, 1, *fresh(), Rules(objective))
        assert list(found.advantages) == expected


def test_the_ledger_forgets_the_oldest() -> None:
    ledger = Ledger()
    for number in range(MAX_SAMPLES + 1):
        ledger.add(str(number), 1, 1)
    assert len(ledger) == MAX_SAMPLES
    assert not ledger.has("0", 1)
    assert ledger.has("1", 1)
    assert not ledger.has("1", 2)
