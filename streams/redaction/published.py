"""ATDP events that producers publish themselves, redacted like captured calls.

A producer's digests and fingerprints are plain at best, so they leave as HMACs. Its token ids
pass only where neither the text nor an ancestor's text was redacted.
"""

from dataclasses import replace

from schemas.atdp.types import (
    ActionResult,
    Feedback,
    Gap,
    Governance,
    HarnessState,
    Message,
    ModelVersion,
    Observation,
    RedactionStatus,
    Reward,
    RewardSignal,
    Step,
    TrajectoryEnd,
)
from schemas.ids import keyed_digest
from streams.redaction import gaps
from streams.redaction.redacting import ROLES, EventRedaction


def published_step(
    step: Step, redaction: EventRedaction, digest_key: bytes, *, ancestors_redacted: bool
) -> tuple[Step, bool]:
    """The clean step, and whether its text or an ancestor's was redacted."""
    observation = _observation(step.observation, redaction, digest_key)
    result = _result(step.action_and_result, redaction)
    harness = _harness(step.harness_state, redaction, digest_key)
    withheld = (
        ancestors_redacted
        or bool(redaction.spans)
        or redaction.surrogates_replaced
        or harness.tools != step.harness_state.tools
        or _has_unseen_context(step)
        or not _marks_fit(result)
    )
    had_tokens = bool(result.token_ids or result.prompt_token_ids or result.logprobs)
    if withheld:
        result = replace(
            result, prompt_token_ids=(), token_ids=(), logprobs=(), changed_tokens=(),
            approximate_from=None,
        )  # fmt: skip
    clean = replace(
        step,
        event_id=redaction.identifier(step.event_id) or "",
        key_id=redaction.identifier(step.key_id),
        trajectory_id=redaction.identifier(step.trajectory_id) or "",
        step_id=redaction.identifier(step.step_id) or "",
        task_key=redaction.identifier(step.task_key),
        agent_id=redaction.identifier(step.agent_id),
        response_id=redaction.identifier(step.response_id),
        dialect=redaction.identifier(step.dialect) or "",
        lineage=replace(
            step.lineage,
            parent_step_id=redaction.identifier(step.lineage.parent_step_id),
            branch=redaction.identifier(step.lineage.branch),
            subagent_id=redaction.identifier(step.lineage.subagent_id),
            attempt_of=redaction.identifier(step.lineage.attempt_of),
        ),
        observation=observation,
        harness_state=harness,
        action_and_result=result,
        reward_signals=tuple(_signal(s, redaction) for s in step.reward_signals),
        model_version=_model(step.model_version, redaction),
        raw_digest=keyed_digest(digest_key, step.raw_digest) if step.raw_digest else None,
    )
    governance = _governance(step.governance, redaction)
    found = [_gap(gap, redaction) for gap in step.gaps]
    if withheld and had_tokens:
        found.append(gaps.TOKENS_WITHHELD)
    if redaction.token_data_dropped:
        found.append(gaps.TOKENS_IN_MESSAGES_DROPPED)
    return replace(clean, governance=governance, gaps=tuple(found)), withheld


def _marks_fit(result: ActionResult) -> bool:
    """Whether the producer's own marks lie among its token ids, changed tokens in order."""
    last = 0
    for span in result.changed_tokens:
        if not last <= span.start < span.end <= len(result.token_ids):
            return False
        last = span.end
    return result.approximate_from is None or result.approximate_from <= len(result.token_ids)


def _has_unseen_context(step: Step) -> bool:
    """A step without a parent whose context held messages that it does not carry."""
    seen = step.observation
    return step.lineage.parent_step_id is None and seen.context_messages > len(seen.new_messages)


def _observation(seen: Observation, redaction: EventRedaction, key: bytes) -> Observation:
    return replace(
        seen,
        new_messages=_messages("new_messages", seen.new_messages, redaction),
        context_digest=keyed_digest(key, seen.context_digest) if seen.context_digest else None,
        retrieved_items=_bodies("retrieved_items", seen.retrieved_items, redaction),
        tool_results=_bodies("tool_results", seen.tool_results, redaction),
        memory_reads=_bodies("memory_reads", seen.memory_reads, redaction),
    )


def _result(result: ActionResult, redaction: EventRedaction) -> ActionResult:
    tool_result = result.tool_result
    return replace(
        result,
        output=_messages("output", result.output, redaction),
        tool_result=None if tool_result is None else redaction.body("tool_result", tool_result),
        finish_reason=redaction.identifier(result.finish_reason),
        error_class=redaction.identifier(result.error_class),
    )


