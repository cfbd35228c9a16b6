"""The records of ATDP v1.

One `Step` is one decision. It carries six classes of metadata, each a record of its own:
`Observation`, `HarnessState`, `ActionResult`, `RewardSignal`, `ModelVersion`, `Governance`;
beside them `Lineage` and `Gap`. Causal records never change; rewards are late-bound events
that point at them. Times are aware UTC, with microseconds. Nothing is filled in silently:
what was not captured is a `Gap`.
"""

from datetime import datetime
from enum import StrEnum

from schemas.atdp.record import doc, nested, record


class StepKind(StrEnum):
    """What the agent did."""

    UNKNOWN = "unknown"
    MODEL_CALL = "model_call"
    TOOL_CALL = "tool_call"
    RETRIEVAL = "retrieval"
    MEMORY_ACCESS = "memory_access"
    APPROVAL = "approval"
    MESSAGE = "message"


class Outcome(StrEnum):
    """How the exchange ended."""

    UNKNOWN = "unknown"
    COMPLETE = "complete"
    CLIENT_ABORTED = "client_aborted"
    UPSTREAM_ERROR = "upstream_error"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    GATEWAY_CRASHED = "gateway_crashed"


class Replayability(StrEnum):
    """Whether running the step again can give the same answer."""

    NON_REPLAYABLE = "non_replayable"
    APPROXIMATE = "approximate"
    DETERMINISTIC = "deterministic"


class RedactionStatus(StrEnum):
    """What redaction did with the step."""

    UNKNOWN = "unknown"
    CLEAN = "clean"
    REDACTED = "redacted"


class RewardKind(StrEnum):
    """The form of a learning signal."""

    UNKNOWN = "unknown"
    SCALAR = "scalar"
    LABEL = "label"
    CRITIQUE = "critique"
    DEMONSTRATION = "demonstration"
    PREFERENCE = "preference"


class RewardStatus(StrEnum):
    """How settled the reward of a trajectory is."""

    NONE = "none"
    PROVISIONAL = "provisional"
    FINAL = "final"
    REVISED = "revised"


class TrajectorySource(StrEnum):
    """Who named the trajectory of a captured call."""

    NONE = "none"
    HEADER = "header"
    PATH = "path"
    SESSION = "session"


@record
class Message:
    """One message of a conversation."""

    role: str = doc("system, developer, user, assistant, tool, or as the dialect calls it")
    body: str = doc("the whole message as JSON text in its dialect, keys in their order")


@record
class Gap:
    """Something that was not captured."""

    field: str = doc("the field that is missing or incomplete")
    reason: str = doc("why, from the closed list in docs/gaps.md")


@record
class RedactedSpan:
    """A span of private text that was replaced."""

    path: str = doc("where: new_messages/<i> or output/<i>, then the JSON pointer of the leaf")
    kind: str = doc("kind of data, such as EMAIL_ADDRESS")
    start: int = doc("first code point of the span in the original leaf")
    end: int = doc("code point after the span in the original leaf")
    placeholder: str = doc("what stands there now")


@record
class Coordinates:
    """Where a record lies on the bus."""

    topic: str = doc("topic name")
    partition: int = doc("partition number")
    offset: int = doc("offset in the partition")


@record
class Lineage:
    """Where a step stands in its trajectory."""

    parent_step_id: str | None = doc("the step whose messages this one extends", default=None)
    branch: str | None = doc("name of the branch, absent on the trunk", default=None)
    subagent_id: str | None = doc("which subagent decided", default=None)
    step_index: int = doc("number of ancestors", default=0)
    attempt_of: str | None = doc("the step that this is a further attempt of", default=None)


@record
class Observation:
    """What the agent saw."""

    new_messages: tuple[Message, ...] = doc(
        "messages that the parent step did not hold", default=()
    )
    context_messages: int = doc("number of messages in the whole context", default=0)
    context_digest: str | None = doc(
        "HMAC over the chain of messages up to this call", default=None
    )
    retrieved_items: tuple[str, ...] = doc("retrieved documents, each as JSON text", default=())
    tool_results: tuple[str, ...] = doc(
        "tool results outside messages, each as JSON text", default=()
    )
    memory_reads: tuple[str, ...] = doc("memory items read, each as JSON text", default=())


