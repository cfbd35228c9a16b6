"""The worker as a whole, on the bus in memory and an engine in process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.worker.patience import MAX_LOSSES, MAX_WAITS
from inference.worker.update import EngineError
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, WeightsManifest
from schemas.bus import Record, deliver_now
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.store import BlobStore
from schemas.weights.manifests import key_of, signed
from schemas.weights.publish import Publisher
from schemas.weights.tensors import Tensor
from tests.unit.worker.engines import NumpyEngine, small_model, stepped
from tests.worker_stage import POLICY, Running, Stage

NUM_VERSIONS = 1_000


class Scene:
    """A stage in memory, its publisher, and what was published."""

    def __init__(self, folder: Path, key: bytes | None = None) -> None:
        self.folder, self.now, self.key = folder, 0.0, key
        self.bus = MemoryBus()
        self.bus.admin().create_topics(topics.all_topics(), 1, 1)
        self.blobs = BlobStore((folder / "blobs").as_uri())
        self.model = small_model()
        self.engine = NumpyEngine(self.model)
        self.process = Running()
        self.num_starts = 0
        self.random = np.random.default_rng(7)
        self.stage = self.fresh_stage()
        self.publisher = Publisher(self.bus, self.blobs, POLICY, key=key)
        self.manifests: list[WeightsManifest] = []

    def fresh_stage(self) -> Stage:
        return Stage(
            self.bus, self.blobs, self.engine, small_model(), self.folder, self.start,
            lambda: self.now, self.key,
        )  # fmt: skip

    def start(self) -> Running:
        self.num_starts += 1
        self.engine.start()
        self.process = Running()
        return self.process

    def refuse_all(self, seconds: float, *, drain: bool = True) -> bool:
        """As an engine answers that is broken from its start."""
        raise EngineError(f"{seconds} {drain}")

    def publish(self, density: float = 0.05) -> WeightsManifest:
        if self.manifests:
            self.model = stepped(self.model, self.random, density)
        self.manifests.append(self.publisher.publish(self.model))
        return self.manifests[-1]

    def publish_many(self, number: int) -> list[WeightsManifest]:
        return [self.publish() for _ in range(number)]

    def commit(self, manifest: WeightsManifest) -> WeightsManifest:
        """A manifest as no publisher of ours writes it."""
        record = Record(topics.WEIGHTS_VERSIONS, key_of(manifest), codec.encode(manifest))
        deliver_now(self.bus.producer("x"), [record], 1.0)
        return manifest

    def require_serving(self, manifest: WeightsManifest) -> None:
        shadow = self.stage.require_equal()
        label, digests = self.engine.answer()
        assert shadow.root == manifest.root == label["root"]
        assert label["version"] == manifest.version
        assert digests == dict(shadow.digests)
        beat = self.stage.beats()[-1]
        assert beat is not None
        assert (beat.version, beat.root) == (manifest.version, manifest.root)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_thousand_versions_one_after_the_other(scene: Scene) -> None:
    for number in range(NUM_VERSIONS):
        scene.publish(density=[0.002, 0.05, 0.6][number % 3])
        scene.stage.assign(scene.manifests[-1].version, scene.manifests[-1].root)
        while scene.stage.worker.serving is None or (
            scene.stage.worker.serving.version != scene.manifests[-1].version
        ):
            scene.stage.turn()
        label, digests = scene.engine.answer()
        shadow = scene.stage.worker.shadow
        assert shadow is not None
        assert label["root"] == shadow.root == scene.manifests[-1].root
        assert digests == dict(shadow.digests)
    acks = scene.stage.acks()
    assert [ack.status for ack in acks] == [AckStatus.APPLIED] * NUM_VERSIONS
    scene.require_serving(scene.manifests[-1])


def test_what_is_not_signed_with_the_deployment_s_key_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, key=b"k" * 32)
    first, second = scene.publish_many(2)
    assert scene.stage.go_to(first).status is AckStatus.APPLIED
    bare = replace(second, version=3, signature=None)
    forged = signed(replace(second, version=4), b"x" * 32)
    altered = replace(second, version=5)  # its signature is that of version 2
    for manifest in (bare, forged, altered):
        ack = scene.stage.go_to(scene.commit(manifest))
        assert (ack.status, ack.error) == (AckStatus.REFUSED, "wrong_signature")
        assert (ack.version, ack.root) == (manifest.version, None)
        scene.require_serving(first)
    assert scene.stage.go_to(second).status is AckStatus.APPLIED
    scene.require_serving(second)


def test_what_it_did_is_counted(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    for manifest in (first, second):
        scene.stage.go_to(manifest)
    broken = scene.commit(replace(second, version=3, root="cd" * 32))
    refused = scene.stage.go_to(broken)
    assert refused.error
    of = scene.stage.metrics.registry.get_sample_value
    assert of("headrace_worker_version") == 2
    assert of("headrace_worker_engines_total") == 1
    assert of("headrace_worker_refusals_total", {"reason": refused.error}) == 1
    for name in ("stage", "pause", "apply"):
        assert of(f"headrace_worker_{name}_seconds_count") == 2
    scene.process.code = -9
    while scene.stage.worker.serving is not None:
        scene.stage.turn()
    assert of("headrace_worker_version") == 0


def test_without_an_assignment_the_model_is_served_without_a_version(scene: Scene) -> None:
    scene.publish()
    scene.stage.turn()
    scene.stage.turn()
    label, _ = scene.engine.answer()
    assert (label["policy"], label["version"]) == (POLICY, None)
    beat = scene.stage.beats()[-1]
    assert beat is not None
    assert beat.version is None
    assert scene.stage.acks() == []


def test_many_versions_are_written_in_one_pause(scene: Scene) -> None:
    first, *_, last = scene.publish_many(9)
    scene.stage.go_to(first)
    num_writes = scene.engine.num_writes
    assert scene.stage.go_to(last).status is AckStatus.APPLIED
    assert scene.engine.num_writes == num_writes + 1
    scene.require_serving(last)


@pytest.mark.parametrize("back", [1, 3, 20])
def test_rollback_reads_nothing(scene: Scene, back: int) -> None:
    manifests = scene.publish_many(22)
    for manifest in (manifests[0], manifests[-1]):
        scene.stage.go_to(manifest)
    scene.bus.logs[topics.WEIGHTS_CHUNKS][0].records.clear()
    for path in (scene.folder / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    wanted = manifests[-1 - back]
    ack = scene.stage.go_to(wanted)
    assert (ack.status, ack.version) == (AckStatus.APPLIED, wanted.version)
    scene.require_serving(wanted)


def test_who_comes_late_takes_the_nearest_snapshot(scene: Scene) -> None:
    manifests = scene.publish_many(50)
    assert scene.stage.go_to(manifests[-1]).status is AckStatus.APPLIED
    scene.require_serving(manifests[-1])


def test_expired_chunks_are_healed_by_a_later_snapshot(scene: Scene) -> None:
    first, *_ = scene.publish_many(5)
    scene.publisher.publish_snapshot()
    last = scene.publish()
    scene.stage.go_to(first)
    log = scene.bus.logs[topics.WEIGHTS_CHUNKS][0]
    kept = [r for r in log.records if r.offset >= last.parts[0].offset]
    log.first, log.records = kept[0].offset, kept
    assert scene.stage.go_to(last).status is AckStatus.APPLIED
    scene.require_serving(last)


def test_a_refused_version_is_told_and_tried_again_when_more_is_known(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schemas.weights.publish.SNAPSHOT_SHARE", 1e9)
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    log = scene.bus.logs[topics.WEIGHTS_CHUNKS][0]
    good = log.records[0]
    assert good.value is not None
    log.records[0] = replace(good, value=good.value[:-1] + bytes([good.value[-1] ^ 1]))
    ack = scene.stage.go_to(second)
    assert (ack.status, ack.error, ack.root) == (AckStatus.REFUSED, "chunk_corrupt", None)
    scene.require_serving(first)
    for _ in range(3):
        scene.stage.turn()
    assert len(scene.stage.acks()) == 2
    scene.publisher.publish_snapshot()
    while scene.stage.worker.serving is None or scene.stage.worker.serving.version != 2:
        scene.stage.turn()
    assert scene.stage.acks()[-1].status is AckStatus.APPLIED
    scene.require_serving(second)


def test_a_version_that_nobody_published_is_waited_for_and_then_refused(scene: Scene) -> None:
    first = scene.publish()
    scene.stage.go_to(first)
    scene.stage.assign(9, "00" * 32)
    for _ in range(5):
        scene.stage.turn()
    assert len(scene.stage.acks()) == 1
    scene.now += 6.0
    scene.stage.turn()
    ack = scene.stage.acks()[-1]
    assert (ack.status, ack.error, ack.version) == (AckStatus.REFUSED, "unknown_base", 9)
    scene.require_serving(first)


def test_a_manifest_that_was_not_taken_is_refused_with_its_reason(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    low = scene.commit(replace(second, version=3, epoch=0, from_version=2, from_root=second.root))
    wrong = scene.commit(replace(second, version=4, from_root="ab" * 32))
    for manifest, reason in ((low, "lower_epoch"), (wrong, "wrong_base")):
        scene.stage.assign(manifest.version, manifest.root)
        scene.stage.turn()
        scene.now += 6.0
        scene.stage.turn()
        assert scene.stage.acks()[-1].error == reason
        scene.require_serving(first)


def test_an_engine_error_is_undone_and_told(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.fail_after, scene.engine.num_failures = 3, 1
    ack = scene.stage.go_to(second)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "engine_failed")
    scene.require_serving(first)
    assert scene.stage.go_to(second).status is AckStatus.APPLIED
    scene.require_serving(second)


def test_a_full_disk_is_waited_for(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    patch = scene.folder / "patch"
    patch.unlink(missing_ok=True)
    patch.mkdir()  # a file cannot be written there
    scene.stage.assign(second.version, second.root)
    for _ in range(3):
        scene.stage.turn()
    assert len(scene.stage.acks()) == 1
    scene.require_serving(first)
    patch.rmdir()
    scene.now += 2.0
    scene.stage.turn()
    scene.require_serving(second)


def test_a_busy_engine_is_asked_again(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.is_busy = True
    scene.stage.assign(second.version, second.root)
    scene.stage.turn()
    scene.engine.is_busy = False
    scene.require_serving(first)
    scene.now += 2.0
    scene.stage.turn()
    scene.require_serving(second)


def test_an_engine_that_stays_busy_is_told_and_asked_again_at_once_for_another(
    scene: Scene,
) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.is_busy = True
    scene.stage.assign(second.version, second.root)
    for _ in range(MAX_WAITS):
        scene.stage.turn()
        assert len(scene.stage.acks()) == 1
        scene.now += 30.0
    scene.stage.turn()
    told = scene.stage.acks()[-1]
    assert (told.status, told.error) == (AckStatus.REFUSED, "engine_busy")
    scene.require_serving(first)
    scene.engine.is_busy = False
    assert scene.stage.go_to(second).status is AckStatus.APPLIED
    scene.require_serving(second)


def test_an_assignment_is_not_kept_waiting_by_the_one_before_it(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.is_busy = True
    scene.stage.assign(second.version, second.root)
    for _ in range(3):
        scene.stage.turn()
        scene.now += 3.0
    scene.engine.is_busy = False
    assert scene.stage.go_to(first).status is AckStatus.APPLIED  # on a clock that stands still
    scene.require_serving(first)


def test_engines_are_not_lost_without_end_over_one_assignment(scene: Scene) -> None:
    """Not by new manifests either, as a trainer publishes them all the time."""
    good, bad = scene.publish_many(3)[1:]
    scene.stage.go_to(good)
    scene.engine.fail_after, scene.engine.num_failures = 3, 10_000
    scene.stage.assign(bad.version, bad.root)
    for _ in range(40):
        scene.now += 31.0
        scene.publish()
        scene.stage.turn()
    assert [ack.status for ack in scene.stage.acks()[1:]] == [AckStatus.QUARANTINED]
    assert scene.num_starts == 1 + 2 * MAX_LOSSES
    scene.engine.num_failures = 0
    assert scene.stage.go_to(bad).status is AckStatus.APPLIED
    scene.require_serving(bad)


def test_an_engine_that_never_shows_its_weights_is_given_up(scene: Scene) -> None:
    scene.engine.hold = scene.refuse_all  # type: ignore[assignment, method-assign]
    with pytest.raises(ConfigError, match="did not show its weights"):  # noqa: PT012 - a loop
        for _ in range(40):
            scene.now += 31.0
            scene.stage.turn()
    assert scene.num_starts == 5


def test_a_heartbeat_that_cannot_be_sent_any_more_ends_the_worker(scene: Scene) -> None:
    scene.stage.announcer.start()
    scene.stage.announcer.close()  # as when its thread has ended
    with pytest.raises(RuntimeError, match="heartbeats"):
        scene.stage.turn()


def test_an_engine_that_is_lost_once_is_started_anew_and_healed(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.fail_after, scene.engine.num_failures = 3, 2
    ack = scene.stage.go_to(second)
    assert ack.status is AckStatus.APPLIED
    assert None in scene.stage.beats()
    scene.require_serving(second)


def test_an_engine_that_is_lost_twice_serves_what_it_served_before(scene: Scene) -> None:
    first, second = scene.publish_many(2)
    scene.stage.go_to(first)
    scene.engine.fail_after, scene.engine.num_failures = 3, 4
    ack = scene.stage.go_to(second)
    assert (ack.status, ack.error) == (AckStatus.QUARANTINED, "engine_failed")
    while scene.stage.worker.serving is None:
        scene.now += 1.0
        scene.stage.turn()
    scene.require_serving(first)


def test_an_engine_that_dies_by_itself_comes_back_where_it_was(scene: Scene) -> None:
    *_, last = scene.publish_many(5)
    scene.stage.go_to(last)
    scene.engine.is_dead, scene.process.code = True, -9
    scene.stage.turn()
    assert scene.stage.beats()[-1] is None
    while scene.stage.worker.serving is None:
        scene.now += 1.0
        scene.stage.turn()
    scene.require_serving(last)
    assert [ack.status for ack in scene.stage.acks()] == [AckStatus.APPLIED] * 2


def test_a_worker_that_is_killed_comes_back_where_its_ring_is(scene: Scene) -> None:
    *_, last = scene.publish_many(5)
    scene.stage.go_to(last)
    scene.stage = scene.fresh_stage()
    while scene.stage.worker.serving is None:
        scene.stage.turn()
    scene.require_serving(last)


def test_an_engine_with_other_weights_than_its_model_is_a_mistake(scene: Scene) -> None:
    scene.stage.base = stepped(small_model(), scene.random, 0.5)
    scene.stage.turn()
    with pytest.raises(ConfigError, match=r"other weights than worker\.model"):
        scene.stage.turn()


def test_a_model_with_other_tensors_is_refused(scene: Scene, tmp_path: Path) -> None:
    other: dict[str, Tensor] = dict(small_model())
    del other["model.norm.weight"]
    manifest = scene.publisher.publish(other)
    ack = scene.stage.go_to(manifest)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "wrong_layout")
    assert tmp_path.exists()
