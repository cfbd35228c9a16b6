"""The file from worker to engine: exact, private, and refused when a single bit differs."""

import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.worker.engine import layout_file, patch_file
from inference.worker.engine.patch_file import BrokenPatchError, Values
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Spec

_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20),
        st.tuples(st.sampled_from([1, 2, 4]), st.sets(st.integers(0, 2**32 - 1), max_size=9)),
        max_size=4,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[str, tuple[int, set[int]]]
) -> None:
    path = tmp_path_factory.mktemp("patch") / "patch"
    changes = {}
    for name, (width, chosen) in plan.items():
        positions = np.array(sorted(chosen), np.uint32)
        bits = (np.arange(positions.size) * 37 % 251).astype(_TYPES[width])
        changes[name] = Values(positions, bits)
    assert patch_file.write(path, changes) == path.stat().st_size
    found = patch_file.read(path)
    assert found.keys() == changes.keys()
    for name, change in changes.items():
        assert (found[name].positions == change.positions).all()
        assert found[name].bits.dtype == change.bits.dtype
        assert (found[name].bits == change.bits).all()


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "patch"
    patch_file.write(path, {"a": Values(np.arange(3, dtype=np.uint32), np.zeros(3, np.uint16))})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(BrokenPatchError):
            patch_file.read(path)
        path.write_bytes(whole[:position])
        with pytest.raises(BrokenPatchError):
            patch_file.read(path)


def test_a_layout_survives_its_file() -> None:
    layout = {"a": Spec(Dtype.BF16, (2, 3)), "ç": Spec(Dtype.F8_E4M3, ())}
    assert layout_file.loads(layout_file.dumps(layout)) == layout
