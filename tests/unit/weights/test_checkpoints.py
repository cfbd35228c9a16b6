"""Whole models in files: ours are what safetensors writes, and theirs are read carefully."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from schemas.errors import ConfigError
from schemas.weights.checkpoints import dtype_of_all, read_folder, read_shard, shard, shards
from schemas.weights.dtypes import Dtype
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Tensor, Tensors, layout_of
from tests.unit.weights.models import random_model, same, versions

SHAPES: dict[str, tuple[int, ...]] = {"a": (4, 9), "b": (31,), "c": (), "d": (0, 3), "e": (64,)}


def model() -> dict[str, Tensor]:
    return random_model(np.random.default_rng(1), SHAPES)


def _reference(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """What the safetensors package reads."""
    package: Any = safetensors  # untyped
    return {
        name: (d["dtype"], [*d["shape"]], bytes(d["data"])) for name, d in package.deserialize(data)
    }


@given(versions())
def test_what_we_write_we_read(pair: tuple[Tensors, Tensors]) -> None:
    for one in pair:
        assert same(read_shard(shard(one)), one)


def test_the_safetensors_package_reads_what_we_write() -> None:
    found = _reference(shard(model()))
    assert found == {
        name: (t.spec.dtype.value, [*t.spec.shape], t.bits.tobytes()) for name, t in model().items()
    }


def test_we_read_what_the_safetensors_package_writes() -> None:
    floats = {Dtype.F32: np.float32, Dtype.F16: np.float16}
    ours = {name: t for name, t in model().items() if t.spec.dtype in floats}
    assert len(ours) == 2
    theirs = {
        name: t.bits.view(floats[t.spec.dtype]).reshape(t.spec.shape) for name, t in ours.items()
    }
    assert same(read_shard(save(theirs, {"format": "np"})), ours)


def test_the_same_weights_make_the_same_bytes() -> None:
    backwards = dict(reversed(model().items()))
    assert list(shards(backwards)) == list(shards(model()))


def test_a_model_is_cut_into_files_at_tensors() -> None:
    cut = list(shards(model(), shard_bytes=100))
    assert len(cut) > 1
    merged: dict[str, Tensor] = {}
    for data in cut:
        merged |= read_shard(data)
    assert same(merged, model())
    assert len(list(shards({}))) == 1


@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    good = shard(model())
    broken = bytearray(good)
    for _ in range(data.draw(st.integers(1, 5))):
        broken[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_shard(bytes(broken[: data.draw(st.integers(0, len(good)))]))
    except RefusedError:
        return
    assert sum(t.bits.nbytes for t in found.values()) <= len(good)


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def line(dtype: str, shape: Any, offsets: Any) -> dict[str, Any]:
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


HOSTILE = {
    "empty": b"",
    "a header beyond the file": struct.pack("<Q", 2**63) + b"{}",
    "no JSON": file_of(b"nonsense"),
    "deep JSON": file_of(b"[" * 100_000),
    "a list": file_of([]),
    "no offsets": file_of({"t": {"dtype": "F16", "shape": [1]}}),
    "a tensor that is text": file_of({"t": "F16"}),
    "shape of fractions": file_of(line("F16", [1.0], [0, 2]), bytes(2)),
    "shape of truths": file_of(line("F16", [True], [0, 2]), bytes(2)),
    "a negative dimension": file_of(line("F16", [-1, -1], [0, 2]), bytes(2)),
    "an enormous shape": file_of(line("F16", [2**62, 2**62], [0, 2]), bytes(2)),
    "more than there is": file_of(line("F16", [2], [0, 4]), bytes(2)),
    "backwards": file_of(line("F16", [1], [2, 0]), bytes(2)),
    "a shape that does not fit": file_of(line("F16", [2], [0, 2]), bytes(2)),
    "data that nobody owns": file_of(line("F16", [1], [0, 2]), bytes(3)),
    "a hole": file_of(line("F16", [1], [2, 4]), bytes(4)),
    "the same data twice": file_of(
        {**line("F16", [1], [0, 2]), "u": line("F16", [1], [0, 2])["t"]}, bytes(2)
    ),
    "nine dimensions": file_of(line("F16", [1] * 9, [0, 2]), bytes(2)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(RefusedError):
        read_shard(HOSTILE[name])


def test_a_number_format_that_cannot_be_carried_is_named() -> None:
    with pytest.raises(RefusedError) as refused:
        read_shard(file_of(line("I64", [1], [0, 8]), bytes(8)))
    assert refused.value.refusal is Refusal.WRONG_LAYOUT
    assert refused.value.where == "t (I64)"


def test_a_folder_of_several_files_is_one_model(tmp_path: Path) -> None:
    for number, data in enumerate(shards(model(), shard_bytes=100)):
        (tmp_path / f"model-{number}.safetensors").write_bytes(data)
    (tmp_path / "config.json").write_text("{}")
    assert same(read_folder(tmp_path), model())


def test_folders_that_hold_no_model_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Name a Hugging Face checkpoint folder"):
        read_folder(tmp_path)
    with pytest.raises(ConfigError, match="holds no"):
        read_folder(tmp_path / "absent")
    (tmp_path / "a.safetensors").write_bytes(shard(model()))
    (tmp_path / "b.safetensors").write_bytes(shard(model()))
    with pytest.raises(ConfigError, match="a is in two files"):
        read_folder(tmp_path)
    (tmp_path / "b.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="no whole safetensors file"):
        read_folder(tmp_path)
    (tmp_path / "b.safetensors").write_bytes(file_of(line("I64", [1], [0, 8]), bytes(8)))
    with pytest.raises(ConfigError, match=r"t \(I64\) cannot be carried"):
        read_folder(tmp_path)


def test_the_number_format_of_a_model_is_one_or_mixed() -> None:
    assert dtype_of_all(layout_of(model())) == "mixed"
    one = {n: t for n, t in model().items() if t.spec.dtype is Dtype.BF16}
    assert dtype_of_all(layout_of(one)) == "BF16"
