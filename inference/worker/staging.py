"""Moving the shadow to another version, before the engine hears of it."""

from collections.abc import Sequence

from inference.worker.plan import Advance, Restore, TakeBack
from inference.worker.undo import UndoList
from schemas.atdp.weights import WeightsManifest
from schemas.bus.api import Bus
from schemas.errors import HeadraceError
from schemas.store import BlobStore
from schemas.weights.manifests import History
from schemas.weights.shadow import Patch, Shadow
from schemas.weights.versions import PartReader, advance, restore


class Staging:
    """Reads payloads and proves them on a shadow. All or nothing."""

    def __init__(self, bus: Bus, blobs: BlobStore) -> None:
        self._bus, self._blobs, self._parts = bus, blobs, PartReader(bus)

    def stage(
        self, step: Advance | Restore | TakeBack, shadow: Shadow, undo: UndoList, history: History
    ) -> list[Patch]:
        """Move the shadow and return what was written, in order; at least one patch.

        RefusedError or TransientError leaves the shadow where it was.
        """
        match step:
            case Advance(manifests):
                return self._advance(manifests, shadow)
            case Restore(version):
                return [self._restore(version, shadow, history)]
            case TakeBack(num_updates):
                patch = undo.patch_back(num_updates)
                shadow.write(patch)
                return [patch]

    def _advance(self, manifests: Sequence[WeightsManifest], shadow: Shadow) -> list[Patch]:
        patches: list[Patch] = []
        try:
            for manifest in manifests:
                patches.append(advance(self._parts, self._blobs, shadow, manifest))  # noqa: PERF401
        except HeadraceError:
            take_back(patches, shadow)
            raise
        return patches

    def close(self) -> None:
        """Release the connection."""
        self._parts.close()

    def _restore(self, version: int, shadow: Shadow, history: History) -> Patch:
        delta, digests = shadow.diff(restore(self._bus, self._blobs, history, version).tensors)
        return shadow.apply(delta, digests)


def take_back(patches: Sequence[Patch], shadow: Shadow) -> None:
    """Move the shadow back to where it was before these patches."""
    for patch in reversed(patches):
        shadow.write(patch.inverse())