def _harness(harness: HarnessState, redaction: EventRedaction, key: bytes) -> HarnessState:
    def digest(value: str | None) -> str | None:
        return keyed_digest(key, value) if value else None

    sampling = harness.sampling
    return replace(
        harness,
        reasoning=redaction.optional("reasoning", harness.reasoning),
        harness_name=redaction.identifier(harness.harness_name),
        harness_version=redaction.identifier(harness.harness_version),
        harness_fingerprint=digest(harness.harness_fingerprint),
        system_prompt_fingerprint=digest(harness.system_prompt_fingerprint),
        tools=tuple(redaction.identifier(name) or "" for name in harness.tools),
        tools_fingerprint=digest(harness.tools_fingerprint),
        sampling=None if sampling is None else redaction.body("sampling", sampling),
        memory_snapshot=digest(harness.memory_snapshot),
        chat_template_fingerprint=digest(harness.chat_template_fingerprint),
        retrieval_index_version=redaction.identifier(harness.retrieval_index_version),
        guardrail_version=redaction.identifier(harness.guardrail_version),
    )


def _model(model: ModelVersion, redaction: EventRedaction) -> ModelVersion:
    return replace(
        model,
        requested_model=redaction.identifier(model.requested_model),
        model=redaction.identifier(model.model),
        policy=redaction.identifier(model.policy),
        weights_root=redaction.identifier(model.weights_root),
        engine=redaction.identifier(model.engine),
        engine_version=redaction.identifier(model.engine_version),
        upstream=redaction.identifier(model.upstream),
    )


def _governance(given: Governance, redaction: EventRedaction) -> Governance:
    kinds = {span.kind for span in redaction.spans}
    classes = {redaction.identifier(name) or "" for name in given.data_classes}
    return Governance(
        data_classes=tuple(sorted(kinds | classes)),
        redaction_status=RedactionStatus.REDACTED if redaction.spans else RedactionStatus.CLEAN,
        redactions=tuple(redaction.spans),
        consent=redaction.identifier(given.consent),
        legal_basis=redaction.identifier(given.legal_basis),
        retention_class=redaction.identifier(given.retention_class),
        human_review=redaction.identifier(given.human_review),
        training_eligible=given.training_eligible,
        visible_to=tuple(redaction.identifier(role) or "" for role in given.visible_to),
    )


def _messages(
    where: str, messages: tuple[Message, ...], redaction: EventRedaction
) -> tuple[Message, ...]:
    return tuple(
        Message(
            role=m.role if m.role in ROLES else redaction.identifier(m.role) or "",
            body=redaction.body(f"{where}/{index}", m.body, is_message=True),
        )
        for index, m in enumerate(messages)
    )


def _bodies(where: str, bodies: tuple[str, ...], redaction: EventRedaction) -> tuple[str, ...]:
    return tuple(redaction.body(f"{where}/{index}", b) for index, b in enumerate(bodies))


def _signal(signal: RewardSignal, redaction: EventRedaction) -> RewardSignal:
    return replace(
        signal,
        name=redaction.identifier(signal.name) or "",
        label=redaction.optional("reward_signals", signal.label),
    )


def _gap(gap: Gap, redaction: EventRedaction) -> Gap:
    return Gap(
        field=redaction.identifier(gap.field) or "", reason=redaction.identifier(gap.reason) or ""
    )


def clean_reward(
    feedback: Feedback,
    trajectory_id: str,
    step_id: str | None,
    redaction: EventRedaction,
    digest_key: bytes,
) -> Reward:
    """Feedback about a known target as a reward. The digest covers what was said, not when."""
    said = (feedback.name, feedback.kind.value, repr(feedback.value), feedback.label or "",
            feedback.text or "", repr(feedback.retract), repr(feedback.final))  # fmt: skip
    text = feedback.text
    return Reward(
        reward_id=redaction.identifier(feedback.reward_id) or "",
        tenant_id=feedback.tenant_id,
        key_id=redaction.identifier(feedback.key_id),
        trajectory_id=trajectory_id,
        step_id=step_id,
        name=redaction.text("name", feedback.name),
        kind=feedback.kind,
        value=feedback.value,
        label=redaction.optional("label", feedback.label),
        text=None if text is None else redaction.body("text", text),
        redactions=tuple(redaction.spans),
        source=redaction.identifier(feedback.source) or "",
        rater_id=redaction.identifier(feedback.rater_id),
        confidence=feedback.confidence,
        revision=feedback.revision,
        retracted=feedback.retract,
        final=feedback.final,
        task_key=redaction.identifier(feedback.task_key),
        occurred_at=feedback.occurred_at,
        received_at=feedback.received_at,
        digest=keyed_digest(digest_key, *said),
    )


def clean_end(end: TrajectoryEnd, redaction: EventRedaction) -> TrajectoryEnd:
    """The end of a trajectory without private text."""
    return replace(
        end,
        event_id=redaction.identifier(end.event_id) or "",
        trajectory_id=redaction.identifier(end.trajectory_id) or "",
        reason=redaction.optional("reason", end.reason),
    )
