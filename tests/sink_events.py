"""A small day of events with something of everything that the tables hold. Own making."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.atdp.internal import (
    AuditEvent,
    DeadLetter,
    PartitionOffset,
    Quarantined,
    RewardRef,
    Sample,
    StepRef,
    TrajectorySummary,
)
from schemas.atdp.training import (
    Decision,
    MicroBatch,
    SampleDecision,
    SampleOutcome,
    SequenceKind,
    TrainedSpan,
    TrainingSequence,
)
from schemas.atdp.types import (
    ActionResult,
    Coordinates,
    Gap,
    Governance,
    Lineage,
    Message,
    ModelVersion,
    Observation,
    Outcome,
    RedactedSpan,
    RedactionStatus,
    Reward,
    RewardKind,
    RewardStatus,
    Step,
    Usage,
    VersionSpan,
)
from schemas.atdp.weights import (
    AckStatus,
    ProposalAnswer,
    ProposalStatus,
    RingAssignment,
    RingState,
    Statistic,
    TensorDigest,
)
from schemas.ids import derive_id
from schemas.rings import proposal_id
from tests import ring_events

NOON = datetime(2026, 3, 14, 12, 0, 0, 250_001, tzinfo=UTC)
PLACEHOLDER = "<EMAIL_ADDRESS:7f3a>"


def message(role: str, content: str, **fields: Any) -> Message:
    """A chat message whose body is JSON, as the dialect has it."""
    body = {"role": role, "content": content, **fields}
    return Message(role=role, body=json.dumps(body, ensure_ascii=False))


def step(
    tenant: str,
    trajectory: str = "t-0",
    index: int = 0,
    *,
    started_at: datetime | None = None,
    new_messages: tuple[Message, ...] = (),
    output: tuple[Message, ...] = (),
    **fields: Any,
) -> Step:
    """The `index`-th step of a trajectory, each a minute after the one before."""
    begun = started_at or NOON + timedelta(minutes=index)
    name = f"{trajectory}-s{index}"
    values: dict[str, Any] = {
        "step_id": name,
        "event_id": derive_id("event", tenant, name),
        "tenant_id": tenant,
        "trajectory_id": trajectory,
        "agent_id": "booking" if trajectory < "t-3" else "support",
        "task_key": f"task-{trajectory[-1]}",
        "dialect": "openai-chat",
        "started_at": begun,
        "ended_at": begun + timedelta(milliseconds=900),
        "response_id": f"chatcmpl-{name}",
        "lineage": Lineage(
            parent_step_id=f"{trajectory}-s{index - 1}" if index else None, step_index=index
        ),
        "observation": Observation(
            new_messages=new_messages or (message("user", f"Move booking {index} to Friday."),),
            context_messages=2 * index + 1,
        ),
        "action_and_result": ActionResult(
            output=output or (message("assistant", f"Booking {index} is moved. ✔"),),
            token_ids=(11, 12, 13),
            logprobs=(-0.5, -0.25, -0.125),
            finish_reason="stop",
            http_status=200,
            latency_ms=900.0 + 100 * index,
            first_byte_ms=120.0,
            usage=Usage(prompt_tokens=100 + index, completion_tokens=3),
        ),
        "model_version": ModelVersion(requested_model="small", model="small-1", policy_version=3),
        "raw_digest": derive_id("raw", tenant, name),
        "source": Coordinates(topic="raw.events.v1", partition=0, offset=index),
    }
    return Step(**{**values, **fields})


def reward(tenant: str, trajectory: str = "t-0", **fields: Any) -> Reward:
    """A number for a whole trajectory, an hour later."""
    values: dict[str, Any] = {
        "reward_id": derive_id("reward", tenant, trajectory, str(fields.get("step_id"))),
        "tenant_id": tenant,
        "trajectory_id": trajectory,
        "name": "resolved",
        "kind": RewardKind.SCALAR,
        "value": 1.0,
        "rater_id": "desk",
        "occurred_at": NOON + timedelta(hours=1),
        "received_at": NOON + timedelta(hours=1, seconds=2),
        "digest": derive_id("digest", trajectory),
    }
    return Reward(**{**values, **fields})


def summary(tenant: str, trajectory: str, num_steps: int, **fields: Any) -> TrajectorySummary:
    """A closed trajectory."""
    values: dict[str, Any] = {
        "trajectory_id": trajectory,
        "tenant_id": tenant,
        "task_key": f"task-{trajectory[-1]}",
        "agent_id": "booking" if trajectory < "t-3" else "support",
        "num_steps": num_steps,
        "num_rewards": 1,
        "started_at": NOON,
        "last_step_at": NOON + timedelta(minutes=num_steps - 1, milliseconds=900),
        "reward": 1.0,
        "reward_status": RewardStatus.FINAL,
        "reward_policy": "latest_final/1",
        "outcome": "complete",
        "first_policy_version": 3,
        "last_policy_version": 3,
        "closed_at": NOON + timedelta(minutes=30),
        "close_reason": "event",
    }
    return TrajectorySummary(**{**values, **fields})


def redacted_step(tenant: str, trajectory: str) -> Step:
    """A first step whose user message held an address; token ids are withheld for it."""
    return step(
        tenant,
        trajectory,
        0,
        new_messages=(
            message("system", "You book flights."),
            message("user", f"Write to {PLACEHOLDER}, please."),
        ),
        output=(
            message(
                "assistant",
                "",
                tool_calls=[
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "send", "arguments": f'{{"to": "{PLACEHOLDER}"}}'},
                    }
                ],
            ),
        ),
        governance=Governance(
            data_classes=("EMAIL_ADDRESS",),
            redaction_status=RedactionStatus.REDACTED,
            redaction_policy_version="default/1",
            redactions=(
                _span("new_messages/1/content", 9, 26),
                _span("output/0/tool_calls/0/function/arguments/to", 0, 17),
            ),
        ),
        gaps=(Gap(field="token_ids", reason="withheld_after_redaction"),),
    )


def _span(path: str, start: int, end: int) -> RedactedSpan:
    return RedactedSpan(
        path=path, kind="EMAIL_ADDRESS", start=start, end=end, placeholder=PLACEHOLDER
    )


def day(tenant: str) -> list[Any]:
    """Five trajectories, one reward that waits for its step, and what went wrong."""
    events: list[Any] = []
    for number in range(5):
        name = f"t-{number}"
        events += [redacted_step(tenant, name)] + [step(tenant, name, i) for i in range(1, 4)]
        good = number % 2 == 0
        events.append(reward(tenant, name, value=float(good), final=True))
        events.append(summary(tenant, name, 4, reward=float(good)))
        events.append(_sample(tenant, name, float(good)))
    events += [_slow_step(tenant), _crashed_step(tenant), _retry(tenant)]
    events.append(reward(tenant, "t-1", step_id="t-1-s2", name="polite", value=True))
    events.append(
        reward(tenant, "t-2", step_id="t-2-s1", name="tone", kind=RewardKind.CRITIQUE,
               value=None, text="Too short.", revision=2, occurred_at=NOON + timedelta(days=9))
    )  # fmt: skip
    events.append(reward(tenant, "t-9", step_id="t-9-s0", name="early"))
    return events + _faults(tenant) + rollout()


def _slow_step(tenant: str) -> Step:
    return step(
        tenant, "t-3", 4,
        model_version=ModelVersion(
            model="small-1", policy_version=4,
            spans=(
                VersionSpan(start=2, end=3, policy_version=4),
                VersionSpan(start=0, end=2, policy_version=3),
            ),
        ),
        outcome=Outcome.TIMEOUT,
        action_and_result=ActionResult(error_class="upstream_stalled", latency_ms=60_000.0,
                                       attempts=2),
    )  # fmt: skip


def _crashed_step(tenant: str) -> Step:
    gaps = (Gap(field="action_and_result.output", reason="gateway_crashed"),)
    return step(tenant, "t-4", 4, outcome=Outcome.GATEWAY_CRASHED, gaps=gaps)


def _retry(tenant: str) -> Step:
    lineage = Lineage(parent_step_id="t-0-s2", step_index=3, attempt_of="t-0-s3")
    return step(tenant, "t-0", 3, step_id="t-0-s3-again", lineage=lineage)


def _sample(tenant: str, trajectory: str, value: float) -> Sample:
    step_ids = tuple(f"{trajectory}-s{index}" for index in range(4))
    reward_id = derive_id("reward", tenant, trajectory, "None")
    return Sample(
        sample_id=derive_id("sample", tenant, trajectory), tenant_id=tenant,
        trajectory_id=trajectory, task_key=f"task-{trajectory[-1]}", step_ids=step_ids,
        rewards=(RewardRef(reward_id=reward_id, revision=1),), reward=value,
        reward_policy="latest_final/1", reward_status=RewardStatus.FINAL,
        reasons=("not_eligible",), oldest_policy_version=3, newest_policy_version=3,
        closed_at=NOON + timedelta(minutes=30), step_outcomes=("complete",),
        step_refs=tuple(StepRef(partition=1, offset=index) for index in range(4)),
    )  # fmt: skip


def decision(tenant: str, trajectory: str, **fields: Any) -> SampleDecision:
    """The sample of that trajectory of `day` is in a micro-batch."""
    values: dict[str, Any] = {
        "sample_id": derive_id("sample", tenant, trajectory),
        "tenant_id": tenant,
        "trajectory_id": trajectory,
        "policy": "main",
        "decision": Decision.TRAINED,
        "outcome": SampleOutcome.SUCCESS,
        "batch_id": derive_id("batch", tenant),
        "num_trained_tokens": 2,
        "staleness": 1,
        "decided_at": NOON + timedelta(hours=1),
    }
    return SampleDecision(**{**values, **fields})


def microbatch(tenant: str) -> MicroBatch:
    """One sequence with one trained span."""
    sample_id = derive_id("sample", tenant, "t-0")
    sequence = TrainingSequence(
        sample_id=sample_id, tenant_id=tenant, trajectory_id="t-0", reward=1.0,
        kind=SequenceKind.POLICY_GRADIENT, token_ids=(5, 6, 7), logprobs=(-0.5, -0.25),
        trained=(TrainedSpan(first=1, end=3, version=3, step_id="t-0-s0"),),
        outcome=SampleOutcome.SUCCESS, oldest_version=3,
    )  # fmt: skip
    return MicroBatch(
        batch_id=derive_id("batch", tenant), policy="main", created_at=NOON, sequences=(sequence,),
        num_sequences=1, num_tokens=3, num_trained_tokens=2, sample_ids=(sample_id,),
        tenant_ids=(tenant,), oldest_version=3, newest_version=3, policy_version=4,
    )  # fmt: skip


def _faults(tenant: str) -> list[Any]:
    source = Coordinates(topic="raw.events.v1", partition=2, offset=17)
    return [
        DeadLetter(
            dead_letter_id=derive_id("dead", tenant), group="streams.redaction", source=source,
            reason="undecodable", num_bytes=8, tenant_id=tenant, occurred_at=NOON,
        ),
        Quarantined(
            quarantine_id=derive_id("quarantine", tenant), tenant_id=tenant, source=source,
            reason="detector_timeout", occurred_at=NOON, value=b"the original of Ada Byron",
        ),
        AuditEvent(
            audit_id=derive_id("audit", tenant), actor="operator", action="replay.started",
            subject="streams.redaction", details='{"epoch": 1}', occurred_at=NOON,
        ),
    ]  # fmt: skip


def rollout() -> list[Any]:
    """Two versions, a trial that a worker refused, and the way back."""
    trial = ring_events.proposal(2, proposed_at=NOON, canary_share=0.5, reason="better")
    assigned = RingAssignment(
        policy=ring_events.POLICY, ring=ring_events.RING, stable=ring_events.ref(1),
        canary=ring_events.ref(2), canary_share=0.5, canary_workers=("worker-a",),
        served=(ring_events.ref(3),), state=RingState.CANARY, decision_id=proposal_id(trial),
        reason="better", sequence=2, decided_at=NOON,
    )  # fmt: skip
    first = replace(
        ring_events.manifest(1),
        data_watermark=(PartitionOffset(topic="training.microbatches.v1", partition=0, offset=7),),
        statistics=(Statistic(name="loss", value=0.5),),
        tensors=(TensorDigest(name="embed", dtype="BF16", digest="0" * 32),),
    )
    answer = ProposalAnswer(
        proposal_id=proposal_id(trial), policy=trial.policy, ring=trial.ring, version=2,
        status=ProposalStatus.ACCEPTED, reason="better", sequence=2, answered_at=NOON,
    )  # fmt: skip
    back = replace(
        assigned, canary=None, canary_share=0.0, canary_workers=(), sequence=3,
        state=RingState.ROLLED_BACK, decided_at=NOON + timedelta(seconds=1),
        reason="Every worker refused version 2: wrong_digest",
    )  # fmt: skip
    applied = ring_events.ack(
        "worker-b", 1, stage_ms=20.0, pause_ms=15.5, apply_ms=250.0, occurred_at=NOON
    )
    refused = ring_events.ack("worker-a", 2, AckStatus.REFUSED, occurred_at=NOON)
    return [first, ring_events.manifest(2), trial, assigned, answer, back, applied, refused]
