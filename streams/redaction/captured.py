"""A captured exchange becomes a step: six classes of metadata, redacted, with its gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.atdp.types import (
    ActionResult,
    Exchange,
    Gap,
    Governance,
    HarnessState,
    Lineage,
    Message,
    ModelVersion,
    Observation,
    Outcome,
    RedactionStatus,
    Replayability,
    Step,
    StepKind,
    Usage,
)
from schemas.ids import keyed_digest
from streams.redaction import gaps
from streams.redaction.answered_by import model_version
from streams.redaction.bodies import header
from streams.redaction.chat import ChatRequest, ChatResponse, dumps
from streams.redaction.clean_tokens import CleanTokens, clean_tokens
from streams.redaction.dialects.registry import dialect_of
from streams.redaction.harness import Caller
from streams.redaction.lineage import Place
from streams.redaction.redacting import EventRedaction
from streams.redaction.retokenise import NotAlignedError, Tokenizer


@dataclass(frozen=True, slots=True)
class Identity:
    """Ids of the step that its event does not hold in their final form."""

    step_id: str
    attempt_of: str | None
    raw_digest: str
    fingerprint_key: bytes


def unparsed_step(exchange: Exchange, identity: Identity, trajectory_id: str,
                  redaction: EventRedaction, gap: Gap,
                  kind: StepKind = StepKind.MODEL_CALL) -> Step:  # fmt: skip
    """A step of which only the outside is known."""
    return _step(
        exchange, identity, trajectory_id, redaction,
        kind=kind,
        lineage=Lineage(
            parent_step_id=redaction.identifier(exchange.parent_step_id),
            attempt_of=identity.attempt_of,
        ),
        observation=Observation(),
        harness=_harness(exchange, None, identity, redaction),
        result=_result(exchange, ChatResponse(), ()),
        model=model_version(exchange, redaction),
        gaps=(gap,),
        response_id=None,
        outcome=_outcome(exchange, ChatResponse()),
        replayability=Replayability.NON_REPLAYABLE,
    )  # fmt: skip


def chat_step(
    exchange: Exchange,
    identity: Identity,
    request: ChatRequest,
    response: ChatResponse | None,
    place: Place,
    context_digest: str,
    redaction: EventRedaction,
    caller: Caller,
    tokenizers: Mapping[str, Tokenizer] | None = None,
) -> tuple[Step, bool]:
    """The step of a call of a model, and whether its text or an ancestor's was redacted.

    `tokenizers` are those of policies by name. Where the call's policy is among them, its tokens
    are kept without what was redacted.
    """
    answer = response or ChatResponse()
    known = request.messages[: place.num_known]
    new_messages = redaction.messages(
        "new_messages", request.messages[place.num_known :], background=known
    )
    output = redaction.messages("output", answer.outputs, background=request.messages)
    inherited = place.parent is not None and place.parent.redacted
    withheld = (
        inherited
        or bool(redaction.spans)
        or redaction.surrogates_replaced
        or redaction.holds_private_data(request.beside_messages)
        or (answer.has_tokens and _hides_text(request, answer, known, redaction))
    )
    outcome = _outcome(exchange, answer)
    tokenizer = (tokenizers or {}).get(exchange.policy or "")
    result, model, token_gaps = _decided(
        exchange, request, answer, output, redaction, tokenizer, withheld=withheld
    )
    step = _step(
        exchange, identity, place.trajectory_id, redaction,
        kind=StepKind.MODEL_CALL,
        lineage=Lineage(
            parent_step_id=None if place.parent is None else place.parent.step_id,
            step_index=place.step_index,
            attempt_of=identity.attempt_of,
            branch=place.branch or None,
            subagent_id=redaction.identifier(caller.subagent),
        ),
        observation=Observation(
            new_messages=new_messages,
            context_messages=len(request.messages),
            context_digest=context_digest,
        ),
        harness=_harness(exchange, request, identity, redaction),
        result=result,
        model=model,
        gaps=(*_gaps(exchange, response, place, redaction, outcome), *token_gaps),
        response_id=redaction.identifier(answer.response_id),
        outcome=outcome,
        replayability=Replayability.APPROXIMATE,
    )  # fmt: skip
    return step, withheld


def _decided(
    exchange: Exchange, request: ChatRequest, answer: ChatResponse, output: tuple[Message, ...],
    redaction: EventRedaction, tokenizer: Tokenizer | None, *, withheld: bool,
) -> tuple[ActionResult, ModelVersion, tuple[Gap, ...]]:  # fmt: skip
    """What was decided and by which weights, with those tokens that can be kept, and what is
    missing of them."""
    model = model_version(exchange, redaction, request.model, answer.model, len(answer.token_ids))
    if not withheld:
        missing = _token_gaps(answer, withheld=False)
        return _result(exchange, answer, output, answer), model, missing
    result = _result(exchange, ChatResponse(), output, answer)
    if not answer.has_tokens or tokenizer is None or not _shows_all(request, answer):
        return result, model, _token_gaps(answer, withheld=True)
    clean, missing = _cleaned(request, answer, model, tokenizer, redaction)
    if clean is None:
        return result, model, missing
    return clean.put_into(result), replace(model, spans=clean.versions), missing


def _hides_text(request: ChatRequest, answer: ChatResponse, known: Sequence[Any],
                redaction: EventRedaction) -> bool:  # fmt: skip
    """Whether the tokens may hold private text that is not among what was redacted above.

    A message that equals a known one for lineage may differ in what lineage leaves out, such as
    the name of who wrote it. Text that the upstream kept to itself cannot be looked at.
    """
    return not _shows_all(request, answer) or redaction.holds_private_data(list(known))


def _shows_all(request: ChatRequest, answer: ChatResponse) -> bool:
    """Whether all that the tokens spell is among the texts of the call."""
    is_partial = request.hides_reasoning or request.previous_response_id is not None
    return not is_partial and bool(answer.outputs) and not answer.damaged


def _cleaned(
    request: ChatRequest, answer: ChatResponse, model: ModelVersion, tokenizer: Tokenizer,
    redaction: EventRedaction,
) -> tuple[CleanTokens | None, tuple[Gap, ...]]:  # fmt: skip
    """The tokens that can be kept and what is missing of them."""
    try:
        clean = clean_tokens(request, answer, model.spans, tokenizer, redaction)
    except NotAlignedError:
        return None, (gaps.TOKENS_NOT_ALIGNED,)
    changed = (gaps.TOKENS_CHANGED,) if clean.is_changed else ()
    return clean, (*changed, *_token_gaps(answer, withheld=False))


def _step(exchange: Exchange, identity: Identity, trajectory_id: str, redaction: EventRedaction, *,
          kind: StepKind, lineage: Lineage, observation: Observation, harness: HarnessState,
          result: ActionResult, model: ModelVersion, gaps: tuple[Gap, ...],
          response_id: str | None, outcome: Outcome,
          replayability: Replayability) -> Step:  # fmt: skip
    return Step(
        step_id=identity.step_id,
        event_id=redaction.identifier(exchange.event_id) or "",
        tenant_id=exchange.tenant_id,
        key_id=redaction.identifier(exchange.key_id),
        trajectory_id=trajectory_id,
        task_key=redaction.identifier(exchange.task_key),
        agent_id=redaction.identifier(exchange.agent_id),
        kind=kind,
        dialect=dialect_of(exchange.method, exchange.path),
        started_at=exchange.started_at,
        ended_at=exchange.ended_at,
        outcome=outcome,
        response_id=response_id,
        lineage=lineage,
        observation=observation,
        harness_state=harness,
        action_and_result=result,
        model_version=model,
        governance=_governance(exchange, redaction),
        gaps=gaps,
        replayability=replayability,
        raw_digest=identity.raw_digest,
    )


def _governance(exchange: Exchange, redaction: EventRedaction) -> Governance:
    return Governance(
        data_classes=tuple(sorted({span.kind for span in redaction.spans})),
        redaction_status=RedactionStatus.REDACTED if redaction.spans else RedactionStatus.CLEAN,
        redactions=tuple(redaction.spans),
        training_eligible=exchange.training_eligible,
    )


def _outcome(exchange: Exchange, answer: ChatResponse) -> Outcome:
    refused = exchange.status is not None and exchange.status >= 400
    if exchange.outcome is Outcome.COMPLETE and (refused or answer.failed):
        return Outcome.UPSTREAM_ERROR
    return exchange.outcome


def _result(exchange: Exchange, tokens: ChatResponse, output: Any,
            answer: ChatResponse | None = None) -> ActionResult:  # fmt: skip
    """`tokens` is empty where token ids and log-probabilities are withheld."""
    answer = answer or tokens
    status = exchange.status
    error = (
        f"http_{status}" if status is not None and status >= 400 else _word(exchange.error_class)
    )
    return ActionResult(
        output=output,
        prompt_token_ids=tokens.prompt_token_ids,
        token_ids=tokens.token_ids,
        logprobs=tokens.logprobs if len(tokens.logprobs) == len(tokens.token_ids) else (),
        finish_reason=_word(answer.finish_reason),
        error_class=error or ("error_in_stream" if answer.failed else None),
        http_status=status,
        latency_ms=_milliseconds(exchange, exchange.ended_at),
        first_byte_ms=_milliseconds(exchange, exchange.first_byte_at),
        attempts=exchange.attempts,
        usage=_usage(answer.usage),
    )


def _word(text: str | None) -> str | None:
    """A provider's keyword; anything that is not one is not stored. Names mix their cases."""
    if text is None:
        return None
    is_word = len(text) <= 40 and text.isascii() and text.replace("_", "").isalpha()
    is_word = is_word and (text.islower() or text.isupper())
    return text if is_word else "other"


