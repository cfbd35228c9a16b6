"""The shadow: moves all at once or not at all, and its root says what it holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.weights.delta import changed_positions
from schemas.weights.dtypes import Dtype
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.shadow import Patch, Shadow, coalesced
from schemas.weights.tensors import (
    MAX_ELEMENTS,
    Spec,
    Tensor,
    require_layout,
    root_of,
    tensor,
)
from schemas.weights.ulpgap import pack, unpack
from tests.unit.weights.models import random_model, same, stepped

SHAPES: dict[str, tuple[int, ...]] = {"a": (9, 5), "b": (31,), "c": (2, 2), "d": (1,), "e": (64,)}


def walk(seed: int, num_steps: int) -> tuple[Shadow, list[Patch], list[dict[str, Tensor]]]:
    """A shadow after some steps, the patches that led there and every version on the way."""
    rng = np.random.default_rng(seed)
    models = [random_model(rng, SHAPES)]
    shadow, patches = Shadow(models[0]), []
    for _ in range(num_steps):
        models.append(stepped(rng, models[-1], float(rng.choice([0.0, 0.1, 0.6]))))
        patches.append(shadow.apply(shadow.diff(models[-1])[0]))
    return shadow, patches, models


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_the_root_that_follows_changes_is_the_root_from_scratch(seed: int, steps: int) -> None:
    shadow, patches, models = walk(seed, steps)
    assert shadow.root == Shadow(models[-1]).root == patches[-1].root
    assert shadow.digests == Shadow(models[-1]).digests
    shadow.prove()


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_several_patches_in_one_do_what_they_do_one_by_one(seed: int, steps: int) -> None:
    _, patches, models = walk(seed, steps)
    shadow = Shadow(models[0])
    together = coalesced(patches)
    shadow.write(together)
    assert same(shadow.tensors, models[-1])
    for change in together.changes.values():
        assert np.all(np.diff(change.positions.astype(np.int64)) > 0)
    shadow.write(together.inverse())
    assert same(shadow.tensors, models[0])


def test_patches_that_do_not_follow_one_another_are_not_put_together() -> None:
    _, patches, _ = walk(1, 3)
    with pytest.raises(RefusedError) as refused:
        coalesced([patches[0], patches[2]])
    assert refused.value.refusal is Refusal.WRONG_BASE


def test_a_delta_for_another_base_is_refused_and_nothing_moves() -> None:
    shadow, _, models = walk(2, 2)
    elsewhere = Shadow(models[0])
    delta, digests = shadow.diff(stepped(np.random.default_rng(9), models[-1], 0.5))
    with pytest.raises(RefusedError) as refused:
        elsewhere.apply(unpack(pack(delta), elsewhere.layout), digests)
    assert refused.value.refusal is Refusal.WRONG_BASE
    assert same(elsewhere.tensors, models[0])
    elsewhere.prove()


@pytest.mark.parametrize("lie", ["digest", "digest of another tensor", "no digest", "root"])
def test_what_does_not_prove_is_taken_back(lie: str) -> None:
    shadow, _, models = walk(3, 1)
    delta, digests = shadow.diff(stepped(np.random.default_rng(4), models[-1], 0.5))
    name = next(iter(digests))
    wanted = Refusal.WRONG_DIGEST
    match lie:
        case "digest":
            digests[name] = bytes(16)
        case "digest of another tensor":
            digests["zz"] = bytes(16)
        case "no digest":
            del digests[name]
        case "root":
            object.__setattr__(delta, "root", "11" * 32)
            wanted = Refusal.WRONG_ROOT
    root = shadow.root
    with pytest.raises(RefusedError) as refused:
        shadow.apply(delta, digests)
    assert refused.value.refusal is wanted
    assert shadow.root == root
    assert same(shadow.tensors, models[-1])
    shadow.prove()


def test_a_shadow_notices_that_its_memory_changed() -> None:
    shadow, _, _ = walk(5, 1)
    shadow.tensors["b"].bits[3] ^= 1
    with pytest.raises(RefusedError, match="wrong_digest at b"):
        shadow.prove()


def test_a_shadow_owns_its_memory() -> None:
    bits = np.arange(4, dtype=np.uint16)
    shadow = Shadow({"t": tensor(Dtype.BF16, (4,), bits)})
    bits[0] = 9
    shadow.prove()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"f": (3,)}, "f \\(added\\)"),
        ({"e": None}, "e \\(removed\\)"),
        ({"e": (8, 8)}, "e \\(F8_E5M2\\[64\\] became F8_E5M2\\[8,8\\]\\)"),
    ],
)
def test_another_layout_is_refused_by_name(
    change: dict[str, tuple[int, ...] | None], says: str
) -> None:
    base = random_model(np.random.default_rng(1), SHAPES)
    new = dict(base)
    for name, shape in change.items():
        if shape is None:
            del new[name]
        else:
            size = int(np.prod(shape))
            new[name] = tensor(Dtype.F8_E5M2, shape, np.zeros(size, np.uint8))
    with pytest.raises(RefusedError, match=says) as refused:
        Shadow(base).diff(new)
    assert refused.value.refusal is Refusal.WRONG_LAYOUT


def test_every_part_of_a_leaf_is_under_the_root() -> None:
    digests = {"a": bytes(16), "b": bytes(15) + b"\1"}
    layouts = [
        {"a": Spec(Dtype.BF16, (4,)), "b": Spec(Dtype.BF16, (2, 2))},
        {"a": Spec(Dtype.F16, (4,)), "b": Spec(Dtype.BF16, (2, 2))},
        {"a": Spec(Dtype.BF16, (4,)), "b": Spec(Dtype.BF16, (4,))},
        {"b": Spec(Dtype.BF16, (2, 2))},
    ]
    roots = [root_of(layout, digests) for layout in layouts]
    roots.append(root_of(layouts[0], {"a": digests["b"], "b": digests["a"]}))
    assert len(set(roots)) == len(roots)


@pytest.mark.parametrize(
    "layout",
    [
        {"": Spec(Dtype.BF16, (1,))},
        {"n" * 513: Spec(Dtype.BF16, (1,))},
        {"t": Spec(Dtype.BF16, (1,) * 9)},
        {"t": Spec(Dtype.BF16, (-1,))},
        {"t": Spec(Dtype.BF16, (MAX_ELEMENTS + 1,))},
    ],
)
def test_layouts_beyond_the_limits_are_refused(layout: dict[str, Spec]) -> None:
    with pytest.raises(RefusedError) as refused:
        require_layout(layout)
    assert refused.value.refusal is Refusal.WRONG_LAYOUT


def test_bits_must_fit_their_spec() -> None:
    for dtype, size in ((Dtype.F32, 4), (Dtype.BF16, 3)):
        with pytest.raises(RefusedError):
            tensor(dtype, (4,), np.zeros(size, np.uint16))


@given(st.integers(0, 2**32), st.integers(0, 80), st.sampled_from(["u1", "u2", "u4"]))
def test_positions_are_those_of_a_plain_comparison(seed: int, size: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    old = rng.integers(0, 3, size).astype(dtype)
    new = np.where(rng.random(size) < rng.random(), rng.integers(0, 3, size).astype(dtype), old)
    assert changed_positions(old, new).tolist() == np.flatnonzero(old != new).tolist()
