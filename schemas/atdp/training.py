"""Records between samples and the trainer, in the same form as the protocol's."""

from datetime import datetime
from enum import StrEnum

from schemas.atdp.record import doc, record


class SequenceKind(StrEnum):
    """How a sequence is learned from."""

    UNKNOWN = "unknown"
    POLICY_GRADIENT = "policy_gradient"
    SUPERVISED = "supervised"
    RETRACTION = "retraction"
    DEMONSTRATION = "demonstration"
    PREFERENCE = "preference"


class SampleOutcome(StrEnum):
    """What a trajectory came to. Only success and failure carry a reward."""

    UNKNOWN = "unknown"
    SUCCESS = "success"
    FAILURE = "failure"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    ABORTED = "aborted"
    CENSORED = "censored"


class Decision(StrEnum):
    """What became of a sample. A sample that is held is decided again."""

    UNKNOWN = "unknown"
    TRAINED = "trained"
    HELD = "held"
    DROPPED = "dropped"


@record
class TrainedSpan:
    """Tokens of one sequence that one version sampled in one step, and that are trained."""

    first: int = doc("index of the first token in the sequence")
    end: int = doc("index after the last token")
    version: int | None = doc("policy version that sampled them", default=None)
    root: str | None = doc("root of its weights, hex", default=None)
    step_id: str = doc("the step")
    turn: int = doc("steps of the branch that come after this one", default=0)
    approximate: bool = doc(
        "text before it was changed by redaction, so its log-probabilities are of another context",
        default=False,
    )


@record
class TrainingSequence:
    """Tokens of one branch, or of one step, and which of them are trained on which reward.

    Every sampled token is in one trained span over all sequences of a trajectory's revision.
    A retraction has no tokens: the revision that it replaces no longer holds. A demonstration has
    those of the prompt alone, and the answer as text; a preference has prompt and given answer,
    and another answer as text.
    """

    sample_id: str = doc("the sample")
    revision: int = doc("1, then higher with each correction of the branch's reward", default=1)
    tenant_id: str = doc("owner")
    trajectory_id: str = doc("the trajectory")
    task_key: str | None = doc("what was attempted", default=None)
    kind: SequenceKind = doc("how it is learned from", default=SequenceKind.UNKNOWN)
    reward: float | None = doc("the reward, absent where none counts any more", default=None)
    token_ids: tuple[int, ...] = doc("context and completions in a row", default=())
    trained: tuple[TrainedSpan, ...] = doc("spans that are trained, in order", default=())
    logprobs: tuple[float, ...] = doc(
        "log-probabilities of the tokens of the trained spans in a row, in nats, as the engine "
        "reported them; empty where they are not known",
        default=(),
    )
    outcome: SampleOutcome = doc("what it came to", default=SampleOutcome.UNKNOWN)
    oldest_version: int | None = doc("oldest version among the trained spans", default=None)
    replayed: bool = doc("made again by a replay of records handled before", default=False)
    replaces: str | None = doc("sample of the revision before this one", default=None)
    replaced_reward: float | None = doc("reward of the revision before this one", default=None)
    answer: str | None = doc("text of the demonstrated or of the other answer", default=None)
    answer_is_better: bool = doc(
        "of a preference: the answer in text is the better one, else the given one is",
        default=True,
    )


@record
class MicroBatch:
    """Sequences that are learned from together. Only transport: what was learned is told by
    sample and revision."""

    batch_id: str = doc("hash of policy, samples and revisions")
    policy: str = doc("policy line")
    created_at: datetime = doc("when it was put together")
    sequences: tuple[TrainingSequence, ...] = doc("the sequences", default=())
    sequences_uri: str | None = doc(
        "claim check of the whole record when the sequences are large", default=None
    )
    num_sequences: int = doc("number of sequences", default=0)
    num_tokens: int = doc("tokens of all sequences", default=0)
    num_trained_tokens: int = doc("tokens that are trained", default=0)
    sample_ids: tuple[str, ...] = doc("samples in it, each once", default=())
    tenant_ids: tuple[str, ...] = doc("owners of the samples, each once", default=())
    oldest_version: int | None = doc("oldest version among the trained spans", default=None)
    newest_version: int | None = doc("newest version among the trained spans", default=None)
    policy_version: int | None = doc("newest version of the policy known then", default=None)
    replay_epoch: int = doc("number of the processing that made it", default=0)


@record
class SampleDecision:
    """What became of a sample, and why."""

    sample_id: str = doc("the sample")
    tenant_id: str = doc("owner")
    trajectory_id: str = doc("the trajectory")
    revision: int = doc("revision of its branch's reward", default=1)
    policy: str | None = doc("policy line of its steps", default=None)
    decision: Decision = doc("what became of it", default=Decision.UNKNOWN)
    decision_reason: str | None = doc("why, from the closed list in docs/learning.md", default=None)
    outcome: SampleOutcome = doc("what it came to", default=SampleOutcome.UNKNOWN)
    batch_id: str | None = doc("micro-batch that it is in", default=None)
    num_trained_tokens: int = doc("tokens of it that are trained", default=0)
    staleness: int | None = doc(
        "versions between its oldest trained token and the newest version", default=None
    )
    decided_at: datetime = doc("when")
    replay_epoch: int = doc("number of the processing that decided", default=0)


__all__ = [
    "Decision", "MicroBatch", "SampleDecision", "SampleOutcome", "SequenceKind", "TrainedSpan",
    "TrainingSequence",
]  # fmt: skip