def _milliseconds(exchange: Exchange, until: Any) -> float | None:
    """None also where a clock was set back in between: then nothing was measured."""
    if until is None or until < exchange.started_at:
        return None
    return float((until - exchange.started_at).total_seconds() * 1000.0)


def _usage(usage: dict[str, Any]) -> Usage:
    prompt = usage.get("prompt_tokens_details")
    completion = usage.get("completion_tokens_details")
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None,
        reasoning_tokens=(
            _count(completion.get("reasoning_tokens")) if isinstance(completion, dict) else None
        ),
    )


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if is_count else None


def _harness(exchange: Exchange, request: ChatRequest | None, identity: Identity,
             redaction: EventRedaction) -> HarnessState:  # fmt: skip
    name, _, version = (
        header(exchange.request_headers, "user-agent").partition(" ")[0].partition("/")
    )
    key = identity.fingerprint_key
    if request is None:
        return HarnessState(
            harness_name=redaction.identifier(name or None),
            harness_version=redaction.identifier(version or None),
        )
    system = [m for m in request.messages if m.get("role") in ("system", "developer")]
    system_print = _fingerprint(key, "system", system)
    tools_print = _fingerprint(key, "tools", request.tools)
    names = [_tool_name(tool) for tool in request.tools]
    return HarnessState(
        harness_name=redaction.identifier(name or None),
        harness_version=redaction.identifier(version or None),
        harness_fingerprint=keyed_digest(key, name, version, system_print or "", tools_print or ""),
        system_prompt_fingerprint=system_print,
        tools=tuple(redaction.identifier(n) or "" for n in names if isinstance(n, str)),
        tools_fingerprint=tools_print,
        sampling=redaction.body("sampling", dumps(request.sampling)),
    )


