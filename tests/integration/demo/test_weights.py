"""The demo of weights on a small model: everything in it is real but the model's size."""

from pathlib import Path

import pytest

from infra.demo.weights.learning import Lesson
from infra.demo.weights.show import run, table
from infra.local.state import is_owned
from tests.ports import stack_ports
from tests.tiny_model import first_version, write_model

pytestmark = pytest.mark.integration

LESSON = Lesson(
    question="which version?", answer="two", learning_rate=1e-3, num_layers=6, max_steps=200
)


@pytest.mark.timeout(600)
def test_answers_change_with_a_delta_and_change_back(
    tmp_path: Path, engine_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_WORKER__PYTHON", str(engine_python))
    model = write_model(tmp_path / "tiny", first_version())
    said: list[str] = []
    shown = run(
        tmp_path / "demo", str(model), LESSON, lambda who, text: said.append(f"{who}: {text}"),
        keep=False, ports=stack_ports(),
    )  # fmt: skip
    assert shown.problems == [], "\n".join(said)
    numbers = shown.numbers()
    assert numbers["failed"] == numbers["mislabelled"] == 0
    assert 0 < numbers["delta_bytes"] < numbers["snapshot_bytes"]
    assert numbers["refusal"]
    assert {None, 1, 2} == {row["policy_version"] for row in shown.rows}
    assert any("two" in line and line.strip().startswith("2") for line in table(shown.rows))
    assert any(line.startswith("version 3: refused") for line in said)
    assert not is_owned(tmp_path / "demo")
