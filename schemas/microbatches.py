"""Micro-batches on the bus: small ones whole, large ones as a claim check."""

from dataclasses import replace

from schemas import topics
from schemas.atdp.training import MicroBatch
from schemas.bus.api import Record
from schemas.codec import decode, encode
from schemas.errors import PermanentError, Reason
from schemas.store import BlobStore

#: A larger record goes to the blob store and leaves its claim check on the topic.
MAX_INLINE_BYTES = 256_000
#: Blobs of micro-batches lie in a folder of their own: they hold samples of several tenants, and
#: no tenant has such a name.
BLOB_OWNER = "_microbatches"


def microbatch_record(batch: MicroBatch, blobs: BlobStore) -> Record:
    """The record of a batch, its blob stored. TransientError while the blob store refuses it."""
    value = encode(batch)
    if len(value) > MAX_INLINE_BYTES:
        uri = blobs.put(BLOB_OWNER, value)
        value = encode(replace(batch, sequences=(), sequences_uri=uri))
    return Record(topics.MICROBATCHES, batch.policy.encode(), value)


def read_microbatch(value: bytes | None, blobs: BlobStore) -> MicroBatch:
    """The batch in a record's value, its sequences fetched.

    PermanentError for a value that is no micro-batch, or whose blob is gone or is of another one.
    """
    batch = decode(value)
    if not isinstance(batch, MicroBatch):
        raise PermanentError(Reason.UNEXPECTED_EVENT)
    if batch.sequences_uri is None:
        return batch
    whole = decode(blobs.get(BLOB_OWNER, batch.sequences_uri))
    if not isinstance(whole, MicroBatch) or whole.batch_id != batch.batch_id:
        raise PermanentError(Reason.BLOB_MISSING)
    return whole