@record
class HarnessState:
    """What surrounded the model."""

    reasoning: str | None = doc("the model's reasoning where it is visible", default=None)
    harness_name: str | None = doc("name of the agent program", default=None)
    harness_version: str | None = doc("version of the agent program", default=None)
    harness_fingerprint: str | None = doc(
        "HMAC over all parts of this record that are known", default=None
    )
    system_prompt_fingerprint: str | None = doc("HMAC of the system prompt", default=None)
    tools: tuple[str, ...] = doc("names of the tools offered", default=())
    tools_fingerprint: str | None = doc("HMAC of the tool schemas", default=None)
    sampling: str | None = doc("sampling parameters as a JSON object", default=None)
    memory_snapshot: str | None = doc("version or digest of the memory", default=None)
    chat_template_fingerprint: str | None = doc("digest of the chat template", default=None)
    retrieval_index_version: str | None = doc("version of the retrieval index", default=None)
    guardrail_version: str | None = doc("version of the guardrails", default=None)


@record
class Usage:
    """Token counts as the provider reported them."""

    prompt_tokens: int | None = doc("tokens in the prompt", default=None)
    completion_tokens: int | None = doc("tokens in the completion", default=None)
    cached_tokens: int | None = doc("prompt tokens read from a cache", default=None)
    reasoning_tokens: int | None = doc("completion tokens spent on reasoning", default=None)


@record
class TokenSpan:
    """Tokens in a row."""

    start: int = doc("index of the first token")
    end: int = doc("index after the last token")


@record
class ActionResult:
    """What the agent did and what came of it."""

    output: tuple[Message, ...] = doc("output messages, one a choice", default=())
    prompt_token_ids: tuple[int, ...] = doc("token ids of the prompt", default=())
    token_ids: tuple[int, ...] = doc("token ids of the first choice", default=())
    logprobs: tuple[float, ...] = doc(
        "log-probability of each token id outside changed_tokens, in nats", default=()
    )
    changed_tokens: tuple[TokenSpan, ...] = doc(
        "spans of token_ids that stand for what redaction changed: the policy did not sample them",
        default=(),
    )
    approximate_from: int | None = doc(
        "index of the first of token_ids before which redaction changed text, so that the "
        "log-probabilities from there on are of another context; absent where nothing changed",
        default=None,
    )
    finish_reason: str | None = doc("why generation stopped, first choice", default=None)
    tool_result: str | None = doc("result of a tool call, as JSON text", default=None)
    error_class: str | None = doc("class of the error, from a closed list", default=None)
    http_status: int | None = doc("status the client received", default=None)
    latency_ms: float | None = doc("milliseconds from request to last byte", default=None)
    first_byte_ms: float | None = doc(
        "milliseconds from request to first byte of the answer", default=None
    )
    attempts: int = doc("number of tries the gateway made", default=1)
    usage: Usage = nested("token counts", Usage)


@record
class RewardSignal:
    """A learning signal present when the step was captured."""

    name: str = doc("what is rated")
    value: bool | float | None = doc("the number or truth value", default=None)
    label: str | None = doc("the label", default=None)


@record
class VersionSpan:
    """Tokens that one policy version produced."""

    start: int = doc("index of the first token")
    end: int = doc("index after the last token")
    policy_version: int = doc("version that produced them")


@record
class ModelVersion:
    """Which model answered. Absent rather than wrong."""

    requested_model: str | None = doc("model named in the request", default=None)
    model: str | None = doc("model named in the response", default=None)
    policy: str | None = doc("policy line", default=None)
    policy_version: int | None = doc("proved version of the policy", default=None)
    spans: tuple[VersionSpan, ...] = doc("token spans per version", default=())
    weights_root: str | None = doc("root digest of the weights", default=None)
    engine: str | None = doc("inference engine", default=None)
    engine_version: str | None = doc("version of the engine", default=None)
    upstream: str | None = doc(
        "name of the configured upstream, or id of the worker of a ring, that answered or was "
        "tried last", default=None,
    )  # fmt: skip


