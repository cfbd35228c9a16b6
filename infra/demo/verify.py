"""The ledger against the store: what is lost, what is there twice, which rewards were joined.

The comparison is pure; `read_evidence` fetches what it compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from infra.demo.ledger import Ledger, RewardPost
from infra.store import Reader
from schemas import topics
from schemas.bus.api import Bus
from schemas.ids import derive_id

_STEPS_SQL = "SELECT response_id, step_id, trajectory_id FROM steps WHERE response_id IS NOT NULL"
_REWARDS_SQL = "SELECT reward_id, step_id, trajectory_id, value, revision FROM rewards"
_TRAJECTORIES_SQL = "SELECT trajectory_id, num_steps, reward, reward_status FROM trajectories"
_DEAD_PREFIX = "dead."


@dataclass(frozen=True)
class StepRow:
    """What the store shows of one call."""

    response_id: str
    step_id: str
    trajectory_id: str


@dataclass(frozen=True)
class RewardRow:
    """What the store shows of one reward."""

    step_id: str | None
    trajectory_id: str
    value: float | None
    revision: int


@dataclass(frozen=True)
class Evidence:
    """What store and topics say, read at one time."""

    steps: tuple[StepRow, ...]
    num_steps: int
    rewards: Mapping[str, RewardRow]
    trajectory_rewards: Mapping[str, float | None]
    num_dead_lettered: int
    num_quarantined: int


@dataclass(frozen=True)
class Verdict:
    """The comparison, in numbers. All but `num_trajectories_right` count calls or rewards."""

    num_lost: int
    num_duplicated: int
    num_rewards_joined: int
    num_unmatched: int
    num_trajectories_right: int


def read_evidence(reader: Reader, bus: Bus) -> Evidence:
    """Ask the store by SELECTs and Kafka for the sizes of dead-letter and quarantine topics."""
    (counted,) = reader.rows("SELECT count() AS num FROM steps")
    rewards = {
        str(row["reward_id"]): RewardRow(
            row["step_id"], str(row["trajectory_id"]), row["value"], int(row["revision"])
        )
        for row in reader.rows(_REWARDS_SQL)
    }
    dead, quarantined = _num_set_aside(bus)
    return Evidence(
        steps=tuple(StepRow(**row) for row in reader.rows(_STEPS_SQL)),
        num_steps=int(counted["num"]),
        rewards=rewards,
        trajectory_rewards={
            str(row["trajectory_id"]): row["reward"] for row in reader.rows(_TRAJECTORIES_SQL)
        },
        num_dead_lettered=dead,
        num_quarantined=quarantined,
    )


def _num_set_aside(bus: Bus) -> tuple[int, int]:
    admin = bus.admin()
    try:
        existing = admin.topics()

        def num_records(name: str) -> int:
            return sum(end - first for first, end in admin.watermarks(name).values())

        dead = sum(num_records(name) for name in existing if name.startswith(_DEAD_PREFIX))
        return dead, num_records(topics.QUARANTINE) if topics.QUARANTINE in existing else 0
    finally:
        admin.close()


def judge(ledger: Ledger, evidence: Evidence, tenant_id: str) -> Verdict:
    """Match every call by response id and every reward by its id, its step and its value."""
    num_rows = Counter(row.response_id for row in evidence.steps)
    row_of = {row.response_id: row for row in evidence.steps}
    last_calls = ledger.last_calls()
    num_joined = num_right = 0
    for feedback_id, post in ledger.final_rewards().items():
        row = row_of.get(last_calls[post.conversation_id].response_id)
        reward = evidence.rewards.get(derive_id("reward", tenant_id, feedback_id))
        if row is None or reward is None:
            continue
        num_joined += _is_joined(post, reward, row)
        num_right += evidence.trajectory_rewards.get(row.trajectory_id) == post.value
    return Verdict(
        num_lost=sum(num_rows[call.response_id] == 0 for call in ledger.calls),
        num_duplicated=sum(num_rows[call.response_id] > 1 for call in ledger.calls),
        num_rewards_joined=num_joined,
        num_unmatched=ledger.num_rewards - num_joined,
        num_trajectories_right=num_right,
    )


def _is_joined(post: RewardPost, reward: RewardRow, row: StepRow) -> bool:
    return (
        reward.step_id == row.step_id
        and reward.trajectory_id == row.trajectory_id
        and reward.value == post.value
        and reward.revision == post.revision
    )


def is_complete(ledger: Ledger, verdict: Verdict) -> bool:
    """True when nothing is missing any more: waiting longer could add nothing."""
    return (
        verdict.num_lost == 0
        and verdict.num_unmatched == 0
        and verdict.num_trajectories_right == ledger.num_rewards
    )
