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

    parent_step_id: str | None = doc("the step whose messages this one extends", None)
    branch: str | None = doc("name of the branch, absent on the trunk", None)
    subagent_id: str | None = doc("which subagent decided", None)
    step_index: int = doc("number of ancestors", 0)
    attempt_of: str | None = doc("the step that this is a further attempt of", None)


@record
class Observation:
    """What the agent saw."""

    new_messages: tuple[Message, ...] = doc("messages that the parent step did not hold", ())
    context_messages: int = doc("number of messages in the whole context", 0)
    context_digest: str | None = doc("HMAC over the chain of messages up to this call", None)
    retrieved_items: tuple[str, ...] = doc("retrieved documents, each as JSON text", ())
    tool_results: tuple[str, ...] = doc("tool results outside messages, each as JSON text", ())
    memory_reads: tuple[str, ...] = doc("memory items read, each as JSON text", ())


@record
class HarnessState:
    """What surrounded the model."""

    reasoning: str | None = doc("the model's reasoning where it is visible", None)
    harness_name: str | None = doc("name of the agent program", None)
    harness_version: str | None = doc("version of the agent program", None)
    harness_fingerprint: str | None = doc("HMAC over all parts of this record that are known", None)
    system_prompt_fingerprint: str | None = doc("HMAC of the system prompt", None)
    tools: tuple[str, ...] = doc("names of the tools offered", ())
    tools_fingerprint: str | None = doc("HMAC of the tool schemas", None)
    sampling: str | None = doc("sampling parameters as a JSON object", None)
    memory_snapshot: str | None = doc("version or digest of the memory", None)
    chat_template_fingerprint: str | None = doc("digest of the chat template", None)
    retrieval_index_version: str | None = doc("version of the retrieval index", None)
    guardrail_version: str | None = doc("version of the guardrails", None)


@record
class Usage:
    """Token counts as the provider reported them."""

    prompt_tokens: int | None = doc("tokens in the prompt", None)
    completion_tokens: int | None = doc("tokens in the completion", None)
    cached_tokens: int | None = doc("prompt tokens read from a cache", None)
    reasoning_tokens: int | None = doc("completion tokens spent on reasoning", None)


@record
class ActionResult:
    """What the agent did and what came of it."""

    output: tuple[Message, ...] = doc("output messages, one a choice", ())
    prompt_token_ids: tuple[int, ...] = doc("token ids of the prompt", ())
    token_ids: tuple[int, ...] = doc("token ids of the first choice", ())
    logprobs: tuple[float, ...] = doc("log-probability of each token id, in nats", ())
    finish_reason: str | None = doc("why generation stopped, first choice", None)
    tool_result: str | None = doc("result of a tool call, as JSON text", None)
    error_class: str | None = doc("class of the error, from a closed list", None)
    http_status: int | None = doc("status the client received", None)
    latency_ms: float | None = doc("milliseconds from request to last byte", None)
    first_byte_ms: float | None = doc("milliseconds from request to first byte of the answer", None)
    attempts: int = doc("number of tries the gateway made", 1)
    usage: Usage = nested("token counts", Usage)


@record
class RewardSignal:
    """A learning signal present when the step was captured."""

    name: str = doc("what is rated")
    value: bool | float | None = doc("the number or truth value", None)
    label: str | None = doc("the label", None)


@record
class VersionSpan:
    """Tokens that one policy version produced."""

    start: int = doc("index of the first token")
    end: int = doc("index after the last token")
    policy_version: int = doc("version that produced them")


@record
class ModelVersion:
    """Which model answered. Absent rather than wrong."""

    requested_model: str | None = doc("model named in the request", None)
    model: str | None = doc("model named in the response", None)
    policy: str | None = doc("policy line", None)
    policy_version: int | None = doc("proved version of the policy", None)
    spans: tuple[VersionSpan, ...] = doc("token spans per version", ())
    weights_root: str | None = doc("root digest of the weights", None)
    engine: str | None = doc("inference engine", None)
    engine_version: str | None = doc("version of the engine", None)


