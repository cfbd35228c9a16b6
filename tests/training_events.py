"""Short ways to make the steps, samples and memories that batching works on."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.atdp.internal import RewardRef, Sample, StepRef
from schemas.atdp.types import ActionResult, Lineage, ModelVersion, RewardStatus, Step, VersionSpan
from schemas.ids import derive_id

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
POLICY = "main"


def model_step(
    step_id: str,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    version: int | None = 1,
    logprobs: Sequence[float] | None = None,
    spans: Sequence[tuple[int, int, int]] = (),
    policy: str | None = POLICY,
    **fields: Any,
) -> Step:
    """A step that the engine answered; by default every token has the log-probability -0.5."""
    made = Step(
        step_id=step_id,
        event_id=f"e-{step_id}",
        tenant_id="acme",
        trajectory_id="t-1",
        started_at=NOON,
        lineage=Lineage(),
        action_and_result=ActionResult(
            prompt_token_ids=tuple(prompt),
            token_ids=tuple(tokens),
            logprobs=(-0.5,) * len(tokens) if logprobs is None else tuple(logprobs),
        ),
        model_version=ModelVersion(
            policy=policy,
            policy_version=version,
            spans=tuple(VersionSpan(start=a, end=b, policy_version=v) for a, b, v in spans),
            weights_root=None if version is None else f"root-{version}",
        ),
    )
    return replace(made, **fields)


def sample_of(
    steps: Sequence[Step],
    reward: float | None = 1.0,
    *,
    revision: int = 1,
    places: Sequence[tuple[int, int]] | None = None,
    **fields: Any,
) -> Sample:
    """The sample of a branch of these steps, as assembly makes it; `revision` is the reward's."""
    step_ids = tuple(step.step_id for step in steps)
    tenant, trajectory = steps[0].tenant_id, steps[0].trajectory_id
    where = [(0, number) for number in range(len(steps))] if places is None else places
    made = Sample(
        sample_id=derive_id("sample", tenant, trajectory, *step_ids, revision),
        tenant_id=tenant,
        trajectory_id=trajectory,
        task_key="task",
        step_ids=step_ids,
        rewards=(RewardRef(reward_id="r", revision=revision),) if reward is not None else (),
        reward=reward,
        reward_policy="latest_final/1",
        reward_status=RewardStatus.FINAL,
        eligible=True,
        closed_at=NOON + timedelta(minutes=1),
        step_refs=tuple(StepRef(partition=p, offset=o) for p, o in where),
        step_outcomes=("complete",),
    )
    return replace(made, **fields)


def retracted(sample: Sample) -> Sample:
    """The sample that follows once no reward of the trajectory counts any more."""
    return replace(
        sample,
        sample_id=derive_id("sample", sample.sample_id, "retracted"),
        rewards=(),
        reward=None,
        eligible=False,
        reasons=("reward_retracted",),
    )
