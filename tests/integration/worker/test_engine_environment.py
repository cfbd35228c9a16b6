"""What the engine's environment does for a worker: unpacked weights, and models by a hub name."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from inference.worker.service import model_folder
from inference.worker.site import make_site
from schemas.errors import ConfigError
from schemas.settings import WorkerSettings
from schemas.weights.checkpoints import read_folder
from tests.tiny_model import first_version, write_model

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

REVISION = "0123456789abcdef0123456789abcdef01234567"
NAME = "someone/tiny"


def test_linear_weights_stay_where_they_can_be_written(engine_python: Path, tmp_path: Path) -> None:
    """On CPUs with AVX-512 or AMX vLLM packs them and drops `weight`, or computes with a copy."""
    script = Path(__file__).with_name("packing.py")
    done = subprocess.run(
        [str(engine_python), str(script)], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "PYTHONPATH": str(make_site(tmp_path / "site")), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    cases = {(case["plugin"], case["claims_amx"]): case for case in found["cases"]}
    for claims_amx in (False, True):
        assert cases[True, claims_amx]["layers"] == [{"left": 64 * 32, "follows": True}] * 2
    assert cases[False, True]["takes_amx"], "a CPU with AMX is seen as one"
    if found["has_avx512"]:
        # Without the plug-in: a linear layer's weights are gone, a tied head's are a copy.
        linear, head = cases[False, False]["layers"]
        assert linear == {"left": 0, "follows": False}
        assert head == {"left": 64 * 32, "follows": False}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub's cache on a machine without a network; the folder of one model's files in it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    model = tmp_path / "hf" / "hub" / f"models--{NAME.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    return write_model(model / "snapshots" / REVISION, first_version())


def test_a_hub_name_is_found_in_the_cache_of_a_machine_without_a_network(
    engine_python: Path, hub: Path
) -> None:
    found = model_folder(WorkerSettings(model=NAME), engine_python)
    assert found == hub
    assert read_folder(found).keys() == first_version().keys()


@pytest.mark.usefixtures("hub")
def test_a_hub_name_that_is_not_there_says_how_to_bring_it(engine_python: Path) -> None:
    with pytest.raises(ConfigError, match="hf download someone/other") as caught:
        model_folder(WorkerSettings(model="someone/other"), engine_python)
    assert "HF_HUB_OFFLINE" in str(caught.value)
    assert "LocalEntryNotFoundError" in str(caught.value)