@record
class Governance:
    """What may be done with the step, and by whom."""

    data_classes: tuple[str, ...] = doc("kinds of private data found", default=())
    redaction_status: RedactionStatus = doc("what redaction did", default=RedactionStatus.UNKNOWN)
    redaction_policy_version: str | None = doc("policy and detector version", default=None)
    redactions: tuple[RedactedSpan, ...] = doc("spans replaced", default=())
    consent: str | None = doc("consent under which the data was given", default=None)
    legal_basis: str | None = doc("legal basis of processing", default=None)
    retention_class: str | None = doc("how long it may be kept", default=None)
    human_review: str | None = doc("state of a human review", default=None)
    training_eligible: bool = doc("whether a trainer may learn from it", default=False)
    visible_to: tuple[str, ...] = doc("roles that may read it, empty for the tenant", default=())


@record
class Step:
    """One decision of an agent."""

    step_id: str = doc("id, unique within the tenant")
    event_id: str = doc("id of the event that captured it")
    tenant_id: str = doc("owner")
    key_id: str | None = doc(
        "encryption key of the trajectory, absent when not encrypted", default=None
    )
    trajectory_id: str = doc("trajectory, unique within the tenant")
    task_key: str | None = doc("what is being attempted", default=None)
    agent_id: str | None = doc("which agent", default=None)
    kind: StepKind = doc("what was done", default=StepKind.MODEL_CALL)
    dialect: str = doc("wire dialect of the messages", default="atdp")
    started_at: datetime = doc("when it began")
    ended_at: datetime | None = doc("when it ended", default=None)
    outcome: Outcome = doc("how it ended", default=Outcome.COMPLETE)
    response_id: str | None = doc("id the provider gave the response", default=None)
    lineage: Lineage = nested("place in the trajectory", Lineage)
    observation: Observation = nested("what the agent saw", Observation)
    harness_state: HarnessState = nested("what surrounded the model", HarnessState)
    action_and_result: ActionResult = nested("what was done and what came of it", ActionResult)
    reward_signals: tuple[RewardSignal, ...] = doc("signals present at capture", default=())
    model_version: ModelVersion = nested("which model answered", ModelVersion)
    governance: Governance = nested("what may be done with it", Governance)
    gaps: tuple[Gap, ...] = doc("what was not captured, and why", default=())
    replayability: Replayability = doc("can it be run again", default=Replayability.NON_REPLAYABLE)
    raw_digest: str | None = doc("HMAC of the original request and response", default=None)
    source: Coordinates | None = doc("raw record it was made from", default=None)
    replay_epoch: int = doc("number of the processing that made it", default=0)
    replayed: bool = doc("made again by a replay of records handled before", default=False)


@record
class Reward:
    """A learning signal about a step or a trajectory, joined and redacted."""

    reward_id: str = doc("id, unique within the tenant")
    tenant_id: str = doc("owner")
    key_id: str | None = doc("encryption key of the trajectory", default=None)
    trajectory_id: str = doc("trajectory it rates")
    step_id: str | None = doc("step it rates, absent for the whole trajectory", default=None)
    name: str = doc("what is rated")
    kind: RewardKind = doc("form of the signal", default=RewardKind.SCALAR)
    value: bool | float | None = doc("the number or truth value", default=None)
    label: str | None = doc("the label", default=None)
    text: str | None = doc("critique, demonstration or preference, redacted", default=None)
    redactions: tuple[RedactedSpan, ...] = doc("spans replaced in text or label", default=())
    source: str = doc("explicit or implicit, and through which door", default="explicit")
    rater_id: str | None = doc("who rated, taken from the key", default=None)
    confidence: float | None = doc("0 to 1", default=None)
    revision: int = doc("1, then higher for each correction", default=1)
    retracted: bool = doc("true when it no longer counts", default=False)
    final: bool = doc("true when no further reward is expected", default=False)
    task_key: str | None = doc("what was attempted", default=None)
    occurred_at: datetime = doc("when the judgement was made")
    received_at: datetime = doc("when the gateway or producer took it")
    digest: str = doc("HMAC of the content, breaks ties")
    raw: Coordinates | None = doc("raw record it was made from", default=None)
    replay_epoch: int = doc("number of the processing that made it", default=0)
    replayed: bool = doc("made again by a replay of records handled before", default=False)


@record
class TrajectoryEnd:
    """The agent or its operator says that a trajectory is over."""

    event_id: str = doc("id of the event")
    tenant_id: str = doc("owner")
    trajectory_id: str = doc("trajectory that ended")
    reason: str | None = doc("why", default=None)
    occurred_at: datetime = doc("when it ended")
    raw: Coordinates | None = doc("raw record it was made from", default=None)
    replay_epoch: int = doc("number of the processing that made it", default=0)


