"""Publishing and reading back, on the bus in memory."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas import codec, topics
from schemas.atdp.weights import ManifestKind, WeightsManifest
from schemas.bus import FencedError, Received, Record
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError, TransientError
from schemas.store import BlobStore
from schemas.weights import chunks, publish
from schemas.weights.dtypes import Dtype
from schemas.weights.manifests import History, key_of, signed
from schemas.weights.publish import Publisher, Training
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensor, tensor
from schemas.weights.versions import (
    BLOB_OWNER,
    PartReader,
    advance,
    fetch,
    load_snapshot,
    policies,
    read_history,
    restore,
)
from tests.unit.weights.models import same, walk


def test_versions_come_back_bit_for_bit_from_the_nearest_snapshot(
    bus: MemoryBus, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "SNAPSHOT_SHARE", 1e9)  # small models have large deltas
    models = walk(23)
    publisher = Publisher(bus, blobs, "main")
    made = [publisher.publish(model) for model in models]
    history = read_history(bus, "main")
    assert (history.refused, history.epoch) == ([], 1)
    assert [m.version for m in made] == list(history.versions) == list(range(1, 24))
    assert [m.kind for m in made] == [ManifestKind.SNAPSHOT] + [ManifestKind.DELTA] * 22
    assert list(history.snapshots) == [1, 21]
    for version, model in enumerate(models, start=1):
        restored = restore(bus, blobs, history, version)
        assert same(restored.tensors, model)
        assert restored.root == history.versions[version].root == Shadow(model).root
    assert len(history.path_to(20)[1]) == 19
    assert len(history.path_to(23)[1]) == 2


def test_a_snapshot_is_due_when_the_deltas_are_a_quarter_of_it(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    publisher = Publisher(bus, blobs, "main")
    for model in walk(4, density=1.0):
        publisher.publish(model)
    assert list(publisher.history.snapshots) == [1, 2, 3, 4]
    assert [m.kind for m in publisher.history.versions.values()][1:] == [ManifestKind.DELTA] * 3


def test_a_manifest_says_what_changed_and_where_it_came_from(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    base, new = walk(1)[0], {**walk(1)[0]}
    bits = new["a"].bits.copy()
    bits[[3, 5]] ^= 1
    new["a"] = Tensor(new["a"].spec, bits)
    publisher = Publisher(bus, blobs, "main")
    first = publisher.publish(base)
    manifest = publisher.publish(new, Training(7, (), (("loss", 0.5),)))
    assert (manifest.from_version, manifest.from_root) == (1, first.root)
    assert (manifest.num_changed, manifest.num_elements) == (2, 460)
    assert manifest.density == 2 / 460
    assert [(t.name, t.num_changed) for t in manifest.tensors] == [("a", 2)]
    assert (manifest.trainer_step, manifest.statistics[0].value) == (7, 0.5)
    assert manifest.dtype == "mixed"
    assert [t.name for t in first.tensors] == sorted(base)
    [record] = bus.partitions(topics.WEIGHTS_CHUNKS)[0].records
    assert dict(record.headers)["version"] == b"2"
    assert record.key == b"main"


def test_a_large_payload_goes_to_the_blob_store(
    bus: MemoryBus, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MAX_TOPIC_BYTES", 100)
    models = walk(2, density=1.0)
    publisher = Publisher(bus, blobs, "main")
    publisher.publish(models[0])
    manifest = publisher.publish(models[1])
    assert manifest.parts == ()
    assert manifest.num_bytes == manifest.blobs[0].num_bytes > 100
    assert bus.partitions(topics.WEIGHTS_CHUNKS)[0].records == []
    assert same(restore(bus, blobs, publisher.history, 2).tensors, models[1])


def test_a_payload_of_several_parts_is_put_together(
    bus: MemoryBus, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "PART_BYTES", 100)
    models = walk(2, density=1.0)
    publisher = Publisher(bus, blobs, "main")
    publisher.publish(models[0])
    manifest = publisher.publish(models[1])
    assert len(manifest.parts) > 3
    shadow = Shadow(models[0])
    advance(PartReader(bus), blobs, shadow, manifest)
    assert same(shadow.tensors, models[1])


def test_a_trainer_goes_on_after_a_restart_and_forks_after_a_rollback(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    models = walk(4)
    first = Publisher(bus, blobs, "main")
    for model in models[:3]:
        first.publish(model)
    second = Publisher(bus, blobs, "main")
    assert second.epoch == 2
    with pytest.raises(ConfigError, match="start_from"):
        second.publish(models[3])
    second.start_from(2, restore(bus, blobs, second.history, 2))
    manifest = second.publish(models[3])
    assert (manifest.version, manifest.from_version, manifest.epoch) == (4, 2, 2)
    history = read_history(bus, "main")
    assert same(restore(bus, blobs, history, 3).tensors, models[2])
    assert same(restore(bus, blobs, history, 4).tensors, models[3])
    with pytest.raises(RefusedError, match="wrong_base"):
        second.start_from(1, Shadow(models[2]))
    with pytest.raises(RefusedError, match="unknown_base"):
        second.start_from(9, Shadow(models[2]))


def test_a_publisher_that_was_replaced_publishes_nothing_more(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    models = walk(3)
    old = Publisher(bus, blobs, "main")
    old.publish(models[0])
    new = Publisher(bus, blobs, "main")
    with pytest.raises(FencedError):
        old.publish(models[1])
    with pytest.raises(ConfigError, match="failed before"):
        old.publish(models[1])
    new.start_from(1, Shadow(models[0]))
    assert new.publish(models[2]).version == 2
    assert same(restore(bus, blobs, read_history(bus, "main"), 2).tensors, models[2])


def test_policies_do_not_see_one_another(bus: MemoryBus, blobs: BlobStore) -> None:
    one, other = Publisher(bus, blobs, "one"), Publisher(bus, blobs, "other")
    one.publish(walk(1, seed=1)[0])
    other.publish(walk(1, seed=2)[0])
    assert policies(bus) == ["one", "other"]
    assert list(read_history(bus, "one").versions) == [1]
    assert read_history(bus, "one").versions[1].root != read_history(bus, "other").versions[1].root
    with pytest.raises(ConfigError, match="letters"):
        Publisher(bus, blobs, "a:b")


def test_what_cannot_be_published_leaves_the_baseline_where_it_was(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    models = walk(2)
    publisher = Publisher(bus, blobs, "main")
    publisher.publish(models[0])
    bad = {**models[1], "b": Tensor(models[1]["b"].spec, models[1]["b"].bits | 0x7C00)}
    with pytest.raises(RefusedError, match="not_finite at b"):
        publisher.publish(bad)
    with pytest.raises(RefusedError, match="wrong_layout at zz"):
        publisher.publish({**models[1], "zz": models[1]["a"]})
    assert publisher.publish(models[1]).version == 2
    assert same(restore(bus, blobs, read_history(bus, "main"), 2).tensors, models[1])


def test_a_publisher_without_a_broker_says_so_and_ends(
    bus: MemoryBus, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = walk(2)
    publisher = Publisher(bus, blobs, "main")
    publisher.publish(models[0])
    silent: Callable[..., None] = lambda *_: None  # noqa: E731 - it stands for a method
    monkeypatch.setattr("schemas.bus.memory.MemoryProducer.send", silent)
    with pytest.raises(TransientError, match="in time"):
        publisher.publish(models[1])
    assert list(read_history(bus, "main").versions) == [1]


# --- what a reader refuses -------------------------------------------------------------------


@pytest.fixture
def published(
    bus: MemoryBus, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> tuple[WeightsManifest, list[Received]]:
    """A manifest of several parts, and what lies at their offsets."""
    monkeypatch.setattr(chunks, "PART_BYTES", 100)
    publisher = Publisher(bus, blobs, "main")
    manifest = [publisher.publish(model) for model in walk(2, density=1.0)][-1]
    return manifest, list(bus.partitions(topics.WEIGHTS_CHUNKS)[0].records)


Damage = Callable[[list[Received]], list[Received]]


def _flipped(received: Received) -> Received:
    value = bytearray(received.value or b"")
    value[7] ^= 4
    return replace(received, value=bytes(value))


def _with_header(received: Received, name: str, value: bytes) -> Received:
    headers = tuple((n, value if n == name else v) for n, v in received.headers)
    return replace(received, headers=headers)


def _swapped(records: list[Received]) -> list[Received]:
    one, two, *rest = records
    return [replace(two, offset=one.offset), replace(one, offset=two.offset), *rest]


DAMAGES: dict[str, tuple[Damage, Refusal]] = {
    "dropped": (lambda r: r[:1] + r[2:], Refusal.CHUNK_MISSING),
    "none": (lambda _: [], Refusal.CHUNK_MISSING),
    "repeated": (lambda r: [*r, r[0]], Refusal.CHUNK_DUPLICATE),
    "swapped": (_swapped, Refusal.CHUNK_OUT_OF_ORDER),
    "a bit": (lambda r: [r[0], _flipped(r[1]), *r[2:]], Refusal.CHUNK_CORRUPT),
    "shorter": (
        lambda r: [replace(r[0], value=(r[0].value or b"")[:-1]), *r[1:]],
        Refusal.CHUNK_CORRUPT,
    ),
    "a tombstone": (lambda r: [replace(r[0], value=None), *r[1:]], Refusal.CHUNK_MISSING),
    "another version": (
        lambda r: [_with_header(r[0], "version", b"1"), *r[1:]],
        Refusal.CHUNK_MISSING,
    ),
    "another policy": (
        lambda r: [_with_header(r[0], "policy", b"x"), *r[1:]],
        Refusal.CHUNK_MISSING,
    ),
    "another epoch": (
        lambda r: [_with_header(r[0], "epoch", b"9"), *r[1:]],
        Refusal.CHUNK_MISSING,
    ),
    "no headers": (lambda r: [replace(r[0], headers=()), *r[1:]], Refusal.CHUNK_MISSING),
    "a header that lies": (
        lambda r: [_with_header(r[0], "xxh3", b"0" * 32), *r[1:]],
        Refusal.CHUNK_CORRUPT,
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_parts_that_are_not_as_published_are_refused(
    name: str, published: tuple[WeightsManifest, list[Received]]
) -> None:
    manifest, records = published
    damage, refusal = DAMAGES[name]
    with pytest.raises(RefusedError) as refused:
        chunks.joined(manifest, damage(records))
    assert refused.value.refusal is refusal


def test_parts_in_any_order_of_arrival_make_the_payload(
    published: tuple[WeightsManifest, list[Received]],
) -> None:
    manifest, records = published
    assert chunks.joined(manifest, records[::-1]) == chunks.joined(manifest, records)
    other = replace(records[0], offset=records[-1].offset + 5)
    assert chunks.joined(manifest, [*records, other]) == chunks.joined(manifest, records)


def test_a_manifest_with_impossible_parts_is_refused(
    published: tuple[WeightsManifest, list[Received]],
) -> None:
    manifest, records = published
    first, *rest = manifest.parts
    lies = [
        replace(manifest, parts=()),
        replace(manifest, num_bytes=manifest.num_bytes + 1),
        replace(manifest, parts=(replace(first, num_bytes=2**40), *rest)),
        replace(manifest, parts=tuple([first] * 200_000)),
        replace(manifest, parts=(first, first, *rest[1:])),
        replace(manifest, parts=(rest[0], first, *rest[1:])),
        replace(manifest, sha256="0" * 64),
    ]
    for lie in lies:
        with pytest.raises(RefusedError):
            chunks.joined(lie, records)


def test_parts_that_the_topic_keeps_no_more_are_told_from_parts_never_written(
    bus: MemoryBus, blobs: BlobStore, published: tuple[WeightsManifest, list[Received]]
) -> None:
    manifest, _ = published
    log = bus.partitions(topics.WEIGHTS_CHUNKS)[0]
    early = replace(manifest, parts=tuple(
        replace(part, offset=part.offset + 1_000) for part in manifest.parts))  # fmt: skip
    with pytest.raises(RefusedError, match="chunk_missing"):
        fetch(PartReader(bus), blobs, early)
    log.records, log.first = log.records[1:], 1
    with pytest.raises(RefusedError, match="chunks_expired"):
        fetch(PartReader(bus), blobs, manifest)


def test_a_blob_that_is_gone_or_altered_is_refused(
    bus: MemoryBus, blobs: BlobStore, tmp_path: Path
) -> None:
    publisher = Publisher(bus, blobs, "main")
    manifest = publisher.publish(walk(1)[0])
    digest = manifest.blobs[0].sha256
    path = tmp_path / BLOB_OWNER / digest[:2] / digest
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(RefusedError, match="blob_missing"):
        load_snapshot(blobs, manifest)
    path.unlink()
    with pytest.raises(RefusedError, match="blob_missing"):
        load_snapshot(blobs, manifest)
    path.write_bytes(good)
    with pytest.raises(RefusedError, match="wrong_root"):
        load_snapshot(blobs, replace(manifest, root="0" * 64))
    twice = replace(manifest, blobs=manifest.blobs * 2)
    with pytest.raises(RefusedError, match="corrupt"):
        load_snapshot(blobs, twice)


def chain(bus: MemoryBus, blobs: BlobStore) -> list[WeightsManifest]:
    publisher = Publisher(bus, blobs, "main")
    return [publisher.publish(model) for model in walk(3, density=0.01)]


def test_manifests_that_do_not_follow_are_refused(bus: MemoryBus, blobs: BlobStore) -> None:
    one, two, three = chain(bus, blobs)
    cases = {
        Refusal.LOWER_EPOCH: replace(three, epoch=0),
        Refusal.UNKNOWN_CODEC: replace(three, kind=ManifestKind.UNKNOWN),
        Refusal.VERSION_TAKEN: replace(three, version=2),
        Refusal.UNKNOWN_BASE: replace(three, from_version=9),
        Refusal.WRONG_BASE: replace(three, from_root=one.root),
    }
    for refusal, manifest in cases.items():
        history = History("main")
        history.take_all([one, two, manifest])
        assert [r for _, r in history.refused] == [refusal]
        assert list(history.versions) == [1, 2]
    history = History("main")
    history.take_all([one, two, two, three, one])
    assert history.refused == []
    assert list(history.versions) == [1, 2, 3]


def test_a_higher_epoch_ends_the_lower_one_for_readers(bus: MemoryBus, blobs: BlobStore) -> None:
    one, two, three = chain(bus, blobs)
    history = History("main")
    history.take_all([one, replace(two, epoch=2), three])
    assert [(m.version, r) for m, r in history.refused] == [(3, Refusal.LOWER_EPOCH)]


def test_no_snapshot_no_path(bus: MemoryBus, blobs: BlobStore) -> None:
    one, two, _ = chain(bus, blobs)
    history = History("main")
    history.take_all([one, two])
    history.snapshots.clear()
    for version in (1, 2, 7):
        with pytest.raises(RefusedError, match="no_snapshot"):
            history.path_to(version)


def test_a_shadow_elsewhere_and_a_manifest_that_lies_are_refused(
    bus: MemoryBus, blobs: BlobStore
) -> None:
    models = walk(3, density=0.01)
    _, two, three = chain(bus, blobs)
    shadow = Shadow(models[0])
    for manifest, refusal in (
        (three, Refusal.WRONG_BASE),
        (replace(two, root=three.root), Refusal.WRONG_ROOT),
        (replace(two, codec="ulpgap/2"), Refusal.UNKNOWN_CODEC),
        (replace(two, kind=ManifestKind.ADAPTER), Refusal.UNKNOWN_CODEC),
        (replace(two, tensors=(replace(two.tensors[0], name="b"),)), Refusal.WRONG_DIGEST),
        (replace(two, tensors=(replace(two.tensors[0], digest="zz"),)), Refusal.CORRUPT),
    ):
        with pytest.raises(RefusedError) as refused:
            advance(PartReader(bus), blobs, shadow, manifest)
        assert refused.value.refusal is refusal
        assert same(shadow.tensors, models[0])
    advance(PartReader(bus), blobs, shadow, two)
    assert same(shadow.tensors, models[1])


def test_with_a_key_only_signed_manifests_count(bus: MemoryBus, blobs: BlobStore) -> None:
    models = walk(2)
    publisher = Publisher(bus, blobs, "main", key=b"key")
    manifest = publisher.publish(models[0])
    publisher.publish(models[1])
    assert list(read_history(bus, "main", b"key").versions) == [1, 2]
    assert list(read_history(bus, "main").versions) == [1, 2]
    other = read_history(bus, "main", b"another")
    assert {r for _, r in other.refused} == {Refusal.WRONG_SIGNATURE}
    assert other.versions == {}
    stored = read_history(bus, "main").versions[1]
    history = History("main")
    assert manifest == stored
    unsigned = replace(stored, signature=None)
    history.take_all([replace(stored, num_elements=1), unsigned], b"key")
    assert [r for _, r in history.refused] == [Refusal.WRONG_SIGNATURE] * 2
    history.take_all([signed(unsigned, b"key")], b"key")
    assert list(history.versions) == [1]


def test_records_that_are_no_manifest_are_passed_over(bus: MemoryBus, blobs: BlobStore) -> None:
    manifests = chain(bus, blobs)
    producer = bus.producer("other")
    for value in (None, b"", b"junk", b"\0\0\0\0\x63"):
        producer.send(Record(topics.WEIGHTS_VERSIONS, b"main:2", value), lambda _: None)
    assert list(read_history(bus, "main").versions.values()) == manifests


def test_keys_keep_a_delta_and_its_snapshot_apart(bus: MemoryBus, blobs: BlobStore) -> None:
    publisher = Publisher(bus, blobs, "main")
    for model in walk(2, density=1.0):
        publisher.publish(model)
    keys = [r.key for r in bus.partitions(topics.WEIGHTS_VERSIONS)[0].records]
    assert keys == [b"main:1", b"main:2", b"main:2:snapshot"]
    assert publisher.publish_snapshot() is publisher.history.snapshots[2]
    for record in bus.partitions(topics.WEIGHTS_VERSIONS)[0].records:
        assert key_of(codec.decode(record.value)) == record.key


def test_every_number_format_alone_is_named(bus: MemoryBus, blobs: BlobStore) -> None:
    for dtype, number in zip(Dtype, itertools.count()):
        model = {"t": tensor(dtype, (0,), np.zeros(0, walk_bits(dtype)))}
        manifest = Publisher(bus, blobs, f"p{number}").publish(model)
        assert manifest.dtype == dtype.value


def walk_bits(dtype: Dtype) -> str:
    return {"F32": "u4", "F16": "u2", "BF16": "u2"}.get(dtype.value, "u1")
