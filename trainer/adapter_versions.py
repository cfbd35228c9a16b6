"""Versions that are adapters: each lies whole on the same weights, those of the model's folder.

The weights are published as a version of their own when nobody has. A delta of an adapter would
save nothing (ADR 0019), so there is no baseline that moves.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from schemas.atdp.weights import ManifestKind, WeightsManifest
from schemas.bus.api import Bus
from schemas.errors import ConfigError
from schemas.store import BlobStore
from schemas.weights.adapters import fetch_adapter
from schemas.weights.publish import Training
from schemas.weights.tensors import Tensors, layout_of
from trainer.lora import Lora, is_untouched
from trainer.publish import Versions, root_of_all


class AdapterVersions(Versions):
    """The versions of a policy whose adapter learns. Blocks; for one thread."""

    def __init__(
        self,
        bus: Bus,
        blobs: BlobStore,
        policy: str,
        ring: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        key: bytes | None = None,
        *,
        base: Tensors,
        lora: Lora,
        untouched: Tensors,
    ) -> None:
        """`base` are the weights below the adapter, `untouched` is the adapter at the start.

        ConfigError where the policy has weights, but not these.
        """
        super().__init__(bus, blobs, policy, ring, now, key)
        self._lora, self._untouched = lora, untouched
        root, history = root_of_all(base), self._publisher.history
        own = [v for v, m in history.versions.items()
               if m.kind is not ManifestKind.ADAPTER and m.root == root]  # fmt: skip
        if not own and history.versions:
            self.close()
            raise ConfigError(
                f"No version of {policy} has the weights of HEADRACE_TRAINER__MODEL, and adapters "
                "lie on weights. Set it to a folder of a version, or HEADRACE_TRAINER__POLICY to a "
                "name without versions."
            )
        self._base_root = root
        self._base = max(own) if own else self._publisher.publish(base).version

    @property
    def baseline(self) -> int | None:
        """The version of the weights that the adapters lie on."""
        return self._base

    def root_of(self, tensors: Tensors) -> str:
        """That of the adapter on its weights; of one that changes nothing that of the weights."""
        if is_untouched(tensors):
            return self._base_root
        return self._lora.adapter_of(tensors).root(self._base_root)

    def begin(self) -> tuple[int, str, Tensors] | None:
        """An adapter that changes nothing yet is the weights themselves."""
        return self._base, self._base_root, self._untouched

    def recent(self, version: int, number: int) -> list[int]:
        """The last adapters up to a version, the oldest first."""
        known = self._publisher.history.versions
        mine = [v for v, m in known.items() if v <= version and m.kind is ManifestKind.ADAPTER]
        return sorted([*mine, *({version} - {*mine})])[-number:]

    def tensors_of(self, version: int) -> Tensors:
        """The adapter of a version. ConfigError for one that the trainer cannot go on from."""
        manifest = self._publisher.history.versions[version]
        if manifest.root == self._base_root:
            return self._untouched
        if manifest.kind is ManifestKind.ADAPTER and manifest.from_root == self._base_root:
            tensors = fetch_adapter(self._blobs, manifest).tensors()
            if layout_of(tensors) == layout_of(self._untouched):
                return tensors
        raise ConfigError(
            f"Version {version} is no adapter of the kind that is trained here, on the same "
            "weights. Move the trainer's folder away, or set HEADRACE_TRAINER__POLICY."
        )

    def fork_from(self, version: int) -> Tensors:
        """Go on from another version: what the ring went back to."""
        return self.tensors_of(version)

    def _go_on_from(self, version: int, tensors: Tensors) -> None:
        """Nothing moves with a version."""

    def _put_out(
        self, tensors: Tensors, training: Training, on_committed: Callable[[WeightsManifest], None]
    ) -> WeightsManifest:
        adapter = self._lora.adapter_of(tensors)
        manifest = self._publisher.publish_adapter(adapter, self._base, training)
        on_committed(manifest)
        return manifest
