"""A worker on a real broker with a real vLLM: what is wrong is refused and never serves."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.worker.adapters import Adapters
from inference.worker.client import EngineClient
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, WeightsAck, WeightsManifest
from schemas.bus import Bus, Delivery, Record, deliver_now, transact
from schemas.bus.access import KafkaAccess
from schemas.bus.api import OnDelivery, Producer
from schemas.bus.kafka import KafkaBus
from schemas.store import BlobStore
from schemas.weights import chunks
from schemas.weights.manifests import key_of
from schemas.weights.publish import Publisher
from schemas.weights.tensors import Tensor, digests_of
from schemas.weights.versions import PartReader, fetch
from tests.live_engine import MAX_LORA_RANK, LiveEngine
from tests.retention import delete_before
from tests.tiny_adapter import tiny_adapter
from tests.tiny_model import letter_of, next_version
from tests.worker_stage import POLICY, Stage

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

Fault = Callable[[Producer, Record, OnDelivery], None]


class FaultyProducer:
    """Sends records as the fault of the moment has it."""

    def __init__(self, inner: Producer, owner: "FaultyBus") -> None:
        self._inner, self._owner = inner, owner

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        fault = self._owner.fault
        if fault is None:
            self._inner.send(record, on_delivery)
        else:
            fault(self._inner, record, on_delivery)

    def flush(self, timeout_seconds: float) -> int:
        return self._inner.flush(timeout_seconds)

    def close(self) -> None:
        self._inner.close()


class FaultyBus:
    """The real bus, but chunks are sent through faults."""

    def __init__(self, inner: Bus) -> None:
        self._inner = inner
        self.fault: Fault | None = None

    def producer(self, client_id: str, *, compress: bool = True) -> FaultyProducer:
        return FaultyProducer(self._inner.producer(client_id, compress=compress), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def flipped(producer: Producer, record: Record, on_delivery: OnDelivery) -> None:
    value = bytearray(record.value or b"")
    value[len(value) // 2] ^= 0x10
    producer.send(replace(record, value=bytes(value)), on_delivery)


def dropped(producer: Producer, record: Record, on_delivery: OnDelivery) -> None:
    on_delivery(Delivery(record.topic, 0, 10_000))


class Swapped:
    """The second part of a payload comes first; the publisher is told what it expects."""

    def __init__(self) -> None:
        self._first: Record | None = None
        self._on_first: OnDelivery | None = None

    def __call__(self, producer: Producer, record: Record, on_delivery: OnDelivery) -> None:
        part = dict(record.headers)["part"]
        if part == b"0":
            self._first, self._on_first = record, on_delivery
            return
        producer.send(record, self._on_first or on_delivery)
        if self._first is not None:
            producer.send(self._first, on_delivery)
        self._first = self._on_first = None


@dataclass
class Scene:
    """Real parts, a publisher that can be made to fail, and what is right."""

    servers: str
    prefix: str
    bus: FaultyBus
    stage: Stage
    publisher: Publisher
    engine: LiveEngine
    tensors: dict[str, Tensor]
    manifest: WeightsManifest

    def publish(
        self, *, fault: Fault | None = None, density: float = 0.01, spread: int = 4
    ) -> WeightsManifest:
        version = max(self.publisher.history.versions) + 1
        self.tensors = next_version(self.tensors, version, density=density, spread=spread)
        self.bus.fault = fault
        try:
            return self.publisher.publish(self.tensors)
        finally:
            self.bus.fault = None

    def commit(self, manifest: WeightsManifest) -> WeightsManifest:
        """A manifest that no publisher of ours writes."""
        transactions = self.bus.transactions(f"test.{uuid.uuid4()}")
        record = Record(topics.WEIGHTS_VERSIONS, key_of(manifest), codec.encode(manifest))
        transact(transactions, [record])
        transactions.close()
        return manifest

    def lie_about(self, good: WeightsManifest, version: int, **lies: Any) -> WeightsManifest:
        """The payload of a good version under another number, with a manifest that is not true."""
        reader = PartReader(self.bus)
        payload = fetch(reader, self.stage.blobs, good)
        reader.close()
        records = chunks.split(POLICY, good.epoch, version, payload)
        parts = chunks.references(records, deliver_now(self.bus.producer("liar"), records, 10.0))
        return self.commit(replace(good, version=version, parts=parts, **lies))

    def apply(self, manifest: WeightsManifest) -> WeightsAck:
        ack = self.stage.go_to(manifest)
        assert (ack.status, ack.error) == (AckStatus.APPLIED, None)
        self.manifest = manifest
        self.require_serving()
        return ack

    def refuse(self, manifest: WeightsManifest, *reasons: str) -> None:
        ack = self.stage.go_to(manifest)
        assert ack.status is AckStatus.REFUSED
        assert ack.error in reasons
        assert (ack.version, ack.root) == (manifest.version, None)
        self.require_serving()

    def require_serving(self) -> None:
        """Live equals shadow equals what was published, and the answer is that of the label."""
        shadow = self.stage.require_equal()
        assert shadow.root == self.manifest.root
        text, headers = self.engine.ask()
        assert headers["policy-version"] == str(self.manifest.version)
        assert headers["weights-root"] == self.manifest.root
        if self.manifest.version > 1:
            assert text == letter_of(self.manifest.version)


@pytest.fixture
def scene(kafka: str, live_engine: LiveEngine, tmp_path: Path) -> Iterator[Scene]:
    prefix = f"w{uuid.uuid4().hex[:8]}."
    bus = FaultyBus(KafkaBus(KafkaAccess(kafka, prefix=prefix)))
    admin = bus.admin()
    names = (topics.WEIGHTS_CHUNKS, topics.WEIGHTS_VERSIONS, topics.WEIGHTS_PROMOTIONS,
             topics.WEIGHTS_ACKS, topics.WORKERS)  # fmt: skip
    admin.create_topics([topics.topic(name) for name in names], 1, 1)
    blobs = BlobStore((tmp_path / "blobs").as_uri())
    publisher = Publisher(bus, blobs, POLICY)
    first = publisher.publish(live_engine.held)
    adapters = Adapters(live_engine.client, blobs, tmp_path / "adapters")
    stage = Stage(bus, blobs, live_engine.client, live_engine.held, tmp_path, adapters=adapters)
    scene = Scene(kafka, prefix, bus, stage, publisher, live_engine, dict(live_engine.held), first)
    scene.apply(first)
    yield scene
    shadow = stage.worker.shadow
    assert shadow is not None
    live_engine.held = dict(shadow.tensors)
    serving = stage.worker.serving
    if serving is not None and serving.version > first.version:  # the first one is what was there
        live_engine.answers = serving.version
    stage.worker.stop()
    stage.consumer.close()
    publisher.close()
    stage.promotion.close()
    admin.close()


def test_an_adapter_answers_is_proved_and_taken_back(scene: Scene) -> None:
    """vLLM's own route for adapters, on weights that moved, beside weights that move on."""
    base = scene.publish()
    one, two = (scene.publisher.publish_adapter(tiny_adapter(seed), 2) for seed in (1, 2))
    scene.apply(base)
    bare, _ = scene.engine.ask(tokens=8)
    said = {}
    for adapter in (one, two, one):
        assert scene.stage.go_to(adapter).status is AckStatus.APPLIED
        text, headers = scene.engine.ask(tokens=8)
        assert said.setdefault(adapter.version, text) == text, "the same adapter, the same answer"
        assert (headers["policy-version"], headers["weights-root"]) == (
            str(adapter.version), adapter.root,
        )  # fmt: skip
        assert scene.stage.require_equal().root == base.root
    assert len({bare, *said.values()}) == 3
    scene.apply(base)
    assert scene.engine.ask(tokens=8)[0] == bare
    assert scene.stage.go_to(two).status is AckStatus.APPLIED
    scene.apply(scene.publish())


