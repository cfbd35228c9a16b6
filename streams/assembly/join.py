"""The join: a set of events and a watermark → one summary and the samples that follow from it.

`absorb` adds an event to a trajectory's facts; it is commutative and idempotent, so facts are a
function of the set of events. `conclude` computes everything else from the facts, so it is one
too. Nothing here knows when an event arrived.

Closing: candidates are the earliest explicit end, the earliest final judgement, and the end of
the latest activity plus the idle time once the watermark has reached it. The earliest candidate
is `closed_at`. A step that comes later moves the idle candidate, which may open it again.

Which steps and rewards make a sample is said in `samples`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.atdp.internal import Sample, TrajectorySummary
from schemas.atdp.types import Outcome, Reward, Step, TrajectoryEnd
from schemas.clock import to_time, to_us
from streams.assembly.policies import RewardPolicy, score, status
from streams.assembly.samples import SIGNALS, Closing, Material, original, samples
from streams.assembly.state import F, RewardFacts, StepFacts, Trajectory, values

#: An idle closing this long before a replay was ordered had been seen by the processing before.
REPLAY_MARGIN_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What the join is told from outside the events."""

    policy: RewardPolicy
    idle_us: int
    epoch: int = 0
    #: When the replay of this epoch was ordered, None without one.
    replay_started_us: int | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the facts amount to at a watermark."""

    summary: TrajectorySummary
    samples: tuple[Sample, ...]


# --- events to facts --------------------------------------------------------------------------


def absorb(
    trajectory: Trajectory,
    event: Step | Reward | TrajectoryEnd,
    *,
    replayed: bool,
    at: tuple[int, int] | None = None,
) -> Trajectory:
    """The facts with `event` added; the same object when it says nothing new.

    `at` is partition and offset of its record. Of records that say the same the one with the lowest
    offset counts: all of them lie on one partition, so the others never change anything,
    in whatever order they are seen.
    """
    if isinstance(event, Step):
        facts = _step_facts(event, replayed=replayed)
        return _absorb_step(trajectory, _at(facts, at))
    if isinstance(event, Reward):
        rated = _reward_facts(event, replayed=replayed)
        return _absorb_reward(trajectory, _at(rated, at))
    return _absorb_end(trajectory, to_us(event.occurred_at), replayed=replayed)


def _at(facts: F, at: tuple[int, int] | None) -> F:
    partition, offset = at or (None, None)
    return replace(facts, partition=partition, offset=offset)


def _step_facts(step: Step, *, replayed: bool) -> StepFacts:
    model = step.model_version
    versions = [span.policy_version for span in model.spans]
    if model.policy_version is not None:
        versions.append(model.policy_version)
    started_us = to_us(step.started_at)
    return StepFacts(
        step_id=step.step_id,
        epoch=step.replay_epoch,
        started_us=started_us,
        ended_us=max(started_us, to_us(step.ended_at)) if step.ended_at else started_us,
        index=step.lineage.step_index,
        outcome=step.outcome.value,
        eligible=step.governance.training_eligible,
        replayed=replayed or step.replayed,
        parent=step.lineage.parent_step_id,
        attempt_of=step.lineage.attempt_of,
        policy_version=model.policy_version,
        oldest_version=min(versions, default=None),
        newest_version=max(versions, default=None),
        task_key=step.task_key,
        agent_id=step.agent_id,
    )


def _reward_facts(reward: Reward, *, replayed: bool) -> RewardFacts:
    occurred_us = to_us(reward.occurred_at)
    return RewardFacts(
        reward_id=reward.reward_id,
        revision=reward.revision,
        epoch=reward.replay_epoch,
        occurred_us=occurred_us,
        digest=reward.digest,
        retracted=reward.retracted,
        final=reward.final,
        replayed=replayed or reward.replayed,
        step_id=reward.step_id,
        score=score(reward),
        final_us=occurred_us if reward.final and not reward.retracted else None,
        task_key=reward.task_key,
        kind=reward.kind.value if score(reward) is None else "",
    )


def _total_order(fact: StepFacts | RewardFacts) -> tuple[tuple[bool, str], ...]:
    """Any total order over equal-ranked versions will do, as long as it is the same for all."""
    return tuple((value is not None, str(value)) for value in values(fact))


def _absorb_step(trajectory: Trajectory, new: StepFacts) -> Trajectory:
    old = trajectory.steps.get(new.step_id)
    if old is not None and (_step_rank(old), _earliness(old)) >= (_step_rank(new), _earliness(new)):
        return trajectory
    return replace(trajectory, steps={**trajectory.steps, new.step_id: new})


def _earliness(fact: StepFacts | RewardFacts) -> tuple[bool, int]:
    """Higher for lower offsets; coordinates are better than none."""
    return fact.offset is not None, -(fact.offset or 0)


def _step_rank(step: StepFacts) -> tuple[int, bool, int, tuple[tuple[bool, str], ...]]:
    """The version that the table shows as well: completed before others, then the earliest."""
    completed = step.outcome == Outcome.COMPLETE.value
    content = _total_order(replace(step, partition=None, offset=None))
    return step.epoch, completed, -step.started_us, content


def _absorb_reward(trajectory: Trajectory, new: RewardFacts) -> Trajectory:
    old = trajectory.rewards.get(new.reward_id)
    if old is not None:
        final_us = _earliest(old.final_us, new.final_us)
        winner = max(old, new, key=lambda r: (_reward_rank(r), _earliness(r)))
        new = replace(winner, final_us=final_us)
        if new == old:
            return trajectory
    return replace(trajectory, rewards={**trajectory.rewards, new.reward_id: new})


def _reward_rank(reward: RewardFacts) -> tuple[int, int, int, str, tuple[tuple[bool, str], ...]]:
    # as in the tables: a correction counts whichever processing made it;
    # final_us gathers over versions, so it must not decide between them
    rest = _total_order(replace(reward, final_us=None, partition=None, offset=None))
    return reward.revision, reward.epoch, reward.occurred_us, reward.digest, rest


def _absorb_end(trajectory: Trajectory, at_us: int, *, replayed: bool) -> Trajectory:
    old = (trajectory.end_us, trajectory.end_replayed)
    if old[0] is not None and (old[0], not old[1]) <= (at_us, not replayed):
        return trajectory
    return replace(trajectory, end_us=at_us, end_replayed=replayed)


def _earliest(*times_us: int | None) -> int | None:
    return min((time for time in times_us if time is not None), default=None)


# --- facts to conclusions ---------------------------------------------------------------------


def idle_at_us(trajectory: Trajectory, idle_us: int) -> int | None:
    """When the trajectory becomes idle unless another step comes; None without steps."""
    last = trajectory.last_end_us
    return None if last is None else last + idle_us


def conclude(trajectory: Trajectory, watermark_us: int | None, rules: Rules) -> Conclusion:
    """Summary and samples of the facts, at a watermark (None: no time has passed yet)."""
    steps = sorted(
        (s for s in trajectory.steps.values() if original(s, trajectory.steps) is s),
        key=lambda s: s.order,
    )
    known = [
        reward
        for reward in trajectory.rewards.values()
        if reward.step_id is None or reward.step_id in trajectory.steps
    ]
    counting = rules.policy.counting(known)
    closing = _closing(trajectory, watermark_us, rules)
    summary = _summary(trajectory, steps, counting, rules)
    if closing is None:
        return Conclusion(summary, ())
    summary = replace(summary, closed_at=to_time(closing.at_us), close_reason=closing.reason)
    # a correction may also take the number away
    withdrawn = any(reward.retracted or reward.revision > 1 for reward in known)
    signals = sorted((r for r in known if r.kind in SIGNALS), key=lambda r: r.order)
    material = Material(steps, trajectory.steps, counting, withdrawn, closing, signals)
    return Conclusion(summary, tuple(samples(material, summary)))


def _closing(trajectory: Trajectory, watermark_us: int | None, rules: Rules) -> Closing | None:
    """The earliest candidate; of equal times the first in the alphabet of reasons."""
    candidates: list[Closing] = []
    if trajectory.end_us is not None:
        candidates.append(Closing(trajectory.end_us, "event", trajectory.end_replayed))
    candidates += [
        Closing(r.final_us, "final_reward", r.replayed)
        for r in trajectory.rewards.values()
        if r.final_us is not None
    ]
    idle_us = idle_at_us(trajectory, rules.idle_us)
    if idle_us is not None and watermark_us is not None and idle_us <= watermark_us:
        # Ticks are not kept long enough to be replayed, so ask when the replay was ordered.
        replayed = (
            rules.replay_started_us is not None
            and idle_us + REPLAY_MARGIN_US <= rules.replay_started_us
        )
        candidates.append(Closing(idle_us, "idle", replayed))
    return min(candidates, default=None)


def _summary(
    trajectory: Trajectory,
    steps: Sequence[StepFacts],
    counting: Sequence[RewardFacts],
    rules: Rules,
) -> TrajectorySummary:
    rewards = sorted(trajectory.rewards.values(), key=lambda r: r.order)
    last_us = trajectory.last_end_us
    task_keys = [s.task_key for s in steps] + [r.task_key for r in rewards]
    agent_ids = [s.agent_id for s in steps]
    return TrajectorySummary(
        trajectory_id=trajectory.trajectory_id,
        tenant_id=trajectory.tenant_id,
        task_key=_first(task_keys),
        agent_id=_first(agent_ids),
        num_steps=len(steps),
        num_rewards=sum(not reward.retracted for reward in rewards),
        started_at=to_time(min(s.started_us for s in steps)) if steps else None,
        last_step_at=to_time(last_us) if last_us is not None else None,
        reward=counting[-1].score if counting else None,
        reward_status=status(counting),
        reward_policy=rules.policy.name,
        outcome=steps[-1].outcome if steps else None,
        first_policy_version=steps[0].policy_version if steps else None,
        last_policy_version=steps[-1].policy_version if steps else None,
        training_eligible=bool(steps) and all(step.eligible for step in steps),
        replay_epoch=rules.epoch,
    )


def _first(names: Sequence[str | None]) -> str | None:
    return next((name for name in names if name is not None), None)
