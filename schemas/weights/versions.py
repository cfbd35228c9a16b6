"""Reading versions: the chain of manifests, their payloads, and whole weights from them."""

import hashlib
import time

from schemas import codec, topics
from schemas.atdp.weights import ManifestKind, WeightsManifest
from schemas.bus.api import Bus, Consumer, Received, read_to_end
from schemas.errors import HeadraceError, PermanentError, TransientError
from schemas.store import BlobStore
from schemas.weights import checkpoints, chunks, ulpgap
from schemas.weights.manifests import History, digests_in
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Patch, Shadow
from schemas.weights.tensors import Tensor

#: The folder of all weights in the blob store. No tenant can have this name.
BLOB_OWNER = "_weights"
_FETCH_SECONDS = 60.0


def read_history(bus: Bus, policy: str, key: bytes | None = None) -> History:
    """All committed manifests of a policy. With `key` unsigned ones are refused."""
    history = History(policy)
    manifests = (manifest_in(record) for record in read_to_end(bus, topics.WEIGHTS_VERSIONS))
    history.take_all((m for m in manifests if m is not None and m.policy == policy), key)
    return history


def policies(bus: Bus) -> list[str]:
    """Every policy that has a manifest."""
    manifests = (manifest_in(record) for record in read_to_end(bus, topics.WEIGHTS_VERSIONS))
    return sorted({m.policy for m in manifests if m is not None})


def manifest_in(record: Received) -> WeightsManifest | None:
    """The manifest of a record; None for a tombstone or a record that is none."""
    try:
        event = codec.decode(record.value)
    except PermanentError:
        return None
    return event if isinstance(event, WeightsManifest) else None


class PartReader:
    """Reads the parts of payloads. Its connection lasts from one version to the next, since making
    one takes longer than reading what a version has. Blocks; for one thread."""

    def __init__(self, bus: Bus, timeout_seconds: float = _FETCH_SECONDS) -> None:
        self._bus, self._timeout_seconds = bus, timeout_seconds
        self._consumer: Consumer | None = None

    def read(self, manifest: WeightsManifest) -> list[Received]:
        """What lies at the offsets of the parts. Publishers write all parts to one partition.

        RefusedError when the topic keeps the first one no more, TransientError when they do not
        come in time.
        """
        partition, first = manifest.parts[0].partition, manifest.parts[0].offset
        try:
            if self._consumer is None:
                self._consumer = self._bus.consumer()
            self._consumer.assign({(topics.WEIGHTS_CHUNKS, partition): first})
            found = self._read(self._consumer, manifest)
            # With nothing to wait for the next assignment is looked at without delay.
            self._consumer.assign({})
        except HeadraceError:
            self.close()
            raise
        if all(record.offset != first for record in found):
            self._require_kept(manifest)
        return found

    def _read(self, consumer: Consumer, manifest: WeightsManifest) -> list[Received]:
        wanted = {(part.partition, part.offset) for part in manifest.parts}
        at, last = manifest.parts[0].offset, manifest.parts[-1].offset
        found: list[Received] = []
        deadline = time.monotonic() + self._timeout_seconds
        while at <= last:
            # One at a time: a poll for more waits for them, though all there is has come.
            received = consumer.poll(1, 0.2)
            found += [r for r in received if (r.partition, r.offset) in wanted]
            at = max([at, *(r.offset + 1 for r in received)])
            if at <= last and not received and consumer.at_end():
                break  # the manifest names what is not there
            if time.monotonic() > deadline:
                raise TransientError("The parts of a version did not come in time.")
        return found

    def _require_kept(self, manifest: WeightsManifest) -> None:
        """Tell parts that are kept no more from parts that were never there."""
        partition, first = manifest.parts[0].partition, manifest.parts[0].offset
        admin = self._bus.admin()
        try:
            kept = admin.watermarks(topics.WEIGHTS_CHUNKS).get(partition)
        finally:
            admin.close()
        if kept is None or first < kept[0]:
            raise RefusedError(Refusal.CHUNKS_EXPIRED, f"version {manifest.version}")

    def close(self) -> None:
        """Release the connection. It is made anew when it is needed."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def fetch(parts: PartReader, blobs: BlobStore, manifest: WeightsManifest) -> bytes:
    """The payload of a delta, proved against its manifest.

    RefusedError says what is wrong with it; TransientError that it did not come in time.
    """
    if not manifest.blobs:
        chunks.require_parts(manifest)
        return chunks.joined(manifest, parts.read(manifest))
    payload = b"".join(_blob(blobs, blob.uri) for blob in manifest.blobs)
    if hashlib.sha256(payload).hexdigest() != manifest.sha256:
        raise RefusedError(Refusal.CORRUPT, f"version {manifest.version}")
    return payload


def _blob(blobs: BlobStore, uri: str) -> bytes:
    try:
        return blobs.get(BLOB_OWNER, uri)
    except PermanentError as error:
        raise RefusedError(Refusal.BLOB_MISSING) from error


def load_snapshot(blobs: BlobStore, manifest: WeightsManifest) -> Shadow:
    """The weights of a snapshot, proved. RefusedError when they are not what the manifest says."""
    tensors: dict[str, Tensor] = {}
    for blob in manifest.blobs:
        found = checkpoints.read_shard(_blob(blobs, blob.uri))
        if tensors.keys() & found.keys():
            raise RefusedError(Refusal.CORRUPT, f"version {manifest.version}")
        tensors |= {name: Tensor(t.spec, t.bits.copy()) for name, t in found.items()}
    shadow = Shadow(tensors, copy=False)
    if shadow.root != manifest.root:
        raise RefusedError(Refusal.WRONG_ROOT, f"version {manifest.version}")
    return shadow


def advance(
    parts: PartReader, blobs: BlobStore, shadow: Shadow, manifest: WeightsManifest
) -> Patch:
    """Move a shadow by one delta and prove it; what to write into an engine. All or nothing."""
    if manifest.kind is not ManifestKind.DELTA or manifest.codec != ulpgap.CODEC:
        raise RefusedError(Refusal.UNKNOWN_CODEC, f"version {manifest.version}")
    if manifest.from_root != shadow.root:
        raise RefusedError(Refusal.WRONG_BASE, f"version {manifest.version}")
    delta = ulpgap.unpack(fetch(parts, blobs, manifest), shadow.layout)
    if (delta.from_root, delta.root) != (manifest.from_root, manifest.root):
        raise RefusedError(Refusal.WRONG_ROOT, f"version {manifest.version}")
    # The root covers every tensor; the lines, where they were kept, name the one that is wrong.
    return shadow.apply(delta, digests_in(manifest) if manifest.tensors else None)


def restore(bus: Bus, blobs: BlobStore, history: History, version: int) -> Shadow:
    """The weights of a version from its nearest snapshot: what somebody does who comes late."""
    snapshot, deltas = history.path_to(version)
    shadow, parts = load_snapshot(blobs, snapshot), PartReader(bus)
    try:
        for manifest in deltas:
            advance(parts, blobs, shadow, manifest)
    finally:
        parts.close()
    return shadow