def test_an_adapter_that_the_engine_does_not_take_is_refused(scene: Scene) -> None:
    wide = scene.publisher.publish_adapter(tiny_adapter(1, rank=2 * MAX_LORA_RANK), 1)
    elsewhere = scene.publisher.publish_adapter(tiny_adapter(1, module="self_attn.other"), 1)
    for adapter in (wide, elsewhere):
        scene.refuse(adapter, "adapter_refused")
    assert list((scene.stage.folder / "adapters").glob("*")) == []
    scene.apply(scene.publish())


@pytest.mark.parametrize(
    "num_versions",
    [30, pytest.param(1_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_random_versions_are_bit_exact(scene: Scene, num_versions: int) -> None:
    """Mostly one by one, sometimes several in one go; of any density, nearly all of it too.

    Each time live equals shadow equals what was given to the publisher, all tensors of it.
    """
    random = np.random.default_rng(17)
    num_left, num_at_once = num_versions, []
    while num_left:
        number = min(num_left, int(random.choice([1, 1, 1, 1, 2, 5, 12])))
        for _ in range(number):
            density = float(random.choice([0.0005, 0.005, 0.05, 0.9], p=[0.4, 0.4, 0.17, 0.03]))
            newest = scene.publish(density=density, spread=int(random.choice([2, 8, 128])))
        scene.apply(newest)
        assert scene.engine.client.digests() == digests_of(scene.tensors)
        num_left -= number
        num_at_once.append(number)
    assert sum(num_at_once) == num_versions
    assert max(num_at_once) > 1


def test_rollback_one_and_twenty_versions(scene: Scene) -> None:
    manifests = [scene.manifest, *(scene.publish() for _ in range(21))]
    scene.apply(manifests[10])
    scene.apply(manifests[21])
    scene.apply(manifests[20])
    scene.apply(manifests[21])
    scene.apply(manifests[1])
    scene.apply(manifests[21])


def test_a_flipped_bit_is_refused_and_healed_by_a_snapshot(scene: Scene) -> None:
    scene.apply(scene.publish())
    broken = scene.publish(fault=flipped)
    scene.refuse(broken, "chunk_corrupt")
    later = scene.publish()
    scene.refuse(later, "chunk_corrupt")
    scene.publisher.publish_snapshot()
    scene.apply(later)


def test_dropped_parts_are_refused(scene: Scene) -> None:
    scene.refuse(scene.publish(fault=dropped), "chunk_missing")


def test_parts_in_another_order_are_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.weights.publish.SNAPSHOT_SHARE", 1e9)
    large = scene.publish(fault=Swapped(), density=1.0, spread=128)
    assert len(large.parts) > 1
    scene.refuse(large, "chunk_corrupt", "chunk_out_of_order")


def test_repeated_parts_are_refused_and_repeated_records_do_no_harm(scene: Scene) -> None:
    def twice(producer: Producer, record: Record, on_delivery: OnDelivery) -> None:
        producer.send(record, on_delivery)
        producer.send(record, lambda _: None)

    good = scene.publish(fault=twice)
    named_twice = replace(
        good, version=good.version + 1, parts=good.parts * 2, num_bytes=good.num_bytes * 2
    )
    scene.commit(named_twice)
    scene.refuse(named_twice, "chunk_duplicate", "corrupt")
    scene.apply(good)


def test_a_manifest_without_its_parts_is_refused(scene: Scene) -> None:
    good = scene.publish()
    nothing = scene.commit(replace(good, version=good.version + 1, parts=()))
    scene.refuse(nothing, "corrupt")
    scene.apply(good)


def test_a_wrong_base_and_a_lower_epoch_are_refused(scene: Scene) -> None:
    good = scene.publish()
    wrong = scene.commit(replace(good, version=8, from_root="ab" * 32))
    low = scene.commit(replace(good, version=9, epoch=0))
    scene.refuse(wrong, "wrong_base")
    scene.refuse(low, "lower_epoch")
    scene.apply(good)


def test_what_is_promised_wrongly_is_refused(scene: Scene) -> None:
    good = scene.publish()
    liar = scene.lie_about(good, 8, root="cd" * 32)
    scene.refuse(liar, "wrong_root")
    (line, *others) = good.tensors
    tensors = (replace(line, digest="ef" * 16), *others)
    scene.refuse(scene.lie_about(good, 9, tensors=tensors), "wrong_digest")
    scene.apply(good)


def test_expired_parts_are_refused_until_a_snapshot_comes(scene: Scene) -> None:
    expired, kept = scene.publish(), scene.publish()
    topic = scene.prefix + topics.WEIGHTS_CHUNKS
    delete_before(scene.servers, topic, 0, kept.parts[0].offset)
    scene.refuse(expired, "chunks_expired")
    scene.refuse(kept, "chunks_expired")
    scene.publisher.publish_snapshot()
    scene.apply(kept)


def test_an_engine_error_in_the_middle_is_undone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = EngineClient.write
    failing = iter([11])

    def half(self: EngineClient, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        return write(self, patch, names, fail_after=next(failing, None))

    monkeypatch.setattr(EngineClient, "write", half)
    good = scene.publish()
    scene.refuse(good, "engine_failed")
    scene.apply(good)


def test_a_worker_that_comes_late_writes_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = EngineClient.write
    written: list[Path] = []

    def counted(self: EngineClient, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        written.append(patch)
        return write(self, patch, names)

    monkeypatch.setattr(EngineClient, "write", counted)
    *_, last = [scene.publish() for _ in range(24)]
    scene.apply(last)
    assert len(written) == 1