@record
class Governance:
    """What may be done with the step, and by whom."""

    data_classes: tuple[str, ...] = doc("kinds of private data found", ())
    redaction_status: RedactionStatus = doc("what redaction did", RedactionStatus.UNKNOWN)
    redaction_policy_version: str | None = doc("policy and detector version", None)
    redactions: tuple[RedactedSpan, ...] = doc("spans replaced", ())
    consent: str | None = doc("consent under which the data was given", None)
    legal_basis: str | None = doc("legal basis of processing", None)
    retention_class: str | None = doc("how long it may be kept", None)
    human_review: str | None = doc("state of a human review", None)
    training_eligible: bool = doc("whether a trainer may learn from it", False)  # noqa: FBT003
    visible_to: tuple[str, ...] = doc("roles that may read it, empty for the tenant", ())


@record
class Step:
    """One decision of an agent."""

    step_id: str = doc("id, unique within the tenant")
    event_id: str = doc("id of the event that captured it")
    tenant_id: str = doc("owner")
    key_id: str | None = doc("encryption key of the trajectory, absent when not encrypted", None)
    trajectory_id: str = doc("trajectory, unique within the tenant")
    task_key: str | None = doc("what is being attempted", None)
    agent_id: str | None = doc("which agent", None)
    kind: StepKind = doc("what was done", StepKind.MODEL_CALL)
    dialect: str = doc("wire dialect of the messages", "atdp")
    started_at: datetime = doc("when it began")
    ended_at: datetime | None = doc("when it ended", None)
    outcome: Outcome = doc("how it ended", Outcome.COMPLETE)
    response_id: str | None = doc("id the provider gave the response", None)
    lineage: Lineage = nested("place in the trajectory", Lineage)
    observation: Observation = nested("what the agent saw", Observation)
    harness_state: HarnessState = nested("what surrounded the model", HarnessState)
    action_and_result: ActionResult = nested("what was done and what came of it", ActionResult)
    reward_signals: tuple[RewardSignal, ...] = doc("signals present at capture", ())
    model_version: ModelVersion = nested("which model answered", ModelVersion)
    governance: Governance = nested("what may be done with it", Governance)
    gaps: tuple[Gap, ...] = doc("what was not captured, and why", ())
    replayability: Replayability = doc("can it be run again", Replayability.NON_REPLAYABLE)
    raw_digest: str | None = doc("HMAC of the original request and response", None)
    source: Coordinates | None = doc("raw record it was made from", None)
    replay_epoch: int = doc("number of the processing that made it", 0)
    replayed: bool = doc("made again by a replay of records handled before", False)  # noqa: FBT003


@record
class Reward:
    """A learning signal about a step or a trajectory, joined and redacted."""

    reward_id: str = doc("id, unique within the tenant")
    tenant_id: str = doc("owner")
    key_id: str | None = doc("encryption key of the trajectory", None)
    trajectory_id: str = doc("trajectory it rates")
    step_id: str | None = doc("step it rates, absent for the whole trajectory", None)
    name: str = doc("what is rated")
    kind: RewardKind = doc("form of the signal", RewardKind.SCALAR)
    value: bool | float | None = doc("the number or truth value", None)
    label: str | None = doc("the label", None)
    text: str | None = doc("critique, demonstration or preference, redacted", None)
    redactions: tuple[RedactedSpan, ...] = doc("spans replaced in text or label", ())
    source: str = doc("explicit or implicit, and through which door", "explicit")
    rater_id: str | None = doc("who rated, taken from the key", None)
    confidence: float | None = doc("0 to 1", None)
    revision: int = doc("1, then higher for each correction", 1)
    retracted: bool = doc("true when it no longer counts", False)  # noqa: FBT003
    final: bool = doc("true when no further reward is expected", False)  # noqa: FBT003
    task_key: str | None = doc("what was attempted", None)
    occurred_at: datetime = doc("when the judgement was made")
    received_at: datetime = doc("when the gateway or producer took it")
    digest: str = doc("HMAC of the content, breaks ties")
    raw: Coordinates | None = doc("raw record it was made from", None)
    replay_epoch: int = doc("number of the processing that made it", 0)
    replayed: bool = doc("made again by a replay of records handled before", False)  # noqa: FBT003


