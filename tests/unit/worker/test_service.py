"""What a worker is put together from, and what it says when a setting is wrong."""

import os
import sys
import threading
from pathlib import Path

import pytest

from inference.worker.process import EngineCommand
from inference.worker.service import engine_python, model_folder, serve
from inference.worker.site import make_site
from schemas import topics
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.settings import Settings, WorkerSettings


def test_without_a_model_or_a_python_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HEADRACE_WORKER__MODEL"):
        model_folder(WorkerSettings(), Path(sys.executable))
    with pytest.raises(ConfigError, match="cannot be fetched from the hub"):
        model_folder(WorkerSettings(model="no/such"), tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"python -m infra\.local\.engine"):
        engine_python(WorkerSettings())
    with pytest.raises(ConfigError, match="which is no file"):
        engine_python(WorkerSettings(python=tmp_path / "absent"))
    assert engine_python(WorkerSettings(python=Path(sys.executable))) == Path(sys.executable)
    assert model_folder(WorkerSettings(model=str(tmp_path)), Path(sys.executable)) == tmp_path


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    bus = MemoryBus()
    bus.admin().create_topics(topics.all_topics(), 1, 1)
    own = WorkerSettings(id="w", model=str(tmp_path), python=Path(sys.executable))
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        serve(Settings(data_dir=tmp_path, worker=own), bus, threading.Event())


def test_a_key_that_is_not_there_ends_the_worker_before_it_starts_anything(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, weights_key_file=tmp_path / "absent")
    with pytest.raises(ConfigError, match="weights_key_file"):
        serve(settings, MemoryBus(), threading.Event())


def test_the_site_holds_our_packages_and_the_entry_point(tmp_path: Path) -> None:
    site = make_site(make_site(tmp_path / "site"))  # a second time is harmless
    for package in ("inference", "schemas"):
        assert (site / package / "__init__.py").is_file()
    (info,) = site.glob("*.dist-info")
    assert "inference.worker.engine.plugin:register" in (info / "entry_points.txt").read_text()
    assert sorted(path.name for path in site.iterdir()) == ["headrace_engine-0.dist-info",
                                                            "inference", "schemas"]  # fmt: skip


def test_the_engine_sees_none_of_our_settings_and_no_secret_on_its_command_line(
    tmp_path: Path,
) -> None:
    command = EngineCommand(
        python=Path(sys.executable), model=tmp_path, served_model_name="m", host="127.0.0.1",
        port=1, site=tmp_path, secret="hush", kv_cache_gib=1, num_threads=1,
        scratch=tmp_path / "scratch", engine_args=("--max-model-len", "7"),
    )  # fmt: skip
    base = {"HEADRACE_KAFKA__SASL_USER": "x", "PATH": os.defpath}
    environment = command.environment(base, Path("/short"))
    assert environment["PATH"] == os.defpath
    assert environment["TMPDIR"] == environment["VLLM_RPC_BASE_PATH"] == "/short"
    assert [name for name in environment if name.startswith("HEADRACE_")] == [
        "HEADRACE_ENGINE_SECRET"
    ]
    arguments = command.arguments()
    assert "hush" not in arguments
    assert arguments[-2:] == ["--max-model-len", "7"]
    # With which probability a token was drawn: after temperature and the like.
    assert arguments[arguments.index("--logprobs-mode") + 1] == "processed_logprobs"
