"""Records that headrace's own processors exchange, in the same form as the protocol's."""

from datetime import datetime

from schemas.atdp.record import doc, record
from schemas.atdp.types import Coordinates, Feedback, RewardKind, RewardStatus


@record
class Alias:
    """Where a step that feedback may name by another id lies."""

    alias: str = doc("HMAC of tenant, kind of id and id")
    tenant_id: str = doc("owner")
    step_id: str = doc("the step")
    trajectory_id: str = doc("its trajectory")
    recorded_at: datetime = doc("when the step began")


@record
class UnresolvedFeedback:
    """Feedback whose step is found by alias only."""

    alias: str = doc("HMAC of tenant, kind of id and id")
    feedback: Feedback = doc("the feedback as it came in")
    raw: Coordinates | None = doc("raw record it was made from", default=None)


@record
class RewardRef:
    """A reward that counts, at the revision that counts."""

    reward_id: str = doc("the reward")
    revision: int = doc("its revision")


@record
class TrajectorySummary:
    """What is known of a trajectory once all its events so far are joined."""

    trajectory_id: str = doc("the trajectory")
    tenant_id: str = doc("owner")
    task_key: str | None = doc("what is being attempted", default=None)
    agent_id: str | None = doc("which agent", default=None)
    num_steps: int = doc("number of steps, further attempts not counted", default=0)
    num_rewards: int = doc("number of rewards that are not retracted", default=0)
    started_at: datetime | None = doc("start of the first step", default=None)
    last_step_at: datetime | None = doc("end of the last step", default=None)
    reward: float | None = doc("the reward that counts", default=None)
    reward_status: RewardStatus = doc("how settled it is", default=RewardStatus.NONE)
    reward_policy: str = doc("name and version of the policy that chose it")
    outcome: str | None = doc("outcome of the last step", default=None)
    first_policy_version: int | None = doc("policy version of the first step", default=None)
    last_policy_version: int | None = doc("policy version of the last step", default=None)
    training_eligible: bool = doc("every step may be learned from", default=False)
    closed_at: datetime | None = doc("when it closed, in event time", default=None)
    close_reason: str | None = doc("event, final_reward or idle", default=None)
    replay_epoch: int = doc("number of the processing that made it", default=0)


@record
class StepRef:
    """Where the record of a step lies on trajectory.steps.v1."""

    partition: int = doc("partition number")
    offset: int = doc("offset of the first record that says the same of the step")


@record
class Sample:
    """A closed trajectory with its reward, or a signal without a number about one of its steps,
    ready to be learned from."""

    sample_id: str = doc("hash of step ids, effective reward revisions and reward policy")
    tenant_id: str = doc("owner")
    trajectory_id: str = doc("the trajectory")
    task_key: str | None = doc("what was attempted", default=None)
    step_ids: tuple[str, ...] = doc("steps in order", default=())
    rewards: tuple[RewardRef, ...] = doc("rewards that count", default=())
    reward: float | None = doc("the reward", default=None)
    reward_policy: str = doc("name and version of the policy that chose it")
    reward_status: RewardStatus = doc("how settled it is", default=RewardStatus.NONE)
    eligible: bool = doc("may be trained on", default=False)
    reasons: tuple[str, ...] = doc("why it may not be trained on", default=())
    oldest_policy_version: int | None = doc("oldest version among the steps", default=None)
    newest_policy_version: int | None = doc("newest version among the steps", default=None)
    closed_at: datetime = doc("when the trajectory closed")
    replay_epoch: int = doc("number of the processing that made it", default=0)
    replayed: bool = doc("made again by a replay of records handled before", default=False)
    step_refs: tuple[StepRef, ...] = doc(
        "where the steps lie, in the order of step_ids; empty where not all are known", default=()
    )
    step_outcomes: tuple[str, ...] = doc("how the steps ended, each once, sorted", default=())
    signal: RewardKind | None = doc(
        "kind of the one of rewards that is learned from without a number, about the last step",
        default=None,
    )
    signal_refs: tuple[StepRef, ...] = doc(
        "where the record of the signal lies on trajectory.rewards.v1; empty where not known",
        default=(),
    )


@record
class Tick:
    """Time passes on a partition, so that idle trajectories close."""

    partition: int = doc("partition of the trajectory topics")
    at: datetime = doc("wall time of the ticker")


@record
class DeadLetter:
    """A record that can never be processed. Holds no payload; the original stays where it was."""

    dead_letter_id: str = doc("hash of group and coordinates")
    group: str = doc("consumer group that gave up")
    source: Coordinates = doc("the record")
    reason: str = doc("from the closed list in schemas/errors")
    field: str | None = doc("name of the schema field, never a value", default=None)
    tenant_id: str | None = doc("owner, where it could be read", default=None)
    num_bytes: int = doc("size of the record's value", default=0)
    occurred_at: datetime = doc("when it was given up")


@record
class Quarantined:
    """A record that redaction could not be sure about. Holds the original; read with care."""

    quarantine_id: str = doc("hash of coordinates")
    tenant_id: str | None = doc("owner, where it could be read", default=None)
    source: Coordinates = doc("the raw record")
    reason: str = doc("from the closed list in schemas/errors")
    occurred_at: datetime = doc("when it was set aside")
    value: bytes = doc("the record's value, original text")


@record
class KeyRecord:
    """A key of the gateway. The key itself is never stored."""

    key_id: str = doc("id")
    key_hash: str = doc("SHA-256 of the key")
    tenant_id: str = doc("owner; a key belongs to one tenant")
    scopes: tuple[str, ...] = doc("what it may do", default=())
    agent_id: str | None = doc("agent that uses it", default=None)
    rater_id: str | None = doc("rater that feedback through it is ascribed to", default=None)
    created_at: datetime = doc("when it was made")
    revoked_at: datetime | None = doc("when it stopped being good", default=None)


@record
class PartitionOffset:
    """An offset on one partition of one topic."""

    topic: str = doc("topic name")
    partition: int = doc("partition number")
    offset: int = doc("offset")


@record
class Replay:
    """A processing of a group begins anew."""

    group: str = doc("consumer group")
    epoch: int = doc("1, then higher for each replay")
    committed_before: tuple[PartitionOffset, ...] = doc(
        "offsets committed before the reset", default=()
    )
    started_at: datetime = doc("when it was ordered")


@record
class AuditEvent:
    """Somebody or something acted."""

    audit_id: str = doc("id")
    actor: str = doc("who")
    action: str = doc("what, such as replay.started")
    subject: str = doc("to what")
    details: str = doc("JSON object without payload text", default="{}")
    occurred_at: datetime = doc("when")


__all__ = [
    "Alias", "AuditEvent", "DeadLetter", "KeyRecord", "PartitionOffset", "Quarantined", "Replay",
    "RewardRef", "Sample", "StepRef", "Tick", "TrajectorySummary", "UnresolvedFeedback",
]  # fmt: skip
