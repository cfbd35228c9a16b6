"""Manifests: what is in one, who signed it, and which of them make a chain."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schemas import codec
from schemas.atdp.weights import ManifestKind, TensorDigest, VersionRef, WeightsManifest
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Layout


def key_of(manifest: WeightsManifest) -> bytes:
    """Its Kafka key. A snapshot beside a delta has one of its own, so compaction keeps both."""
    name = f"{manifest.policy}:{manifest.version}"
    beside = manifest.kind is ManifestKind.SNAPSHOT and manifest.from_version is not None
    return f"{name}:snapshot".encode() if beside else name.encode()


def signed(manifest: WeightsManifest, key: bytes) -> WeightsManifest:
    """The manifest with its HMAC-SHA256."""
    return replace(manifest, signature=_mac(manifest, key))


def require_signature(manifest: WeightsManifest, key: bytes) -> None:
    """RefusedError unless the manifest was signed with this key."""
    if not hmac.compare_digest(_mac(manifest, key), manifest.signature or ""):
        raise RefusedError(Refusal.WRONG_SIGNATURE, f"version {manifest.version}")


def _mac(manifest: WeightsManifest, key: bytes) -> str:
    unsigned = codec.encode(replace(manifest, signature=None))
    return hmac.new(key, unsigned, hashlib.sha256).hexdigest()


def tensor_digests(
    layout: Layout, digests: dict[str, bytes], num_changed: dict[str, int]
) -> tuple[TensorDigest, ...]:
    """The lines of a manifest for these tensors, by name."""
    return tuple(
        TensorDigest(
            name=name,
            dtype=layout[name].dtype.value,
            shape=layout[name].shape,
            digest=digests[name].hex(),
            num_changed=num_changed.get(name, 0),
        )
        for name in sorted(digests)
    )


def digests_in(manifest: WeightsManifest) -> dict[str, bytes]:
    """Name → digest, as the manifest says. RefusedError for what is no digest."""
    try:
        return {line.name: bytes.fromhex(line.digest) for line in manifest.tensors}
    except ValueError:
        raise RefusedError(Refusal.CORRUPT, f"digests of version {manifest.version}") from None


#: More of them tell nothing that anybody acts on, and whoever writes the topic decides how many.
MAX_REFUSED = 1_000


def _without_lines(manifest: WeightsManifest) -> WeightsManifest:
    return replace(manifest, tensors=())


@dataclass(slots=True)
class History:
    """The versions of one policy that hang together, in the order of the topic."""

    policy: str
    #: Version → the manifest that made it.
    versions: dict[int, WeightsManifest] = field(default_factory=dict)
    #: Version → a manifest that holds all of it.
    snapshots: dict[int, WeightsManifest] = field(default_factory=dict)
    #: The latest manifests that were not taken, without the lines of their tensors, and why.
    refused: list[tuple[WeightsManifest, Refusal]] = field(default_factory=list)
    epoch: int = 0

    @property
    def newest(self) -> WeightsManifest | None:
        """The manifest of the highest version."""
        return self.versions[max(self.versions)] if self.versions else None

    @property
    def newest_weights(self) -> WeightsManifest | None:
        """The manifest of the highest version that is weights of its own, no adapter on others."""
        own = [v for v, m in self.versions.items() if m.kind is not ManifestKind.ADAPTER]
        return self.versions[max(own)] if own else None

    def weights_of(self, version: VersionRef) -> VersionRef:
        """The weights behind a version: those of its base where it is an adapter."""
        manifest = self.versions.get(version.version)
        if manifest is None or manifest.kind is not ManifestKind.ADAPTER:
            return version
        return VersionRef(version=manifest.from_version or 0, root=manifest.from_root or "")

    def take(self, manifest: WeightsManifest) -> None:
        """Add the next manifest of the topic. RefusedError when it does not follow."""
        where = f"version {manifest.version}"
        if manifest.epoch < self.epoch:
            raise RefusedError(Refusal.LOWER_EPOCH, where)
        if manifest.kind is ManifestKind.UNKNOWN:
            raise RefusedError(Refusal.UNKNOWN_CODEC, where)
        known = self.versions.get(manifest.version)
        if known is not None and known.root != manifest.root:
            raise RefusedError(Refusal.VERSION_TAKEN, where)
        if manifest.from_version is not None or manifest.kind is ManifestKind.ADAPTER:
            self._require_base(manifest, where)
        self.epoch = manifest.epoch
        if manifest.kind is ManifestKind.SNAPSHOT:
            self.snapshots[manifest.version] = manifest
        self.versions.setdefault(manifest.version, manifest)

    def _require_base(self, manifest: WeightsManifest, where: str) -> None:
        if manifest.kind is ManifestKind.SNAPSHOT:
            return  # it stands for itself; the base is named for readers
        base = self.versions.get(manifest.from_version or 0)
        if base is None:
            raise RefusedError(Refusal.UNKNOWN_BASE, where)
        if base.root != manifest.from_root or base.kind is ManifestKind.ADAPTER:
            raise RefusedError(Refusal.WRONG_BASE, where)

    def take_all(self, manifests: Iterable[WeightsManifest], key: bytes | None = None) -> None:
        """Add those that follow; note the others in `refused`."""
        for manifest in manifests:
            try:
                if key is not None:
                    require_signature(manifest, key)
                self.take(manifest)
            except RefusedError as error:
                self.refuse(manifest, error.refusal)

    def refuse(self, manifest: WeightsManifest, refusal: Refusal) -> None:
        """Note a manifest that was not taken. Of very many the oldest are forgotten."""
        self.refused.append((_without_lines(manifest), refusal))
        del self.refused[:-MAX_REFUSED]

    def forget_lines(self, version: int) -> None:
        """Keep of a version's manifests all but the lines of its tensors, if it is there."""
        for manifests in (self.versions, self.snapshots):
            if version in manifests:
                manifests[version] = _without_lines(manifests[version])

    def path_to(self, version: int) -> tuple[WeightsManifest, list[WeightsManifest]]:
        """The nearest snapshot before a version, and the deltas from there, in order.

        RefusedError(NO_SNAPSHOT) when there is none, or no such version.
        """
        deltas: list[WeightsManifest] = []
        at: int | None = version
        while at is not None and at in self.versions and len(deltas) <= len(self.versions):
            if at in self.snapshots:
                return self.snapshots[at], deltas[::-1]
            deltas.append(self.versions[at])
            at = self.versions[at].from_version
        raise RefusedError(Refusal.NO_SNAPSHOT, f"version {version}")

    def deltas_since_snapshot(self, version: int) -> list[WeightsManifest]:
        """The deltas between the nearest snapshot and a version; all of them without one."""
        try:
            return self.path_to(version)[1]
        except RefusedError:
            return list(self.versions.values())
