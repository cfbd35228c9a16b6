"""Named cases of closing, branches, rewards that count, and reasons."""

from dataclasses import replace

import pytest

from schemas import topics
from schemas.atdp.types import Outcome, RewardKind, RewardStatus
from schemas.clock import to_us
from schemas.errors import ConfigError
from schemas.settings import AssemblySettings
from streams.assembly.join import Rules, absorb, conclude
from streams.assembly.policies import LABEL_SCORES, policy_named, score
from streams.assembly.samples import REASONS
from streams.assembly.state import Trajectory
from streams.runtime import ReplayMark
from tests.assembly_events import Run, at, end, reward, step, tick


def _closing(run: Run):
    summary, _ = run.final
    assert summary is not None
    return summary.closed_at, summary.close_reason


def test_it_closes_once_it_was_idle_in_event_time():
    run = Run().see(step(0), tick(61.9))
    assert _closing(run) == (None, None)
    run.see(tick(62))
    assert _closing(run) == (at(62), "idle")


def test_a_later_step_opens_what_was_idle():
    run = Run().see(step(0), tick(62), step(5))
    assert _closing(run) == (None, None)
    run.see(tick(112))
    assert _closing(run) == (at(112), "idle")


def test_the_earliest_of_end_final_reward_and_idleness_closes():
    run = Run().see(step(0), end(50), reward(1, final=True, occurred_at=at(55)))
    assert _closing(run) == (at(50), "event")
    run = Run().see(step(0), end(59), reward(1, final=True, occurred_at=at(55)))
    assert _closing(run) == (at(55), "final_reward")
    run.see(step(0, started_at=at(-30), ended_at=at(-20), replay_epoch=1), tick(40))
    assert _closing(run) == (at(40), "idle")


def test_a_correction_does_not_move_the_closing_of_a_final_reward():
    first = reward(1, final=True)
    run = Run().see(step(0), first, replace(first, revision=2, occurred_at=at(500), value=0.0))
    assert _closing(run) == (at(101), "final_reward")


def test_ticks_never_go_back():
    run = Run().see(step(0), tick(62), tick(10), step(0, replay_epoch=1))
    assert _closing(run) == (at(62), "idle")


def test_a_clock_that_is_set_back_in_a_conversation_costs_an_early_closing_and_no_step():
    """The gateway's clock goes back by an hour after the third step; the conversation goes on for
    longer than the idle time. What is closed meanwhile is said again with all there is."""
    run = Run().see(tick(0), *[step(i) for i in range(3)], reward(1, step_id="s-2"))
    for i in range(3, 12):
        set_back = {"started_at": at(10 * i - 3600), "ended_at": at(10 * i + 2 - 3600)}
        run.see(tick(10 * i), step(i, **set_back))
    run.see(tick(83), reward(2, step_id="s-11"), tick(300))
    summary, sample = run.final
    assert summary.num_steps == 12
    assert _closing(run) == (at(82), "idle")  # an hour ago is idle too: counted from the latest
    assert sample.step_ids == tuple(f"s-{i}" for i in range(12))
    assert len({sample.sample_id for sample in run.samples}) == len(run.samples)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (reward(1, True), 1.0),
        (reward(1, False), 0.0),
        (reward(1, 0.3), 0.3),
        (reward(1, None, kind=RewardKind.LABEL, label="Thumbs-Up"), 1.0),
        (reward(1, None, kind=RewardKind.LABEL, label="partially resolved"), 0.5),
        (reward(1, None, kind=RewardKind.LABEL, label="purple"), None),
        (reward(1, None, kind=RewardKind.CRITIQUE, text="…"), None),
        (reward(1, 1.0, kind=RewardKind.PREFERENCE), None),
    ],
)
def test_the_number_a_reward_stands_for(event, expected):
    assert score(event) == expected


def test_labels_are_written_as_they_are_looked_up():
    assert all(name == name.strip().lower().replace("-", "_") for name in LABEL_SCORES)


def test_a_final_reward_counts_before_later_provisional_ones():
    run = Run().see(tick(0), step(0), reward(2, 0.0), reward(1, 1.0, final=True))
    summary, sample = run.final
    assert (summary.reward, summary.reward_status) == (1.0, RewardStatus.FINAL)
    assert [ref.reward_id for ref in sample.rewards] == ["r-1"]
    assert summary.num_rewards == 2


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(ConfigError, match="latest_final/1"):
        policy_named("best/9")


def test_a_reward_of_a_step_takes_the_branch_of_that_step():
    fork = step(2, step_id="fork", parent="s-0", started_at=at(99), ended_at=at(99))
    events = [step(0), step(1), step(2), fork, end(200)]
    _, sample = Run().see(tick(0), *events, reward(1, step_id="s-2")).final
    assert sample.step_ids == ("s-0", "s-1", "s-2")
    _, sample = Run().see(tick(0), *events, reward(1)).final
    assert sample.step_ids == ("s-0", "fork")


def test_steps_without_parents_follow_their_order():
    events = [step(i, parent=None, lineage=replace(step(i).lineage, parent_step_id=None))
              for i in (2, 0, 1)]  # fmt: skip
    _, sample = Run().see(tick(0), *events, end(100), reward()).final
    assert sample.step_ids == ("s-0", "s-1", "s-2")
    assert sample.eligible