@record
class Header:
    """One HTTP header."""

    name: str = doc("name in lower case")
    value: str = doc("value")


@record
class Exchange:
    """A captured HTTP call, original text and all. Lives on the raw topic only."""

    event_id: str = doc("id of the capture")
    tenant_id: str = doc("owner, taken from the key")
    key_id: str | None = doc("encryption key of the trajectory", default=None)
    step_id: str = doc("id the step gets")
    idempotency_key: str | None = doc("given by the client", default=None)
    trajectory_id: str | None = doc("named by the client", default=None)
    trajectory_source: TrajectorySource = doc("who named it", default=TrajectorySource.NONE)
    parent_step_id: str | None = doc("named by the client", default=None)
    agent_id: str | None = doc("named by the client or by the key", default=None)
    task_key: str | None = doc("named by the client", default=None)
    api_key_id: str | None = doc("id of the headrace key, never the key", default=None)
    training_eligible: bool = doc("policy of the tenant at capture", default=False)
    method: str = doc("HTTP method")
    path: str = doc("path as the upstream saw it, without query")
    query: str = doc("query string", default="")
    request_headers: tuple[Header, ...] = doc("without credentials", default=())
    request_body: bytes = doc("body as the client sent it", default=b"")
    request_body_uri: str | None = doc("claim check when the body is large", default=None)
    status: int | None = doc("HTTP status of the upstream", default=None)
    response_headers: tuple[Header, ...] = doc("without cookies", default=())
    response_body: bytes = doc("body as the upstream sent it, all chunks in a row", default=b"")
    response_body_uri: str | None = doc("claim check when the body is large", default=None)
    outcome: Outcome = doc("how it ended", default=Outcome.COMPLETE)
    error_class: str | None = doc("class of the error, from a closed list", default=None)
    attempts: int = doc("number of tries the gateway made", default=1)
    policy_version: int | None = doc("proved by the worker that answered", default=None)
    started_at: datetime = doc("when the request arrived")
    first_byte_at: datetime | None = doc("when the first byte of the answer came", default=None)
    ended_at: datetime | None = doc("when the last byte was relayed", default=None)
    policy: str | None = doc("policy line of the worker that answered", default=None)
    weights_root: str | None = doc("root of the weights that answered, hex", default=None)
    added_fields: tuple[str, ...] = doc(
        "fields of the request that the gateway set; request_body lacks them", default=()
    )
    extras_shown: bool = doc(
        "the answer to the added fields could not be hidden from the client", default=False
    )
    upstream: str | None = doc(
        "name of the configured upstream, or id of the worker of a ring, that answered or was "
        "tried last", default=None,
    )  # fmt: skip


@record
class FeedbackTarget:
    """What feedback is about; exactly one is given."""

    trajectory_id: str | None = doc("a trajectory", default=None)
    step_id: str | None = doc("a step", default=None)
    response_id: str | None = doc("the provider's id of a response", default=None)


@record
class Feedback:
    """A learning signal as it came in, original text and all. Lives on raw topics only."""

    reward_id: str = doc("id, unique within the tenant")
    tenant_id: str = doc("owner, taken from the key")
    key_id: str | None = doc("encryption key of the trajectory", default=None)
    target: FeedbackTarget = nested("what it is about", FeedbackTarget)
    name: str = doc("what is rated")
    kind: RewardKind = doc("form of the signal", default=RewardKind.SCALAR)
    value: bool | float | None = doc("the number or truth value", default=None)
    label: str | None = doc("the label", default=None)
    text: str | None = doc("critique, demonstration or preference", default=None)
    source: str = doc("explicit or implicit, and through which door", default="explicit")
    rater_id: str | None = doc("who rated, taken from the key", default=None)
    confidence: float | None = doc("0 to 1", default=None)
    revision: int = doc("1, then higher for each correction", default=1)
    retract: bool = doc("true to take it back", default=False)
    final: bool = doc("true when no further reward is expected", default=False)
    task_key: str | None = doc("what was attempted", default=None)
    occurred_at: datetime = doc("when the judgement was made")
    received_at: datetime = doc("when the gateway or producer took it")
