"""Publishing versions. What a reader sees is always whole.

    chunks or blobs, acknowledged ──▶ manifest, in a transaction ──▶ the baseline moves

A publisher that dies leaves at most chunks and blobs that no manifest names. A later publisher of
the same policy fences the earlier one at the broker before it reads what that has written, so two
never write from the same baseline; `epoch` says the same to readers.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from schemas import codec, topics
from schemas.atdp.internal import PartitionOffset
from schemas.atdp.weights import BlobRef, ChunkRef, ManifestKind, Statistic, WeightsManifest
from schemas.bus.api import Bus, Record, deliver_now, transact
from schemas.errors import ConfigError, HeadraceError
from schemas.store import BlobStore
from schemas.weights import checkpoints, chunks, ulpgap
from schemas.weights.adapters import CODEC as ADAPTER_CODEC
from schemas.weights.adapters import Adapter
from schemas.weights.manifests import History, key_of, signed, tensor_digests
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensors
from schemas.weights.versions import BLOB_OWNER, read_history

SNAPSHOT_EVERY_VERSIONS = 20
#: A snapshot is due when the deltas since the last one exceed this share of it.
SNAPSHOT_SHARE = 0.25
_DELIVERY_SECONDS = 60.0
_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


@dataclass(frozen=True, slots=True)
class Training:
    """What is known of the training behind a version."""

    trainer_step: int | None = None
    data_watermark: tuple[PartitionOffset, ...] = ()
    statistics: tuple[tuple[str, float], ...] = ()


class Publisher:
    """The one publisher of a policy. Blocks; not for several threads.

    After any error but RefusedError it is not known what readers see: close it and make a new one,
    whose `history` tells.
    """

    def __init__(
        self,
        bus: Bus,
        blobs: BlobStore,
        policy: str,
        *,
        key: bytes | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Fence earlier publishers of the policy, then read what they wrote.

        ConfigError for a name that cannot be used, TransientError when Kafka is away.
        """
        if not _POLICY.match(policy):
            raise ConfigError("Name a policy with 1 to 100 letters, digits, `.`, `_` or `-`.")
        self._bus, self._blobs, self._policy = bus, blobs, policy
        self._key, self._now = key, now
        self._transactions = bus.transactions(f"weights.{policy}")
        self._history = read_history(bus, policy, key)
        self._epoch = self._history.epoch + 1
        self._producer = bus.producer(f"weights.{policy}.chunks", compress=False)
        self._baseline: tuple[int, Shadow] | None = None
        self._failed = False

    @property
    def history(self) -> History:
        """What is committed."""
        return self._history

    @property
    def epoch(self) -> int:
        """Number of this publisher."""
        return self._epoch

    @property
    def baseline_version(self) -> int | None:
        """The version that the next delta starts from."""
        return None if self._baseline is None else self._baseline[0]

    def start_from(self, version: int, shadow: Shadow) -> None:
        """Take a committed version as the baseline; the publisher owns the shadow from now on.

        After a restart the version of the checkpoint; after a rollback or a refusal the champion.
        RefusedError when the version is not committed, or these are not its weights.
        """
        manifest = self._history.versions.get(version)
        if manifest is None:
            raise RefusedError(Refusal.UNKNOWN_BASE, f"version {version}")
        if manifest.root != shadow.root:
            raise RefusedError(Refusal.WRONG_BASE, f"version {version}")
        self._baseline = version, shadow

    def publish(
        self,
        tensors: Tensors,
        training: Training | None = None,
        on_committed: Callable[[WeightsManifest], None] = lambda _: None,
    ) -> WeightsManifest:
        """Publish the next version: the first as a snapshot, each later one as a delta.

        `on_committed` is called as soon as readers see the manifest: whoever proposes the version
        there need not wait until the baseline has moved. A snapshot is added where one is due,
        after that. RefusedError, and nothing is published, for another
        layout than the baseline's, or for changed values that are NaN or infinite.
        """
        training = training or Training()
        if self._baseline is None:
            return self._publish_first(tensors, training, on_committed)
        manifest = self._publish_delta(self._baseline[1], tensors, training, on_committed)
        if self._snapshot_is_due(manifest.version):
            self.publish_snapshot()
        return manifest

    def _publish_first(
        self, tensors: Tensors, training: Training, on_committed: Callable[[WeightsManifest], None]
    ) -> WeightsManifest:
        if self._history.versions:
            raise ConfigError(
                f"Policy {self._policy} has versions already. Restore the one to go on from, and "
                "give it to start_from."
            )
        shadow = Shadow(tensors)
        manifest = self._commit(self._snapshot_of(shadow, 1, training))
        self._baseline = 1, shadow
        on_committed(manifest)
        return manifest

    def _publish_delta(
        self,
        shadow: Shadow,
        tensors: Tensors,
        training: Training,
        on_committed: Callable[[WeightsManifest], None],
    ) -> WeightsManifest:
        delta, digests = shadow.diff(tensors)
        payload = ulpgap.pack(delta)
        version = max(self._history.versions) + 1
        parts, blobs = self._store(version, payload)
        num_changed = {name: part.positions.size for name, part in delta.changed.items()}
        manifest = replace(
            self._manifest(ManifestKind.DELTA, version, delta.root, shadow, training),
            from_version=self.baseline_version,
            from_root=delta.from_root,
            codec=ulpgap.CODEC,
            num_changed=delta.num_changed,
            density=delta.num_changed / max(delta.num_elements, 1),
            num_bytes=len(payload),
            sha256=hashlib.sha256(payload).hexdigest(),
            parts=parts,
            blobs=blobs,
            tensors=tensor_digests(shadow.layout, digests, num_changed),
        )
        manifest = self._commit(manifest)
        try:
            on_committed(manifest)
        finally:  # whatever that says, the version is there
            shadow.apply(delta, digests)
            self._baseline = version, shadow
        return manifest

    def publish_snapshot(self) -> WeightsManifest:
        """Publish all of the baseline's version, beside its delta. Harmless when there is one."""
        if self._baseline is None:
            raise RefusedError(Refusal.UNKNOWN_BASE)
        version, shadow = self._baseline
        if version in self._history.snapshots:
            return self._history.snapshots[version]
        return self._commit(self._snapshot_of(shadow, version, Training()))

    def publish_adapter(
        self, adapter: Adapter, base_version: int, training: Training | None = None
    ) -> WeightsManifest:
        """Publish an adapter on a committed version as the next version. The baseline stays.

        RefusedError, and nothing is published, for a base that is none, and for what no LoRA is.
        """
        training, tensors = training or Training(), adapter.tensors()
        base = self._history.versions.get(base_version)
        if base is None or base.kind is ManifestKind.ADAPTER:
            raise RefusedError(Refusal.UNKNOWN_BASE, f"version {base_version}")
        shadow = Shadow(tensors, copy=False)
        blobs = tuple(self._put(data) for data in adapter.files)
        version, root = max(self._history.versions) + 1, adapter.root(base.root)
        return self._commit(replace(
            self._manifest(ManifestKind.ADAPTER, version, root, shadow, training),
            from_version=base_version,
            from_root=base.root,
            codec=ADAPTER_CODEC,
            num_bytes=sum(blob.num_bytes for blob in blobs),
            sha256=hashlib.sha256(b"".join(adapter.files)).hexdigest(),
            blobs=blobs,
            tensors=tensor_digests(shadow.layout, dict(shadow.digests), {}),
        ))  # fmt: skip

    def close(self) -> None:
        """Release the connections."""
        self._producer.close()
        self._transactions.close()

    def _snapshot_is_due(self, version: int) -> bool:
        deltas = self._history.deltas_since_snapshot(version)
        assert self._baseline is not None
        num_bytes = sum(manifest.num_bytes for manifest in deltas)
        too_many = len(deltas) >= SNAPSHOT_EVERY_VERSIONS
        return too_many or num_bytes > SNAPSHOT_SHARE * self._baseline[1].num_bytes

    def _snapshot_of(self, shadow: Shadow, version: int, training: Training) -> WeightsManifest:
        blobs, whole, num_bytes = [], hashlib.sha256(), 0
        for data in checkpoints.shards(shadow.tensors):
            blobs.append(self._put(data))
            whole.update(data)
            num_bytes += len(data)
        made_by = self._history.versions.get(version)
        return replace(
            self._manifest(ManifestKind.SNAPSHOT, version, shadow.root, shadow, training),
            from_version=made_by.from_version if made_by else None,
            from_root=made_by.from_root if made_by else None,
            codec=checkpoints.CODEC,
            num_bytes=num_bytes,
            sha256=whole.hexdigest(),
            blobs=tuple(blobs),
            tensors=tensor_digests(shadow.layout, dict(shadow.digests), {}),
        )

    def _manifest(
        self, kind: ManifestKind, version: int, root: str, shadow: Shadow, training: Training
    ) -> WeightsManifest:
        return WeightsManifest(
            policy=self._policy,
            version=version,
            kind=kind,
            epoch=self._epoch,
            root=root,
            codec="",
            dtype=checkpoints.dtype_of_all(shadow.layout),
            num_elements=checkpoints.num_elements(shadow.layout),
            sha256="",
            trainer_step=training.trainer_step,
            data_watermark=training.data_watermark,
            statistics=tuple(Statistic(name=n, value=v) for n, v in training.statistics),
            created_at=self._now(),
        )

    def _store(
        self, version: int, payload: bytes
    ) -> tuple[tuple[ChunkRef, ...], tuple[BlobRef, ...]]:
        """Where a payload lies once it is acknowledged: on the topic, or in the blob store."""
        if len(payload) > chunks.MAX_TOPIC_BYTES:
            return (), (self._put(payload),)
        records = chunks.split(self._policy, self._epoch, version, payload)
        with self._failing():
            deliveries = deliver_now(self._producer, records, _DELIVERY_SECONDS)
        return chunks.references(records, deliveries), ()

    def _put(self, data: bytes) -> BlobRef:
        with self._failing():
            uri = self._blobs.put(BLOB_OWNER, data)
        return BlobRef(uri=uri, sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """One error ends this publisher, since its baseline may not be what readers have."""
        if self._failed:
            raise ConfigError("This publisher has failed before. Close it and make a new one.")
        try:
            yield
        except HeadraceError:
            self._failed = True
            raise

    def _commit(self, manifest: WeightsManifest) -> WeightsManifest:
        if self._key is not None:
            manifest = signed(manifest, self._key)
        record = Record(topics.WEIGHTS_VERSIONS, key_of(manifest), codec.encode(manifest))
        with self._failing():
            transact(self._transactions, [record])
        self._history.take(manifest)
        return manifest
