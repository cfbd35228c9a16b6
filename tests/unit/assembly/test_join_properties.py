"""Whatever the order, the copies and the restarts: the same events make the same conclusion."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.atdp.internal import Sample
from schemas.atdp.types import Outcome, Reward, RewardKind, Step
from schemas.clock import to_us
from schemas.settings import AssemblySettings
from streams.assembly.join import Conclusion, Rules, absorb, conclude
from streams.assembly.policies import policy_named
from streams.assembly.state import RowKind, Trajectory, dump, load
from tests.assembly_events import TENANT, TRAJECTORY, Event, Run, at, end, reward, step, tick

RULES = Rules(policy=policy_named("latest_final/1"), idle_us=60_000_000)
LATE = tick(1_000_000)

steps = st.builds(
    lambda index, epoch, parent, attempt, outcome, version, ended: step(
        index,
        replay_epoch=epoch,
        attempt_of=attempt,
        outcome=outcome,
        policy_version=version,
        ended_at=at(ended),
        **({"parent": parent} if parent else {}),
    ),
    st.integers(0, 4),
    st.integers(0, 1),
    st.sampled_from([None, None, None, "s-0", "s-unseen"]),
    st.sampled_from([None, None, None, "s-0", "s-3"]),
    st.sampled_from([Outcome.COMPLETE, Outcome.COMPLETE, Outcome.TIMEOUT]),
    st.sampled_from([None, 1, 2]),
    st.integers(0, 300),
)
rewards = st.builds(
    lambda number, value, revision, kind, retracted, final, rated, occurred, digest: reward(
        number,
        value,
        revision=revision,
        kind=kind,
        retracted=retracted,
        final=final,
        step_id=rated,
        occurred_at=at(occurred),
        digest=digest,
    ),
    st.integers(1, 3),
    st.sampled_from([0.0, 1.0, True, None]),
    st.integers(1, 3),
    st.sampled_from([RewardKind.SCALAR, RewardKind.SCALAR, RewardKind.CRITIQUE]),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.sampled_from([None, "s-1", "s-3", "s-unseen"]),
    st.integers(0, 300),
    st.sampled_from(["a", "b"]),
)
ends = st.builds(end, st.integers(0, 300))
ticks = st.builds(tick, st.integers(0, 500))
events = st.lists(st.one_of(steps, steps, rewards, rewards, ends), max_size=12)


def _join(arrivals: list[tuple[int, Event]]) -> Conclusion:
    trajectory = Trajectory(TENANT, TRAJECTORY)
    for offset, event in arrivals:
        assert not isinstance(event, type(LATE))
        trajectory = absorb(trajectory, event, replayed=False, at=(0, offset))
    return conclude(trajectory, to_us(LATE.at), RULES)


def _through_the_table(arrivals: list[tuple[int, Event]]) -> Conclusion:
    table: dict[str, bytes] = {}
    trajectory = Trajectory(TENANT, TRAJECTORY)
    for offset, event in arrivals:
        trajectory = absorb(trajectory, event, replayed=False, at=(0, offset))
        table.update(dump("k", trajectory, 0, 0))
        trajectory = load("k", table["k"], table.get)
    return conclude(trajectory, to_us(LATE.at), RULES)


@given(events, st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_the_conclusion_is_a_function_of_the_set_of_records(arrivals, random):
    records = list(enumerate(arrivals))
    again = records + random.sample(records, len(records) // 2)
    random.shuffle(again)
    expected = _join(records)
    assert _join(again) == expected
    assert _through_the_table(again) == expected
    for sample in expected.samples:
        named = [arrivals[ref.offset] for ref in sample.step_refs]
        assert [step.step_id for step in named] == list(sample.step_ids)


@given(events, st.lists(ticks, max_size=4), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_the_processor_said_last_does_not_depend_on_order_or_restarts(
    arrivals, times, random, settles_at_once
):
    rules = AssemblySettings(idle_seconds=60, settle_seconds=0 if settles_at_once else 20)
    expected = _join(list(enumerate(arrivals)))
    said = []
    for _ in range(2):
        mixed = [*arrivals, *random.sample(arrivals, len(arrivals) // 2), *times]
        random.shuffle(mixed)
        run = Run(rules)
        for event in [*mixed, LATE, tick(1_000_100)]:
            if random.random() < 0.2:
                run.restart()
            run.see(event)
        said.append(run)
    for run in said:
        summary, sample = run.final
        assert summary == (expected.summary if arrivals else None)
        rated = [sample for sample in expected.samples if sample.signal is None]
        newest = {s.rewards[0].reward_id: _anywhere(s) for s in run.samples if s.signal is not None}
        for signal in expected.samples[len(rated) :]:
            assert newest[signal.rewards[0].reward_id] == _anywhere(signal)
        if rated:
            assert _anywhere(sample) == _anywhere(rated[0])
            named = [run.log[topics.STEPS][ref.offset] for ref in sample.step_refs]
            assert [step.step_id for step in named] == list(sample.step_ids)


def _anywhere(sample: Sample) -> Sample:
    """Where records lie depends on the order in which they came."""
    return replace(sample, step_refs=(), signal_refs=())


@given(events, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_one_sample_id_stands_for_one_content(arrivals, random):
    mixed = [*arrivals, tick(400)]
    random.shuffle(mixed)
    run = Run().see(*mixed, LATE)
    content = {}
    for sample in run.samples:
        said = (sample.step_ids, sample.rewards, sample.reward_policy, sample.signal)
        assert content.setdefault(sample.sample_id, said) == said
    assert len(set(content.values())) == len(content)


@given(steps, st.integers(2, 9))
def test_a_copy_of_a_higher_epoch_supersedes(made: Step, epoch):
    newer = replace(made, replay_epoch=epoch, outcome=Outcome.UPSTREAM_ERROR)
    records = [(0, made), (1, newer)]
    assert _join(records).summary.outcome == Outcome.UPSTREAM_ERROR
    assert _join(records[::-1]) == _join(records)


@given(rewards)
def test_equal_revisions_fall_to_the_later_judgement(made: Reward):
    earlier = replace(made, value=0.25, kind=RewardKind.SCALAR, step_id=None, retracted=False)
    later = replace(earlier, value=0.75, occurred_at=at(301), digest="0")
    for arrivals in ([earlier, later], [later, earlier]):
        assert _join(list(enumerate(arrivals))).summary.reward == 0.75
    same_time = replace(earlier, value=0.5, digest="c")
    for arrivals in ([earlier, same_time], [same_time, earlier]):
        assert _join(list(enumerate(arrivals))).summary.reward == 0.5


def test_rows_of_the_table_say_what_they_are():
    table = dict(dump("k", Trajectory(TENANT, TRAJECTORY), 3, 17))
    assert table["k"][:2] == bytes([1, RowKind.HEAD])
