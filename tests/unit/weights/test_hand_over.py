"""Between a publisher and those who follow: when a version may be proposed, and what proves it."""

from dataclasses import replace

import pytest

from schemas.atdp.weights import WeightsManifest
from schemas.bus.memory import MemoryBus
from schemas.errors import TransientError
from schemas.store import BlobStore
from schemas.weights.publish import Publisher
from schemas.weights.refusals import RefusedError
from schemas.weights.shadow import Shadow
from schemas.weights.versions import PartReader, advance, read_history, restore
from tests.unit.weights.models import same, walk


def test_a_version_can_be_proposed_before_the_baseline_moves(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    one, two, three = walk(3, density=1.0)
    publisher = Publisher(bus, blobs, "main")
    seen: list[tuple[int, int | None, list[int]]] = []

    def propose(manifest: WeightsManifest) -> None:
        history = read_history(bus, "main")
        seen.append((manifest.version, publisher.baseline_version, list(history.versions)))

    def fail(_: WeightsManifest) -> None:
        raise TransientError("Kafka is away.")

    publisher.publish(one, on_committed=propose)
    publisher.publish(two, on_committed=propose)
    assert seen == [(1, 1, [1]), (2, 1, [1, 2])]
    with pytest.raises(TransientError):  # the version is there, so the next delta starts from it
        publisher.publish(three, on_committed=fail)
    assert publisher.baseline_version == 3
    assert same(restore(bus, blobs, publisher.history, 3).tensors, three)


def test_a_manifest_whose_lines_were_forgotten_is_proved_by_its_root(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    one, two = walk(2)
    publisher = Publisher(bus, blobs, "main")
    publisher.publish(one)
    manifest = replace(publisher.publish(two), tensors=())
    shadow = Shadow(one)
    with pytest.raises(RefusedError, match="wrong_root"):
        advance(PartReader(bus), blobs, shadow, replace(manifest, root="ab" * 32))
    assert same(shadow.tensors, one)
    advance(PartReader(bus), blobs, shadow, manifest)
    assert same(shadow.tensors, two)
