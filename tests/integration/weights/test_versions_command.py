"""`headrace versions` against a real broker."""

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from infra.cli.main import make_app
from schemas import topics
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError
from schemas.weights.checkpoints import shards
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Tensor, Tensors, tensor

pytestmark = pytest.mark.integration


@pytest.fixture
def deployment(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory of a deployment whose topics carry a prefix of their own."""
    prefix = f"v{uuid.uuid4().hex[:8]}."
    admin = KafkaBus(KafkaAccess(kafka, prefix=prefix)).admin()
    wanted = (topics.WEIGHTS_CHUNKS, topics.WEIGHTS_VERSIONS)
    admin.create_topics([topics.topic(name) for name in wanted], 1, 1)
    monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", kafka)
    monkeypatch.setenv("HEADRACE_KAFKA__TOPIC_PREFIX", prefix)
    return tmp_path / "data"


def checkpoint(folder: Path, changed: int) -> Path:
    """A checkpoint in two files; of one tensor the first elements differ from the other ones'."""
    folder.mkdir()
    bits = np.full(50_000, 0x3F80, np.uint16)
    bits[:changed] += 1
    model: Tensors = {
        "embed": tensor(Dtype.BF16, (500, 100), bits),
        "norm": Tensor(tensor(Dtype.F32, (3,), np.zeros(3, np.uint32)).spec, np.zeros(3, "u4")),
    }
    for number, data in enumerate(shards(model, shard_bytes=50_000)):
        (folder / f"model-{number}.safetensors").write_bytes(data)
    return folder


def run(deployment: Path, *arguments: str) -> str:
    outcome = CliRunner().invoke(make_app(), ["versions", *arguments, "-d", str(deployment)])
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.stdout


def run_json(deployment: Path, *arguments: str) -> Any:
    return json.loads(run(deployment, *arguments, "--json"))


def test_checkpoints_become_versions_that_can_be_shown_and_compared(
    deployment: Path, tmp_path: Path
) -> None:
    folders = [checkpoint(tmp_path / f"step-{n}", changed) for n, changed in enumerate((0, 40, 90))]
    assert "has no versions" in run(deployment, "list")
    assert "     1  snapshot" in run(deployment, "publish", str(folders[0]))
    second = run_json(deployment, "publish", str(folders[1]))
    assert (second["version"], second["from_version"], second["num_changed"]) == (2, 1, 40)
    third = run_json(deployment, "publish", str(folders[2]), "--from-version", "1")
    assert (third["version"], third["from_version"], third["num_changed"]) == (3, 1, 90)

    listed = run_json(deployment, "list")
    assert [v["version"] for v in listed["versions"]] == [1, 2, 3]
    assert [v["snapshot"] for v in listed["versions"]] == [True, False, False]
    assert listed["refused"] == []
    assert len(run(deployment, "list").splitlines()) == 3

    shown = run_json(deployment, "show", "2")
    assert shown["root"] == second["root"]
    assert [t["name"] for t in shown["tensors"]] == ["embed"]
    assert "from_version     1" in run(deployment, "show", "2")

    between = run_json(deployment, "diff", "2", "3")
    assert (between["num_changed"], between["tensors"]) == (50, {"embed": 50})
    assert "50 of 50003 elements differ" in run(deployment, "diff", "2", "3")
    assert run_json(deployment, "diff", "3", "3")["num_changed"] == 0


def test_what_cannot_be_done_says_what_to_do(deployment: Path, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "one", 0)
    with pytest.raises(ConfigError, match="Leave --from-version out"):
        run(deployment, "publish", str(folder), "--from-version", "4")
    run(deployment, "publish", str(folder))
    with pytest.raises(ConfigError, match="holds these weights already"):
        run(deployment, "publish", str(folder))
    with pytest.raises(ConfigError, match="holds no"):
        run(deployment, "publish", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="no version 7"):
        run(deployment, "show", "7")
    assert [v["version"] for v in run_json(deployment, "list")["versions"]] == [1]
