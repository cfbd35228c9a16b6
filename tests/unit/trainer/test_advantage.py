"""Baselines and advantages, to the number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantage import MAX_KEYS, Baselines, Beta, Running, in_groups, whitened

rewards = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def test_a_success_rate_is_tracked_and_old_rewards_fade() -> None:
    tracker = Beta.starting(memory=8.0)
    assert tracker.value == 0.5
    assert tracker.scored(1.0).value == pytest.approx(2 / 3)
    for _ in range(50):
        tracker = tracker.scored(1.0)
    assert tracker.value > 0.99
    assert tracker.successes + tracker.failures == pytest.approx(8.0)
    assert tracker.scored(0.0).value == pytest.approx(8 / 9, abs=0.01)


@given(rewards)
def test_a_success_rate_stays_within_0_and_1(values: list[float]) -> None:
    tracker = Beta.starting(memory=5.0)
    for value in values:
        tracker = tracker.scored(value)
        assert 0.0 <= tracker.value <= 1.0


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40))
def test_a_running_mean_is_the_mean_while_nothing_is_forgotten(values: list[float]) -> None:
    tracker = Running.starting(memory=1_000.0)
    for value in values:
        tracker = tracker.scored(value)
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    assert tracker.value == pytest.approx(mean, abs=1e-6)
    assert tracker.variance == pytest.approx(variance, abs=1e-5)


def test_what_is_expected_is_looked_up_before_the_rewards_count() -> None:
    baselines = Baselines(binary=True, memory=16.0)
    assert baselines.score(["a", "a", "b"], [1.0, 1.0, 0.0]) == [0.5, 0.5, 0.5]
    assert baselines.value("a") == pytest.approx(3 / 4)
    assert baselines.value("b") == pytest.approx(1 / 3)
    assert baselines.value("never seen") == 0.5


def test_a_corrected_reward_moves_the_baseline_to_where_it_would_be() -> None:
    wrong, right = (Baselines(binary=True, memory=16.0) for _ in range(2))
    wrong.score(["a", "a"], [1.0, 0.0])
    right.score(["a", "a"], [1.0, 1.0])
    wrong.correct("a", 1.0)
    assert wrong.value("a") == pytest.approx(right.value("a"))
    wrong.correct("never seen", 1.0)
    assert wrong.value("never seen") == 0.5


def test_a_corrected_reward_moves_a_running_mean_by_its_share() -> None:
    baselines = Baselines(binary=False, memory=100.0)
    baselines.score(["a"] * 4, [1.0, 2.0, 3.0, 4.0])
    baselines.correct("a", -2.0)
    assert baselines.value("a") == pytest.approx(2.0)


@pytest.mark.parametrize("binary", [True, False])
def test_state_comes_back(binary: bool) -> None:
    one, other = (Baselines(binary=binary, memory=16.0) for _ in range(2))
    one.score(["a", "b", "a"], [1.0, 0.0, 1.0])
    other.restore(one.state())
    assert other.state() == one.state()
    assert other.score(["a"], [0.0]) == one.score(["a"], [0.0])
    assert other.state() == one.state()


def test_only_so_many_tasks_are_remembered_and_the_idle_ones_go_first() -> None:
    baselines = Baselines(binary=True, memory=16.0)
    baselines.score(["kept", "lost"], [1.0, 1.0])
    baselines.score([str(i) for i in range(MAX_KEYS - 2)], [1.0] * (MAX_KEYS - 2))
    baselines.score(["kept", "new"], [1.0, 1.0])
    assert baselines.value("lost") == 0.5
    assert baselines.value("kept") > 0.7


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_whitened_advantages_have_mean_0_and_deviation_of_at_most_1(values: list[float]) -> None:
    found, deviation = whitened(values, floor=0.1)
    assert sum(found) == pytest.approx(0.0, abs=1e-6)
    assert sum(a * a for a in found) / len(found) <= 1.0 + 1e-6
    assert deviation >= 0.1


def test_a_batch_without_differences_becomes_zeros_and_not_noise() -> None:
    assert whitened([0.3] * 5, floor=0.1)[0] == pytest.approx([0.0] * 5)
    tiny, deviation = whitened([0.3, 0.3 + 1e-9], floor=0.1)
    assert max(map(abs, tiny)) < 1e-7
    assert deviation == 0.1
    assert whitened([], floor=0.1) == ([], 0.1)


def test_one_trajectory_a_task_has_an_advantage_here_and_none_within_groups() -> None:
    """The reason for tracked baselines: singleton traffic teaches group methods nothing."""
    keys, values = [f"task {i}" for i in range(8)], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert in_groups(values, keys) == [0.0] * 8
    baselines = Baselines(binary=True, memory=16.0)
    expected = baselines.score(keys, values)
    found, _ = whitened([r - b for r, b in zip(values, expected, strict=True)], floor=0.1)
    assert found == pytest.approx([1, -1, -1, 1, 1, -1, 1, -1])


def test_groups_are_normalised_each_by_itself() -> None:
    assert in_groups([1.0, 0.0, 5.0, 5.0], ["a", "a", "b", "b"]) == pytest.approx([1, -1, 0, 0])


def test_a_memory_of_less_than_one_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Baselines(binary=True, memory=0.5)
