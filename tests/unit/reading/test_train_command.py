"""What `headrace train --from-replay` hands over and what it says."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from infra.cli.train import _lines, _told, train
from schemas.errors import ConfigError

ARM = {"nats_success": 1.5, "nats_failure": 2.0, "separation": 0.75}
FOUND: dict[str, Any] = {
    "conversations": 200, "tasks": 50, "held_out": 60, "held_out_tasks": 15,
    "held_out_successes": 25, "learned_from": 59, "control_from": 140, "steps": 60,
    "base": ARM, "filtered": ARM | {"change_success": [-0.5, -0.6, -0.4], "change_failure": None},
    "control": ARM | {"change_success": None, "change_failure": None},
}  # fmt: skip


class Store:
    """Two trajectories, one without a task key."""

    def lines(self, sql: str, format_name: str) -> Iterator[bytes]:
        assert "WHERE reward > 0" in sql
        assert format_name == "JSONEachRow"
        for number, task in enumerate(("refund", None)):
            message = {"role": "user", "content": "hi"}
            answer = {"role": "assistant", "content": "hello"}
            yield json.dumps({
                "tenant_id": "acme", "trajectory_id": f"t{number}", "step_id": "s",
                "parent_step_id": None, "task_key": task, "reward": 1.0,
                "new_messages": [json.dumps(message)], "output": [json.dumps(answer)],
            }).encode()  # fmt: skip


def test_a_trajectory_without_a_key_is_a_task_of_its_own() -> None:
    rows = [json.loads(line) for line in _lines(Store(), "reward > 0")]  # type: ignore[arg-type]
    assert [row["task"] for row in rows] == ["acme/refund", "acme/t1"]
    assert [message["content"] for message in rows[0]["messages"]] == ["hi", "hello"]


def test_what_is_told_claims_no_more_than_the_data_carry() -> None:
    text = _told(FOUND, Path("model"))
    assert "60 of 15 tasks held out, 25 of them successes" in text
    assert "filtered, change of a success: -0.5000 (95 % over tasks: -0.6000 to -0.4000)" in text
    assert "control, change" not in text
    assert "not how many tasks would be solved" in text


def test_what_to_learn_from_has_to_be_said() -> None:
    with pytest.raises(ConfigError, match="--from-replay"):
        train(Path("model"))


def test_nothing_to_learn_from_is_said_before_an_engine_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Empty:
        def lines(self, sql: str, _format_name: str) -> Iterator[bytes]:
            assert "WHERE (reward > 2) AND reward IS NOT NULL" in sql
            return iter(())

    monkeypatch.setattr("infra.store.open_reader", lambda _: nullcontext(Empty()))
    monkeypatch.setattr("infra.local.engine.ensure_engine", lambda *_: pytest.fail("made"))
    with pytest.raises(ConfigError, match="nothing to learn from"):
        train(tmp_path / "model", from_replay=True, where="reward > 2", data_dir=tmp_path)
