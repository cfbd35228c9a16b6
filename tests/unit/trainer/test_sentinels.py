"""Each sentinel fires on its fault, and only then."""

import math
from dataclasses import replace

import pytest

from trainer.sentinels import Alarm, Bounds, Figures, Sentinels

GOOD = Figures(
    num_tokens=320.0,
    ess=0.9,
    masked_share=0.01,
    agreement_k3=1e-4,
    advantage_deviation=0.5,
    gradient_norm=1.0,
    entropy=0.4,
    length=5.0,
    loss=-0.1,
)


def warmed(steps: int = 10) -> Sentinels:
    sentinels = Sentinels(Bounds())
    assert [sentinels.look(GOOD) for _ in range(steps)] == [None] * steps
    return sentinels


@pytest.mark.parametrize(
    ("alarm", "fault", "just_not"),
    [
        (Alarm.NO_TOKENS, {"num_tokens": 0.0}, {"num_tokens": 1.0}),
        (Alarm.NOT_FINITE, {"loss": math.nan}, {"loss": 1e6}),
        (Alarm.NOT_FINITE, {"gradient_norm": math.inf}, {"gradient_norm": 4.9}),
        (Alarm.NOT_FINITE, {"entropy": math.nan}, {"entropy": 3.0}),
        (Alarm.ZERO_VARIANCE, {"advantage_deviation": 0.0}, {"advantage_deviation": 1e-3}),
        (Alarm.DISAGREEMENT, {"agreement_k3": 0.011}, {"agreement_k3": 0.01}),
        (Alarm.DISAGREEMENT, {"agreement_k3": math.nan}, {"agreement_k3": None}),
        (Alarm.SAMPLE_SIZE, {"ess": 0.29}, {"ess": 0.3}),
        (Alarm.SAMPLE_SIZE, {"ess": 0.0}, {"ess": 0.0, "needs_behaviour": False}),
        (Alarm.MASKED, {"masked_share": 0.21}, {"masked_share": 0.2}),
        (Alarm.GRADIENT, {"gradient_norm": 5.1}, {"gradient_norm": 4.9}),
        (Alarm.ENTROPY, {"entropy": 0.007}, {"entropy": 0.009}),
        (Alarm.LENGTH, {"length": 0.9}, {"length": 1.1}),
    ],
)
def test_a_fault_and_what_is_just_none(
    alarm: Alarm, fault: dict[str, float], just_not: dict[str, float]
) -> None:
    assert warmed().look(replace(GOOD, **fault)) is alarm
    assert warmed().look(replace(GOOD, **just_not)) is None


def test_a_step_with_an_alarm_does_not_become_usual() -> None:
    sentinels = warmed()
    before = sentinels.state()
    assert sentinels.look(replace(GOOD, gradient_norm=100.0)) is Alarm.GRADIENT
    assert sentinels.state() == before


def test_a_slow_collapse_does_not_take_its_measure_along() -> None:
    sentinels, entropy, alarms = warmed(), GOOD.entropy, []
    for _ in range(60):
        entropy *= 0.9
        alarms.append(sentinels.look(replace(GOOD, entropy=entropy)))
    assert alarms[:20] == [None] * 20
    assert alarms[-1] is Alarm.ENTROPY


def test_averages_are_not_believed_before_there_are_some_steps() -> None:
    sentinels = Sentinels(Bounds(warmup_steps=3))
    for norm in (1.0, 50.0, 1.0):
        assert sentinels.look(replace(GOOD, gradient_norm=norm)) is None
    assert sentinels.look(replace(GOOD, gradient_norm=100.0)) is Alarm.GRADIENT


@pytest.mark.parametrize(
    ("change", "elements", "alarm"),
    [(1e-3, 10, None), (0.0, 10, Alarm.NO_EFFECT), (1e-3, 0, Alarm.NO_EFFECT)],
)
def test_a_version_has_to_change_something(
    change: float, elements: int, alarm: Alarm | None
) -> None:
    assert Sentinels(Bounds()).look_after(change, elements) is alarm


def test_state_comes_back() -> None:
    one, other = warmed(), Sentinels(Bounds())
    other.restore(one.state())
    assert other.state() == one.state()
    assert other.look(replace(GOOD, gradient_norm=5.1)) is Alarm.GRADIENT
