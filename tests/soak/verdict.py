"""The ledger against the store and the topics. Pure but for `read_evidence`."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.demo.stage import TENANT
from infra.store import Reader
from schemas import topics
from schemas.atdp.internal import Sample
from schemas.bus import Bus
from schemas.codec import decode
from schemas.ids import derive_id
from tests.soak.load import Attempt, Ledger, RewardSent

_STEPS_SQL = "SELECT step_id, response_id, trajectory_id, outcome, attempt_of, gaps FROM steps"
_REWARDS_SQL = "SELECT reward_id, step_id, trajectory_id, value, revision FROM rewards"
_TRAJECTORIES_SQL = "SELECT trajectory_id, num_steps, reward, num_rewards FROM trajectories"
_SAMPLES_SQL = "SELECT sample_id, trajectory_id, step_ids, reward, closed_at FROM samples"
_COUNT_SQL = "SELECT count() AS num, uniqExact(tenant_id, {id}) AS ids FROM {table}"
_IDS = {"steps": "step_id", "rewards": "reward_id", "trajectories": "trajectory_id",
        "samples": "sample_id"}  # fmt: skip
_LINEAGE_GAPS = ("steps_before_not_captured", "steps_between_not_captured")
_POLL_SECONDS = 0.5

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """What store and topics say, read at one time."""

    steps: Sequence[Row]
    rewards: Sequence[Row]
    trajectories: Sequence[Row]
    samples: Sequence[Row]
    #: Table → rows more than ids, as a plain SELECT counts them.
    doubled_rows: Mapping[str, int]
    #: Every record of the samples topic, in order of its partition.
    emitted: Sequence[Sample]
    num_set_aside: int


@dataclass(frozen=True)
class Verdict:
    """The comparison, in numbers. See `is_right` for what must be zero."""

    lost: int
    duplicated: int
    #: Failed attempts that the store shows more than once, or calls that nobody made.
    surplus: int
    rewards_wrong: int
    trajectories_split: int
    trajectory_rewards_wrong: int
    samples_wrong: int
    doubled_rows: int
    set_aside: int
    samples_emitted_again: int
    #: Steps that attempts left which the client saw fail.
    steps_of_failed: int
    cut_off_though_complete: int
    lineage_gaps: int
    #: The kill that came last before the calls that are lost, or there twice.
    lost_after: Mapping[str, int]
    duplicated_after: Mapping[str, int]

    @property
    def is_right(self) -> bool:
        """Nothing lost, nothing doubled, nothing joined wrongly."""
        return not any((
            self.lost, self.duplicated, self.surplus, self.rewards_wrong,
            self.trajectories_split, self.trajectory_rewards_wrong, self.samples_wrong,
            self.doubled_rows, self.set_aside,
        ))  # fmt: skip


def read_evidence(reader: Reader, bus: Bus) -> Evidence:
    """Plain SELECTs over the views that users query, and the topic of samples from its start."""
    doubled = {}
    for table, id_column in _IDS.items():
        (row,) = reader.rows(_COUNT_SQL.format(id=id_column, table=table))
        doubled[table] = int(row["num"]) - int(row["ids"])
    return Evidence(
        steps=reader.rows(_STEPS_SQL),
        rewards=reader.rows(_REWARDS_SQL),
        trajectories=reader.rows(_TRAJECTORIES_SQL),
        samples=reader.rows(_SAMPLES_SQL),
        doubled_rows=doubled,
        emitted=_read_samples(bus),
        num_set_aside=num_set_aside(bus),
    )


def _read_samples(bus: Bus) -> list[Sample]:
    admin, consumer = bus.admin(), bus.consumer()
    try:
        marks = admin.watermarks(topics.SAMPLES)
        left = sum(end - first for first, end in marks.values())
        consumer.assign({(topics.SAMPLES, p): first for p, (first, _) in marks.items()})
        samples: list[Sample] = []
        while len(samples) < left:
            for record in consumer.poll(500, _POLL_SECONDS):
                sample = decode(record.value)
                assert isinstance(sample, Sample)
                samples.append(sample)
        return samples
    finally:
        admin.close()
        consumer.close()


def num_set_aside(bus: Bus) -> int:
    """Dead letters and quarantined events: a kill makes none."""
    admin = bus.admin()
    try:
        names = [n for n in admin.topics() if n.startswith("dead.") or n == topics.QUARANTINE]
        return sum(end - first for n in names for first, end in admin.watermarks(n).values())
    finally:
        admin.close()


def judge(ledger: Ledger, evidence: Evidence, kills: Sequence[tuple[float, str]]) -> Verdict:
    """`kills` are times and names in order, to say which came before a call that is lost."""
    num_rows = Counter(row["response_id"] for row in evidence.steps if row["response_id"])
    row_of = {row["response_id"]: row for row in evidence.steps if row["response_id"]}
    lost = [call for call in ledger.completed if not num_rows[call.response_id]]
    doubled = [call for call in ledger.completed if num_rows[call.response_id] > 1]
    found = [row_of[c.response_id or ""] for c in ledger.completed if c.response_id in row_of]
    return Verdict(
        lost=len(lost),
        duplicated=len(doubled),
        surplus=_surplus(ledger, evidence),
        rewards_wrong=_rewards_wrong(ledger, evidence, row_of),
        trajectories_split=_num_split(ledger, row_of),
        trajectory_rewards_wrong=_trajectory_rewards_wrong(ledger, evidence, row_of),
        samples_wrong=_samples_wrong(ledger, evidence, row_of),
        doubled_rows=sum(evidence.doubled_rows.values()),
        set_aside=evidence.num_set_aside,
        samples_emitted_again=len(evidence.emitted) - len({s.sample_id for s in evidence.emitted}),
        steps_of_failed=_num_others(ledger, evidence),
        cut_off_though_complete=sum(row["outcome"] != "complete" for row in found),
        lineage_gaps=sum(_has_lineage_gap(row) for row in evidence.steps),
        # no Counter: asdict makes pairs of its items
        lost_after=dict(Counter(last_kill(call, kills) for call in lost)),
        duplicated_after=dict(Counter(last_kill(call, kills) for call in doubled)),
    )


def last_kill(call: Attempt, kills: Sequence[tuple[float, str]]) -> str:
    """The process that was killed last before the end of a call."""
    before = [name for at, name in kills if at <= call.ended_at]
    return before[-1] if before else "none"


def _surplus(ledger: Ledger, evidence: Evidence) -> int:
    """Steps that no attempt explains: one that failed may have left one step, cut off or not."""
    return max(0, _num_others(ledger, evidence) - len(ledger.broken))


def _num_others(ledger: Ledger, evidence: Evidence) -> int:
    """Steps of calls that the client did not get whole."""
    completed = {call.response_id for call in ledger.completed}
    return sum(row["response_id"] not in completed for row in evidence.steps)


def _rewards_wrong(ledger: Ledger, evidence: Evidence, row_of: Mapping[str, Row]) -> int:
    """Rewards that are missing, of another value, or joined to another step."""
    stored = {row["reward_id"]: row for row in evidence.rewards}
    last = _last_calls(ledger)
    return sum(
        not _is_joined(sent, stored.get(derive_id("reward", TENANT, sent.feedback_id)),
                       row_of.get(last[sent.talk].response_id or ""))
        for sent in _final_rewards(ledger).values()
    )  # fmt: skip


def _is_joined(sent: RewardSent, reward: Row | None, step: Row | None) -> bool:
    if reward is None or step is None:
        return False
    # Under the client's own step id the first attempt that completed is the step.
    steps = {step["step_id"], sent.key}
    return (
        reward["step_id"] in steps
        and reward["trajectory_id"] == step["trajectory_id"]
        and (reward["value"], reward["revision"]) == (sent.value, sent.revision)
    )


def _final_rewards(ledger: Ledger) -> dict[int, RewardSent]:
    """Talk → the post with the highest revision."""
    return {sent.talk: sent for sent in sorted(ledger.rewards, key=lambda sent: sent.revision)}


def _last_calls(ledger: Ledger) -> dict[int, Attempt]:
    return {call.talk: call for call in sorted(ledger.completed, key=lambda c: c.position)}


def _num_split(ledger: Ledger, row_of: Mapping[str, Row]) -> int:
    """Talks whose calls the store shows in more than one trajectory."""
    trajectories: dict[int, set[str]] = defaultdict(set)
    for call in ledger.completed:
        row = row_of.get(call.response_id or "")
        if row is not None:
            trajectories[call.talk].add(row["trajectory_id"])
    return sum(len(found) > 1 for found in trajectories.values())


def _trajectory_rewards_wrong(ledger: Ledger, evidence: Evidence, row_of: Mapping[str, Row]) -> int:
    shown = {row["trajectory_id"]: row for row in evidence.trajectories}
    last = _last_calls(ledger)
    wrong = 0
    for talk, sent in _final_rewards(ledger).items():
        step = row_of.get(last[talk].response_id or "")
        row = shown.get(step["trajectory_id"]) if step else None
        wrong += row is None or (row["reward"], row["num_rewards"]) != (sent.value, 1)
    return wrong


def _samples_wrong(ledger: Ledger, evidence: Evidence, row_of: Mapping[str, Row]) -> int:
    """Rewarded talks without a sample that holds all of their steps and their final reward."""
    by_trajectory: dict[str, list[Row]] = defaultdict(list)
    for row in evidence.samples:
        by_trajectory[row["trajectory_id"]].append(row)
    num_calls = Counter(call.talk for call in ledger.completed)
    last = _last_calls(ledger)
    wrong = 0
    for talk, sent in _final_rewards(ledger).items():
        step = row_of.get(last[talk].response_id or "")
        made = by_trajectory[step["trajectory_id"]] if step else []
        wrong += not any(
            len(row["step_ids"]) == num_calls[talk] and row["reward"] == sent.value for row in made
        )
    return wrong


def _has_lineage_gap(row: Row) -> bool:
    return any(reason in str(row["gaps"]) for reason in _LINEAGE_GAPS)
