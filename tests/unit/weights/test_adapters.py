"""Adapters as versions: published whole, on weights that are there, and proved before use."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas import topics
from schemas.atdp.weights import ManifestKind, VersionRef
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.store import BlobStore
from schemas.weights.adapters import Adapter, fetch_adapter, is_adapter, read_adapter
from schemas.weights.manifests import History, digests_in
from schemas.weights.publish import Publisher
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import digests_of
from schemas.weights.versions import read_history, restore
from tests.tiny_adapter import tiny_adapter
from tests.unit.weights.models import random_model, same, stepped

SHAPES: dict[str, tuple[int, ...]] = {"a": (40, 9), "b": (31,)}


class Shop:
    """A policy with two versions of weights."""

    def __init__(self, folder: Path) -> None:
        self.bus = MemoryBus()
        self.bus.admin().create_topics(topics.all_topics(), 1, 1)
        self.blobs = BlobStore(folder.as_uri())
        self.publisher = Publisher(self.bus, self.blobs, "main")
        self.random = np.random.default_rng(1)
        self.model = random_model(self.random, SHAPES)
        self.publisher.publish(self.model)
        self.step()

    def step(self) -> None:
        self.model = stepped(self.random, self.model, 0.1)
        self.publisher.publish(self.model)

    def history(self) -> History:
        return read_history(self.bus, "main")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_an_adapter_is_the_next_version_and_the_baseline_stays(shop: Shop) -> None:
    adapter = tiny_adapter(1)
    manifest = shop.publisher.publish_adapter(adapter, 2)
    assert (manifest.version, manifest.kind, manifest.from_version) == (3, ManifestKind.ADAPTER, 2)
    assert fetch_adapter(shop.blobs, manifest) == adapter
    assert digests_in(manifest) == digests_of(adapter.tensors())
    shop.step()
    history = shop.history()
    assert history.refused == []
    assert (history.versions[4].from_version, history.newest_weights) == (2, history.versions[4])
    assert same(restore(shop.bus, shop.blobs, history, 4).tensors, shop.model)
    base = VersionRef(version=2, root=history.versions[2].root)
    assert history.weights_of(VersionRef(version=3, root=manifest.root)) == base
    assert history.weights_of(base) == base


def test_an_adapter_lies_on_weights_that_are_there(shop: Shop) -> None:
    first = shop.publisher.publish_adapter(tiny_adapter(1), 2)
    for base in (first.version, 9):
        with pytest.raises(RefusedError) as caught:
            shop.publisher.publish_adapter(tiny_adapter(2), base)
        assert caught.value.refusal is Refusal.UNKNOWN_BASE
    history = shop.history()
    for lie, refusal in (
        ({"from_root": "ab" * 32}, Refusal.WRONG_BASE),
        ({"from_version": 3, "from_root": first.root}, Refusal.WRONG_BASE),
        ({"from_version": None, "from_root": None}, Refusal.UNKNOWN_BASE),
    ):
        with pytest.raises(RefusedError) as caught:
            history.take(replace(first, version=4, **lie))  # type: ignore[arg-type]
        assert caught.value.refusal is refusal


def test_the_same_files_on_other_weights_have_another_root() -> None:
    adapter = tiny_adapter(1)
    others = (tiny_adapter(2), replace(adapter, config=adapter.config + b" "))
    assert len({adapter.root("a"), adapter.root("b"), *(o.root("a") for o in others)}) == 4


def test_what_was_altered_is_refused(shop: Shop, tmp_path: Path) -> None:
    one, two = (shop.publisher.publish_adapter(tiny_adapter(n), 2) for n in (1, 2))
    swapped = replace(one, blobs=(two.blobs[0], one.blobs[1]))
    for lie, refusal in (
        (swapped, Refusal.WRONG_ROOT),
        (replace(one, blobs=one.blobs[:1]), Refusal.CORRUPT),
        (replace(one, codec="x"), Refusal.UNKNOWN_CODEC),
    ):
        with pytest.raises(RefusedError) as caught:
            fetch_adapter(shop.blobs, lie)
        assert caught.value.refusal is refusal
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size == one.blobs[0].num_bytes:
            path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(RefusedError) as caught:
        fetch_adapter(shop.blobs, one)
    assert caught.value.refusal is Refusal.BLOB_MISSING


@pytest.mark.parametrize(
    ("broken", "refusal"),
    [
        (Adapter(b"", b"{}"), Refusal.WRONG_LAYOUT),
        (Adapter(b"x", b'{"peft_type": "LORA"}'), Refusal.CORRUPT),
        (replace(tiny_adapter(1), config=b"nothing"), Refusal.WRONG_LAYOUT),
        (tiny_adapter(1, peft_type="IA3"), Refusal.WRONG_LAYOUT),
    ],
)
def test_what_is_no_adapter_is_not_published(
    shop: Shop, tmp_path: Path, broken: Adapter, refusal: Refusal
) -> None:
    with pytest.raises(RefusedError) as caught:
        shop.publisher.publish_adapter(broken, 2)
    assert caught.value.refusal is refusal
    with pytest.raises(ConfigError, match="cannot be published"):
        read_adapter(broken.write(tmp_path / "broken"))


def test_a_folder_of_peft_is_read_whole(tmp_path: Path) -> None:
    adapter = tiny_adapter(1)
    folder = adapter.write(tmp_path / "adapter")
    assert is_adapter(folder)
    assert read_adapter(folder) == adapter
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match="Save it with PEFT"):
        read_adapter(folder)
    assert not is_adapter(tmp_path)
