"""Taking updates back, and how much of them is remembered."""

import numpy as np

from inference.worker.undo import UndoList
from schemas.weights.shadow import Patch, Shadow
from tests.unit.worker.engines import small_model, stepped


def walk(shadow: Shadow, num_versions: int) -> list[Patch]:
    random = np.random.default_rng(3)
    return [
        shadow.apply(shadow.diff(stepped(shadow.tensors, random, 0.1))[0])
        for _ in range(num_versions)
    ]


def test_any_number_of_updates_is_taken_back_at_once() -> None:
    shadow = Shadow(small_model())
    patches = walk(shadow, 6)
    for num_updates in range(1, 7):
        undo, copy = UndoList(10, 10**9), Shadow(shadow.tensors)
        for patch in patches:
            undo.add(patch)
        copy.write(undo.patch_back(num_updates))
        assert copy.root == patches[-num_updates].from_root == undo.roots[-num_updates]
        copy.prove()
        undo.forget(num_updates)
        assert undo.roots == tuple(patch.from_root for patch in patches[:-num_updates])


def test_the_oldest_ones_are_forgotten_beyond_either_limit() -> None:
    patches = walk(Shadow(small_model()), 5)
    by_number, by_bytes = UndoList(3, 10**9), UndoList(10, 10**9)
    for patch in patches:
        by_number.add(patch)
        by_bytes.add(patch)
    assert by_number.roots == tuple(patch.from_root for patch in patches[2:])
    tight = UndoList(10, by_bytes.num_bytes - 1)
    for patch in patches:
        tight.add(patch)
    assert tight.roots == tuple(patch.from_root for patch in patches[1:])
    tight.clear()
    assert (tight.roots, tight.num_bytes) == ((), 0)
