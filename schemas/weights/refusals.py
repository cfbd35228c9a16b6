"""Why a version of the weights is refused: a closed list, since acknowledgements carry it."""

from enum import StrEnum

from schemas.errors import PermanentError, Reason


class Refusal(StrEnum):
    """What was wrong. The sentences below say what to do."""

    CORRUPT = "corrupt"
    UNKNOWN_CODEC = "unknown_codec"
    WRONG_LAYOUT = "wrong_layout"
    WRONG_BASE = "wrong_base"
    UNKNOWN_BASE = "unknown_base"
    NOT_FINITE = "not_finite"
    WRONG_DIGEST = "wrong_digest"
    WRONG_ROOT = "wrong_root"
    LOWER_EPOCH = "lower_epoch"
    VERSION_TAKEN = "version_taken"
    WRONG_SIGNATURE = "wrong_signature"
    CHUNK_MISSING = "chunk_missing"
    CHUNK_DUPLICATE = "chunk_duplicate"
    CHUNK_OUT_OF_ORDER = "chunk_out_of_order"
    CHUNK_CORRUPT = "chunk_corrupt"
    CHUNKS_EXPIRED = "chunks_expired"
    BLOB_MISSING = "blob_missing"
    NO_SNAPSHOT = "no_snapshot"
    ADAPTERS_OFF = "adapters_off"
    ADAPTER_REFUSED = "adapter_refused"


_HEAL = "Restore from the nearest snapshot, or publish the version again."
_SENTENCES = {
    Refusal.CORRUPT: f"The payload is not what its publisher wrote. {_HEAL}",
    Refusal.UNKNOWN_CODEC: "The payload needs a newer headrace. Update this process.",
    Refusal.WRONG_LAYOUT: "Names, dtypes or shapes of tensors differ from the base. A delta keeps "
    "them; publish another model under another policy.",
    Refusal.WRONG_BASE: f"The delta starts from other weights than these. {_HEAL}",
    Refusal.UNKNOWN_BASE: "The delta starts from a version that nobody published.",
    Refusal.NOT_FINITE: "A changed value is NaN or infinite. Find out why training diverged and "
    "go on from the version before.",
    Refusal.WRONG_DIGEST: f"A tensor has another digest than the manifest says. {_HEAL}",
    Refusal.WRONG_ROOT: f"The weights have another root than the manifest says. {_HEAL}",
    Refusal.LOWER_EPOCH: "The manifest comes from a publisher that a later one has replaced.",
    Refusal.VERSION_TAKEN: "The version is known with other weights. Publish under a new number.",
    Refusal.WRONG_SIGNATURE: "The manifest is not signed with this deployment's key.",
    Refusal.CHUNK_MISSING: f"A part of the payload is not where the manifest says. {_HEAL}",
    Refusal.CHUNK_DUPLICATE: f"A part of the payload came twice. {_HEAL}",
    Refusal.CHUNK_OUT_OF_ORDER: f"Parts of the payload are out of order. {_HEAL}",
    Refusal.CHUNK_CORRUPT: f"A part of the payload is not what its publisher wrote. {_HEAL}",
    Refusal.CHUNKS_EXPIRED: "The topic keeps the parts of the payload no more. Restore from a "
    "later snapshot.",
    Refusal.BLOB_MISSING: "A blob that the manifest names is gone or altered. Bring it back, or "
    "restore from another snapshot.",
    Refusal.NO_SNAPSHOT: "No snapshot leads to this version. Publish one.",
    Refusal.ADAPTERS_OFF: "The version is an adapter, and the worker takes none. Set "
    "HEADRACE_WORKER__MAX_LORA_RANK and start it again.",
    Refusal.ADAPTER_REFUSED: "The engine does not take the adapter: its rank is above "
    "worker.max_lora_rank, or it names modules that the model does not have.",
}
_REASONS = {
    Refusal.NOT_FINITE: Reason.NOT_FINITE,
    Refusal.BLOB_MISSING: Reason.BLOB_MISSING,
}


class RefusedError(PermanentError):
    """A version that is not taken. Nothing of it has been applied."""

    def __init__(self, refusal: Refusal, where: str = "") -> None:
        super().__init__(_REASONS.get(refusal, Reason.UNDECODABLE))
        self.refusal = refusal
        #: Name of a tensor, a version or a part; never values.
        self.where = where

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.refusal.value}{place}: {_SENTENCES[self.refusal]}"
