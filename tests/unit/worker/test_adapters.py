"""Versions that are adapters, with an engine in process that keeps them by name."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference.worker.adapters import Adapters
from inference.worker.engine.shelf import Shelf
from inference.worker.update import EngineError
from schemas.atdp.weights import AckStatus, WeightsManifest
from schemas.weights.checkpoints import read_shard
from schemas.weights.tensors import digests_of
from tests.tiny_adapter import tiny_adapter
from tests.unit.worker.engines import small_model
from tests.unit.worker.test_worker import Scene
from tests.worker_stage import Stage


@dataclass
class Cupboard:
    """What an engine does with adapters."""

    held: dict[str, Path] = field(default_factory=dict)
    is_up: bool = True
    refuses: bool = False
    flips: bool = False
    num_loads: int = 0

    def is_healthy(self) -> bool:
        return self.is_up

    def load_adapter(self, name: str, folder: Path) -> dict[str, bytes]:
        self.num_loads += 1
        if self.refuses or not self.is_up:
            raise EngineError("/v1/load_lora_adapter was answered 400")
        self.held[name] = folder
        found = digests_of(read_shard((folder / "adapter_model.safetensors").read_bytes()))
        return dict.fromkeys(found, b"") if self.flips else found

    def unload_adapter(self, name: str) -> None:
        self.held.pop(name, None)


class AdapterScene(Scene):
    """The scene of the worker, with adapters."""

    def __init__(self, folder: Path) -> None:
        self.cupboard = Cupboard()
        super().__init__(folder)
        self.first, self.second = self.publish_many(2)
        self.one, self.two = (
            self.publisher.publish_adapter(tiny_adapter(seed), base)
            for seed, base in ((1, 1), (2, 2))
        )

    def fresh_stage(self) -> Stage:
        adapters = Adapters(self.cupboard, self.blobs, self.folder / "adapters")
        return Stage(
            self.bus, self.blobs, self.engine, small_model(), self.folder, self.start,
            lambda: self.now, adapters=adapters,
        )  # fmt: skip

    def apply(self, manifest: WeightsManifest) -> None:
        ack = self.stage.go_to(manifest)
        assert (ack.status, ack.error) == (AckStatus.APPLIED, None)
        self.require(manifest)

    def require(self, manifest: WeightsManifest) -> None:
        """The label is the version's, the weights are those it lies on, and its adapter answers."""
        label, _ = self.engine.answer()
        assert (label["version"], label["root"]) == (manifest.version, manifest.root)
        shadow = self.stage.require_equal()
        is_adapter = manifest in (self.one, self.two)
        assert shadow.root == (manifest.from_root if is_adapter else manifest.root)
        assert (label["adapter"] in self.cupboard.held) == is_adapter
        assert len(self.cupboard.held) == int(is_adapter), "others are forgotten"
        folders = self.folder / "adapters"
        assert len(list(folders.glob("*"))) == int(is_adapter)


@pytest.fixture
def scene(tmp_path: Path) -> AdapterScene:
    return AdapterScene(tmp_path)


def test_adapters_and_weights_follow_one_another(scene: AdapterScene) -> None:
    for manifest in (scene.one, scene.two, scene.first, scene.two, scene.one, scene.second):
        scene.apply(manifest)


def test_a_worker_that_takes_none_says_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    first = scene.publish()
    adapter = scene.publisher.publish_adapter(tiny_adapter(1), 1)
    assert scene.stage.go_to(first).status is AckStatus.APPLIED
    ack = scene.stage.go_to(adapter)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "adapters_off")
    scene.require_serving(first)


@pytest.mark.parametrize("way", ["refuses", "flips"])
def test_what_the_engine_does_not_take_is_refused_and_nothing_moves(
    scene: AdapterScene, way: str
) -> None:
    scene.apply(scene.one)
    setattr(scene.cupboard, way, True)
    num_loads = scene.cupboard.num_loads
    ack = scene.stage.go_to(scene.two)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "adapter_refused")
    assert scene.cupboard.num_loads == num_loads + 1
    scene.require(scene.one)
    setattr(scene.cupboard, way, False)
    scene.apply(scene.two)