@record
class TrajectoryEnd:
    """The agent or its operator says that a trajectory is over."""

    event_id: str = doc("id of the event")
    tenant_id: str = doc("owner")
    trajectory_id: str = doc("trajectory that ended")
    reason: str | None = doc("why", None)
    occurred_at: datetime = doc("when it ended")
    raw: Coordinates | None = doc("raw record it was made from", None)
    replay_epoch: int = doc("number of the processing that made it", 0)


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
    key_id: str | None = doc("encryption key of the trajectory", None)
    step_id: str = doc("id the step gets")
    idempotency_key: str | None = doc("given by the client", None)
    trajectory_id: str | None = doc("named by the client", None)
    trajectory_source: TrajectorySource = doc("who named it", TrajectorySource.NONE)
    parent_step_id: str | None = doc("named by the client", None)
    agent_id: str | None = doc("named by the client or by the key", None)
    task_key: str | None = doc("named by the client", None)
    api_key_id: str | None = doc("id of the headrace key, never the key", None)
    training_eligible: bool = doc("policy of the tenant at capture", False)  # noqa: FBT003
    method: str = doc("HTTP method")
    path: str = doc("path as the upstream saw it, without query")
    query: str = doc("query string", "")
    request_headers: tuple[Header, ...] = doc("without credentials", ())
    request_body: bytes = doc("body as the client sent it", b"")
    request_body_uri: str | None = doc("claim check when the body is large", None)
    status: int | None = doc("HTTP status of the upstream", None)
    response_headers: tuple[Header, ...] = doc("without cookies", ())
    response_body: bytes = doc("body as the upstream sent it, all chunks in a row", b"")
    response_body_uri: str | None = doc("claim check when the body is large", None)
    outcome: Outcome = doc("how it ended", Outcome.COMPLETE)
    error_class: str | None = doc("class of the error, from a closed list", None)
    attempts: int = doc("number of tries the gateway made", 1)
    policy_version: int | None = doc("proved by the worker that answered", None)
    started_at: datetime = doc("when the request arrived")
    first_byte_at: datetime | None = doc("when the first byte of the answer came", None)
    ended_at: datetime | None = doc("when the last byte was relayed", None)


@record
class FeedbackTarget:
    """What feedback is about; exactly one is given."""

    trajectory_id: str | None = doc("a trajectory", None)
    step_id: str | None = doc("a step", None)
    response_id: str | None = doc("the provider's id of a response", None)


@record
class Feedback:
    """A learning signal as it came in, original text and all. Lives on raw topics only."""

    reward_id: str = doc("id, unique within the tenant")
    tenant_id: str = doc("owner, taken from the key")
    key_id: str | None = doc("encryption key of the trajectory", None)
    target: FeedbackTarget = nested("what it is about", FeedbackTarget)
    name: str = doc("what is rated")
    kind: RewardKind = doc("form of the signal", RewardKind.SCALAR)
    value: bool | float | None = doc("the number or truth value", None)
    label: str | None = doc("the label", None)
    text: str | None = doc("critique, demonstration or preference", None)
    source: str = doc("explicit or implicit, and through which door", "explicit")
    rater_id: str | None = doc("who rated, taken from the key", None)
    confidence: float | None = doc("0 to 1", None)
    revision: int = doc("1, then higher for each correction", 1)
    retract: bool = doc("true to take it back", False)  # noqa: FBT003
    final: bool = doc("true when no further reward is expected", False)  # noqa: FBT003
    task_key: str | None = doc("what was attempted", None)
    occurred_at: datetime = doc("when the judgement was made")
    received_at: datetime = doc("when the gateway or producer took it")
