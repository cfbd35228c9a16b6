"""Records about versions of a policy's weights, in the same form as the protocol's."""

from datetime import datetime
from enum import StrEnum

from schemas.atdp.internal import PartitionOffset
from schemas.atdp.record import doc, record


class ManifestKind(StrEnum):
    """What a manifest describes."""

    UNKNOWN = "unknown"
    DELTA = "delta"
    SNAPSHOT = "snapshot"
    ADAPTER = "adapter"


class AckStatus(StrEnum):
    """What a worker did with a version."""

    UNKNOWN = "unknown"
    STAGED = "staged"
    APPLIED = "applied"
    REFUSED = "refused"
    QUARANTINED = "quarantined"


class RingState(StrEnum):
    """What a ring of workers is doing."""

    UNKNOWN = "unknown"
    STABLE = "stable"
    CANARY = "canary"
    ROLLED_BACK = "rolled_back"
    FROZEN = "frozen"


class ProposalStatus(StrEnum):
    """What became of a proposal."""

    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    HELD = "held"


@record
class ChunkRef:
    """Where one part of a payload lies on weights.chunks.v1."""

    partition: int = doc("partition number")
    offset: int = doc("offset in the partition")
    num_bytes: int = doc("bytes of the part")
    xxh3: str = doc("XXH3-128 of the part, hex")


@record
class BlobRef:
    """A blob that a manifest needs."""

    uri: str = doc("where it lies, by its content")
    sha256: str = doc("SHA-256 of it, hex")
    num_bytes: int = doc("bytes of it")


@record
class TensorDigest:
    """One tensor that changed, or one of a snapshot."""

    name: str = doc("name of the tensor")
    dtype: str = doc("number format, as safetensors names it")
    shape: tuple[int, ...] = doc("its dimensions", default=())
    digest: str = doc("XXH3-128 of its bytes in this version, hex")
    num_changed: int = doc("elements that differ from the version before", default=0)


@record
class Statistic:
    """A number about the training step that made a version."""

    name: str = doc("what was measured")
    value: float = doc("the number")


@record
class WeightsManifest:
    """A version of a policy's weights: where its payload lies, and how it is proved."""

    policy: str = doc("policy line")
    version: int = doc("version, unique within the policy")
    kind: ManifestKind = doc("what the payload is", default=ManifestKind.UNKNOWN)
    epoch: int = doc("number of the publisher; higher ones replace lower ones")
    from_version: int | None = doc("version that a delta starts from", default=None)
    from_root: str | None = doc("root that a delta starts from, hex", default=None)
    root: str = doc("SHA-256 over the leaves of all tensors, hex")
    codec: str = doc("format of the payload: ulpgap/1 or safetensors")
    dtype: str = doc("number format of the tensors, or mixed")
    num_elements: int = doc("elements of all tensors", default=0)
    num_changed: int = doc("elements that a delta changes", default=0)
    density: float = doc("share of the elements that a delta changes", default=0.0)
    num_bytes: int = doc("bytes of the payload", default=0)
    sha256: str = doc("SHA-256 of a delta's payload, hex; of a snapshot each blob has its own")
    parts: tuple[ChunkRef, ...] = doc("parts of the payload on the topic, in order", default=())
    blobs: tuple[BlobRef, ...] = doc("blobs that hold the payload instead, in order", default=())
    tensors: tuple[TensorDigest, ...] = doc(
        "tensors that a delta changes, or all of a snapshot", default=()
    )
    trainer_step: int | None = doc("optimizer step that made it", default=None)
    data_watermark: tuple[PartitionOffset, ...] = doc(
        "offsets up to which training data was used", default=()
    )
    statistics: tuple[Statistic, ...] = doc("loss and the like", default=())
    created_at: datetime = doc("when it was published")
    signature: str | None = doc("HMAC-SHA256 over all other fields, hex", default=None)


