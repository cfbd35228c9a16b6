"""Where tensors of a checkpoint lie among fused, padded and tied parameters."""

import pytest

from inference.worker.engine.places import NoPlaceError, Place, places
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Spec
from tests.unit.worker.engines import PACKED, PARAMETERS, SHAPES

LAYOUT = {name: Spec(Dtype.BF16, shape) for name, shape in SHAPES.items()}
_AT = "model.layers.0."


def test_fused_tensors_lie_row_block_behind_row_block() -> None:
    found = places(LAYOUT, PARAMETERS, PACKED)
    qkv = _AT + "self_attn.qkv_proj.weight"
    assert found[_AT + "self_attn.q_proj.weight"] == Place(qkv, 0, 64)
    assert found[_AT + "self_attn.k_proj.weight"] == Place(qkv, 64, 32)
    assert found[_AT + "self_attn.v_proj.weight"] == Place(qkv, 96, 32)
    assert found[_AT + "mlp.up_proj.weight"] == Place(_AT + "mlp.gate_up_proj.weight", 128, 128)


def test_no_two_tensors_share_an_element_and_the_padding_is_left_alone() -> None:
    taken: dict[str, set[int]] = {}
    for place in places(LAYOUT, PARAMETERS, PACKED).values():
        elements = set(range(place.first_element, place.first_element + place.num_elements))
        assert not taken.setdefault(place.parameter, set()) & elements
        taken[place.parameter] |= elements
    assert taken["model.embed_tokens.weight"] == set(range(80))


def test_a_tied_head_is_the_embedding() -> None:
    layout = {**LAYOUT, "lm_head.weight": Spec(Dtype.BF16, (10, 8))}
    found = places(layout, PARAMETERS, PACKED)
    assert found["lm_head.weight"] == found["model.embed_tokens.weight"]
    untied = places(layout, {**PARAMETERS, "lm_head.weight": (64, 8)}, PACKED)
    assert untied["lm_head.weight"] == Place("lm_head.weight", 0, 80)


def test_other_names_are_mapped_as_the_engine_says() -> None:
    layout = {f"language.{name}": spec for name, spec in LAYOUT.items()}
    found = places(layout, PARAMETERS, PACKED, lambda name: name.removeprefix("language."))
    assert found["language." + _AT + "self_attn.k_proj.weight"].first_element == 64


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.unknown.weight", (8, 8)),
        ("model.norm.weight", (9,)),
        (_AT + "self_attn.k_proj.weight", (5, 8)),
        (_AT + "self_attn.o_proj.weight", (8, 4)),
    ],
)
def test_a_tensor_without_a_place_is_named(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(NoPlaceError, match=r"has no place for model\."):
        places({**LAYOUT, name: Spec(Dtype.BF16, shape)}, PARAMETERS, PACKED)