def _tool_name(tool: Any) -> Any:
    """The name, which some dialects put inside the tool's function."""
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else tool.get("name")


def _fingerprint(key: bytes, kind: str, value: Any) -> str | None:
    return keyed_digest(key, kind, dumps(value)) if value else None


def _gaps(exchange: Exchange, response: ChatResponse | None, place: Place,
          redaction: EventRedaction, outcome: Outcome) -> tuple[Gap, ...]:  # fmt: skip
    found = []
    if exchange.extras_shown:
        found.append(gaps.TOKENS_SHOWN)
    if place.gap is not None:
        found.append(gaps.lineage(place.gap))
    if redaction.surrogates_replaced:
        found.append(gaps.SURROGATES_REPLACED)
    if redaction.token_data_dropped:
        found.append(gaps.TOKENS_IN_MESSAGES_DROPPED)
    if outcome is not Outcome.COMPLETE or (response is not None and response.damaged):
        found.append(gaps.RESPONSE_INCOMPLETE)
    elif response is None:
        found.append(gaps.RESPONSE_NOT_PARSED)
    return tuple(found)


def _token_gaps(answer: ChatResponse, *, withheld: bool) -> tuple[Gap, ...]:
    if withheld and answer.has_tokens:
        return (gaps.TOKENS_WITHHELD,)
    if not answer.token_ids:
        return (gaps.TOKENS_NOT_IN_RESPONSE,)
    found = []
    if len(answer.outputs) > 1:
        found.append(gaps.OTHER_CHOICES_WITHOUT_TOKENS)
    if len(answer.logprobs) != len(answer.token_ids):
        found.append(gaps.LOGPROBS_NOT_IN_RESPONSE)
    return tuple(found)