def test_a_blob_that_is_gone_is_refused_and_nothing_moves(scene: AdapterScene) -> None:
    scene.apply(scene.first)
    for path in (scene.folder / "blobs").rglob("*"):
        if path.is_file() and path.stat().st_size == scene.two.blobs[0].num_bytes:
            path.unlink()
    ack = scene.stage.go_to(scene.two)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "blob_missing")
    scene.require(scene.first)


def test_a_full_disk_is_waited_for(scene: AdapterScene) -> None:
    scene.apply(scene.first)
    folder = scene.folder / "adapters"
    folder.write_text("")  # no folder can be made there
    scene.stage.assign(scene.two.version, scene.two.root)
    for _ in range(3):
        scene.stage.turn()
    assert len(scene.stage.acks()) == 1, "nobody was told of a refusal"
    scene.require_serving(scene.first)
    folder.unlink()
    scene.now += 2.0
    scene.stage.turn()
    scene.require(scene.two)


def test_an_engine_error_in_the_middle_brings_the_old_adapter_back(scene: AdapterScene) -> None:
    scene.apply(scene.one)
    scene.engine.fail_after, scene.engine.num_failures = 2, 1
    ack = scene.stage.go_to(scene.two)
    assert (ack.status, ack.error) == (AckStatus.REFUSED, "engine_failed")
    label, _ = scene.engine.answer()
    assert (label["version"], label["root"]) == (scene.one.version, scene.one.root)
    assert label["adapter"] in scene.cupboard.held
    scene.apply(scene.two)


def test_a_fresh_engine_gets_its_adapter_again(scene: AdapterScene) -> None:
    scene.apply(scene.two)
    scene.cupboard.held.clear()
    scene.process.code = -9
    while scene.stage.worker.serving is not None:
        scene.stage.turn()
    scene.now += 60.0
    while scene.stage.worker.serving is None:
        scene.stage.turn()
    scene.require(scene.two)


def test_an_engine_that_dies_while_it_loads_is_started_anew(scene: AdapterScene) -> None:
    scene.apply(scene.first)
    scene.cupboard.is_up = False
    scene.stage.assign(scene.two.version, scene.two.root)
    while scene.stage.worker.serving is not None:
        scene.stage.turn()
    assert len(scene.stage.acks()) == 1, "nobody was told of a refusal"
    scene.cupboard.is_up = True
    scene.now += 60.0
    while scene.stage.worker.serving is None:
        scene.stage.turn()
    scene.require(scene.two)


@dataclass
class Request:
    """As vLLM has it."""

    lora_name: str
    lora_int_id: int = 7


def test_a_loaded_adapter_has_no_name_of_its_own_and_answers_under_the_served_one() -> None:
    models = SimpleNamespace(
        lora_requests={"x": Request("x")}, base_model_paths=[SimpleNamespace(name="main")]
    )
    scope = {"app": SimpleNamespace(state=SimpleNamespace(openai_serving_models=models))}
    shelf = Shelf()
    assert shelf.take(scope, "x") == 7
    assert models.lora_requests == {}, "nobody can ask for it before it is served"
    shelf.answer_with(scope, "x")
    assert models.lora_requests == {"main": Request("main")}
    with pytest.raises(KeyError):
        shelf.answer_with(scope, "y")
    shelf.answer_with(scope, None)
    assert models.lora_requests == {}
    for _ in range(2):
        shelf.forget(scope, "x")
    with pytest.raises(KeyError):
        shelf.answer_with(scope, "x")


def test_what_was_loaded_and_not_taken_is_forgotten_by_vllm_too() -> None:
    """The answer to a load may be lost, and its own name would bypass the label."""
    models = SimpleNamespace(
        lora_requests={"x": Request("x"), "main": Request("main")},
        base_model_paths=[SimpleNamespace(name="main")],
    )
    scope = {"app": SimpleNamespace(state=SimpleNamespace(openai_serving_models=models))}
    Shelf().forget(scope, "x")
    assert models.lora_requests == {"main": Request("main")}


def test_another_server_than_vllm_s_has_no_adapters() -> None:
    Shelf().answer_with({}, None)
    Shelf().forget({}, "x")
    with pytest.raises(RuntimeError):
        Shelf().answer_with({}, "x")