@record
class VersionRef:
    """A version, and the root that proves it."""

    version: int = doc("version of the policy")
    root: str = doc("SHA-256 over its leaves, hex")


@record
class Proposal:
    """Somebody wants a version to be served. One writer a key: the trainer or the command line."""

    policy: str = doc("policy line")
    target: VersionRef = doc("the version")
    proposed_by: str = doc("trainer, or who typed the command")
    reason: str = doc("why, in words", default="")
    evidence: str = doc("JSON object without payload text", default="{}")
    epoch: int = doc("number of the publisher that made the version", default=0)
    ring: str = doc("ring that shall serve it", default="default")
    canary_share: float | None = doc(
        "share of the trajectories that it gets on trial; all where absent", default=None
    )
    proposed_at: datetime = doc("when")


@record
class ProposalAnswer:
    """What became of the latest proposal of a version."""

    proposal_id: str = doc("derived from the content of the proposal")
    policy: str = doc("policy line")
    ring: str = doc("ring it was meant for")
    version: int = doc("version that was proposed")
    status: ProposalStatus = doc("what became of it", default=ProposalStatus.UNKNOWN)
    reason: str = doc("why, in words", default="")
    sequence: int | None = doc("sequence of the assignment that it led to", default=None)
    answered_at: datetime = doc("when")


@record
class RingAssignment:
    """What a ring of workers serves: the whole of it, so that the latest record is enough."""

    policy: str = doc("policy line")
    ring: str = doc("name of the ring")
    stable: VersionRef = doc("version of most traffic")
    canary: VersionRef | None = doc("version on trial", default=None)
    canary_share: float = doc("share of the trajectories that the canary gets", default=0.0)
    canary_workers: tuple[str, ...] = doc("workers that serve the canary", default=())
    served: tuple[VersionRef, ...] = doc(
        "stable versions before this one, the latest first, none twice, at most 20", default=()
    )
    acks_from: int = doc(
        "offset on weights.acks.v1 from which acks may be about this assignment", default=0
    )
    state: RingState = doc("what the ring is doing", default=RingState.UNKNOWN)
    decision_id: str = doc("the decision behind it")
    reason: str = doc("why, in words", default="")
    evidence: str = doc("JSON object without payload text", default="{}")
    epoch: int = doc("number of the process that assigns", default=0)
    sequence: int = doc("1, then higher with each assignment of the ring")
    decided_at: datetime = doc("when")


@record
class WeightsAck:
    """What a worker did with a version. A version is served only where it was applied."""

    worker_id: str = doc("the worker")
    policy: str = doc("policy line")
    version: int = doc("version it is about")
    root: str | None = doc("root that the worker proved, hex", default=None)
    status: AckStatus = doc("what became of it", default=AckStatus.UNKNOWN)
    stage_ms: float | None = doc("milliseconds of fetching and staging", default=None)
    pause_ms: float | None = doc("milliseconds in which the engine stood still", default=None)
    apply_ms: float | None = doc("milliseconds from manifest to proof", default=None)
    error: str | None = doc("why not, from the closed list of refusals", default=None)
    occurred_at: datetime = doc("when")


@record
class WorkerHeartbeat:
    """A worker is there. The latest record of a worker counts."""

    worker_id: str = doc("the worker")
    address: str = doc("base URL of its LLM API")
    policy: str = doc("policy line it serves")
    rings: tuple[str, ...] = doc("rings it belongs to", default=())
    version: int | None = doc("version it proved last", default=None)
    root: str | None = doc("root of it, hex", default=None)
    started_at: datetime = doc("when it started")
    heartbeat_at: datetime = doc("when it said so")


__all__ = [
    "AckStatus", "BlobRef", "ChunkRef", "ManifestKind", "Proposal", "ProposalAnswer",
    "ProposalStatus", "RingAssignment", "RingState", "Statistic", "TensorDigest", "VersionRef",
    "WeightsAck", "WeightsManifest", "WorkerHeartbeat",
]  # fmt: skip