def test_a_reward_of_a_further_attempt_rates_the_step():
    attempt = step(1, step_id="again", attempt_of="s-1")
    run = Run().see(tick(0), step(0), step(1), attempt, end(100), reward(1, step_id="again"))
    summary, sample = run.final
    assert sample.step_ids == ("s-0", "s-1")
    assert summary.num_steps == 2


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([step(0), step(1, eligible=False), reward()], "not_permitted"),
        ([step(0, outcome=Outcome.CLIENT_ABORTED), reward()], "incomplete_step"),
        ([step(1), reward()], "missing_parent"),
        ([step(0), reward(retracted=True)], "reward_retracted"),
    ],
)
def test_why_a_sample_is_not_eligible(events, reason):
    _, sample = Run().see(tick(0), *events, end(100)).final
    assert sample.reasons == (reason,)
    assert not sample.eligible
    assert reason in REASONS


def test_a_whole_permitted_trajectory_is_eligible_and_names_its_versions():
    events = [step(0, policy_version=4), step(1, policy_version=6), end(100), reward()]
    summary, sample = Run().see(tick(0), *events).final
    assert sample.eligible
    assert (sample.oldest_policy_version, sample.newest_policy_version) == (4, 6)
    assert (summary.first_policy_version, summary.last_policy_version) == (4, 6)


def test_a_reward_of_a_step_never_seen_waits():
    run = Run().see(tick(0), reward(1, step_id="s-0"), end(50))
    summary, sample = run.final
    assert (summary.num_steps, summary.num_rewards, summary.reward) == (0, 1, None)
    assert sample is None
    run.see(step(0))
    assert run.final[0].reward == 1.0
    assert run.final[1].step_ids == ("s-0",)


def test_a_long_branch_becomes_several_samples():
    trajectory = Trajectory("acme", "t-1")
    steps = {s.step_id: s for s in _facts(4_500)}
    trajectory = replace(trajectory, steps=steps)
    trajectory = absorb(trajectory, reward(final=True), replayed=False)
    samples = conclude(trajectory, None, Rules(policy_named("latest_final/1"), 60)).samples
    assert [len(sample.step_ids) for sample in samples] == [2_000, 2_000, 500]
    assert len({sample.sample_id for sample in samples}) == 3


def _facts(number: int):
    made = absorb(Trajectory("acme", "t-1"), step(0), replayed=False).steps["s-0"]
    for index in range(number):
        parent = f"s-{index - 1}" if index else None
        yield replace(made, step_id=f"s-{index}", index=index, parent=parent)


def test_samples_wait_until_no_new_fact_came_for_a_while():
    run = Run(AssemblySettings(idle_seconds=60, settle_seconds=10))
    run.see(tick(1000), reward(final=True), step(0), step(1), tick(1005), step(2), tick(1012))
    assert run.samples == []
    run.see(tick(1015))
    assert [sample.step_ids for sample in run.samples] == [("s-0", "s-1", "s-2")]


def test_a_replay_marks_what_had_been_closed_before_it():
    committed = {(topic, 0): 2 for topic in (topics.STEPS, topics.REWARDS, topics.ENDS)}
    mark = ReplayMark(3, committed, at(100_000))
    run = Run(mark=mark).see(step(0), step(1), reward(), tick(200))
    summary, sample = run.final
    assert (summary.replay_epoch, sample.replay_epoch, sample.replayed) == (3, 3, True)
    run.see(step(2), tick(300))
    assert not run.final[1].replayed
    late = Run(mark=replace(mark, started_at=at(70))).see(step(0), reward(), tick(200))
    assert not late.final[1].replayed
    assert to_us(late.final[1].closed_at) > to_us(at(60))


def test_a_signal_without_a_number_is_a_sample_of_its_own():
    shown = reward(2, None, kind=RewardKind.DEMONSTRATION, text="so", step_id="s-1")
    run = Run().see(tick(0), step(0), step(1), step(2), reward(1, 1.0), shown, end(90))
    run.see(tick(300))
    told = [sample for sample in run.samples if sample.signal is not None]
    assert {sample.step_ids for sample in told} == {("s-0", "s-1")}
    assert len({sample.sample_id for sample in told}) == 1
    assert (told[0].signal, told[0].reward) == (RewardKind.DEMONSTRATION, None)
    assert run.log[topics.REWARDS][told[0].signal_refs[0].offset].reward_id == "r-2"
    assert run.final[1].step_ids == ("s-0", "s-1", "s-2")
    run.see(replace(shown, revision=2, retracted=True, occurred_at=at(200)), tick(600))
    assert run.samples[-1].reasons == ("reward_retracted",)
    assert run.samples[-1].rewards[0].revision == 2


def test_a_critique_alone_is_a_sample_without_a_number():
    run = Run().see(tick(0), step(0), reward(1, None, kind=RewardKind.CRITIQUE, text="…"), end(90))
    run.see(tick(300))
    said = {(s.signal, s.reward, s.sample_id) for s in run.samples}
    assert [row[:2] for row in said] == [(RewardKind.CRITIQUE, None)]
    assert run.final[0].reward is None
