"""The benchmark of weights: its bound, its peers and its verdicts."""

import math

import numpy as np
import pytest

from infra.bench.weights import Step, entropy_bytes, figures_of, main, measure_step
from schemas.weights.delta import Delta, TensorDelta
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Spec, tensor

_ROOT = "00" * 32


def delta_of(positions: int, differences: list[int]) -> Delta:
    part = TensorDelta(
        np.arange(positions, dtype=np.uint32),
        np.array(differences * positions, np.uint16)[:positions],
    )
    return Delta({"t": Spec(Dtype.BF16, (1_024,))}, {"t": part}, _ROOT, _ROOT)


def test_half_of_the_elements_by_the_same_difference_need_a_bit_each() -> None:
    assert entropy_bytes(delta_of(512, [1])) == pytest.approx(1_024 / 8)


def test_two_equally_likely_differences_need_a_bit_more_for_each_change() -> None:
    assert entropy_bytes(delta_of(512, [1, 0xFFFF])) == pytest.approx((1_024 + 512) / 8)
    assert entropy_bytes(Delta({}, {}, _ROOT, _ROOT)) == 0


def test_a_step_is_measured_against_its_peers() -> None:
    rng = np.random.default_rng(1)
    old = rng.integers(0x3C00, 0x3E00, 100_000).astype(np.uint16)
    flags = rng.random(old.size) < 0.01
    new = np.where(flags, old + 1, old).astype(np.uint16)
    step = Step("s", *({"t": tensor(Dtype.BF16, (100_000,), bits)} for bits in (old, new)))
    found = measure_step(step)
    num_changed = int(np.count_nonzero(old != new))
    assert found.raw_bytes == 6 * num_changed
    assert found.density == num_changed / 100_000
    assert found.checkpoint_bytes == 200_000
    assert found.entropy_bytes < found.ulpgap_bytes < found.xor_bytes
    by_name = {figure.name: figure for figure in figures_of(found)}
    value = by_name["s: index + value over delta"].value
    assert value is not None
    assert math.isclose(value, found.raw_bytes / found.ulpgap_bytes)
    assert by_name["s: index + value over delta"].is_met is (value >= 3.5)


def test_folders_come_in_pairs_and_must_hold_a_model(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["one"]) == 2
    assert "OLD NEW" in capsys.readouterr().err
    assert main([str(tmp_path), str(tmp_path)]) == 2
    assert "holds no *.safetensors" in capsys.readouterr().err
