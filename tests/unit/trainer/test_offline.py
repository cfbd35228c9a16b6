"""Learning from stored conversations: the split, the windows, and a comparison that is honest."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError
from trainer import comparison, offline
from trainer.comparison import Scored, change, separation
from trainer.stored import Talk, examples_of, is_held_out, pieces, plain


def render(messages: list[dict[str, str]], *, answers: bool) -> str:
    text = "".join(f"<{m['role'][0]}>{m['content']}." for m in messages)
    return text + "<a>" if answers else text


def talk(*contents: str) -> Talk:
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return Talk("t", "task", 1.0, tuple(messages))


def test_answers_alone_are_trained() -> None:
    found = [*pieces(talk("hi", "hello", "bye", "so long", "never answered").messages, render)]
    assert found == [("<u>hi.<a>", False), ("hello.", True), ("<u>bye.<a>", False),
                     ("so long.", True)]  # fmt: skip


def test_a_template_that_rewrites_history_is_refused() -> None:
    def forgetful(messages: list[dict[str, str]], *, answers: bool) -> str:
        return render(messages[-2:], answers=answers)

    with pytest.raises(ConfigError, match="writes earlier messages anew"):
        [*pieces(talk("hi", "hello", "bye", "so long").messages, forgetful)]


@given(st.lists(st.text("ab", min_size=1, max_size=40), min_size=2, max_size=6), st.integers(8, 40))
def test_every_answer_token_is_trained_in_one_window(contents: list[str], max_tokens: int) -> None:
    one = talk(*contents)
    windows = examples_of(one, render, lambda text: [ord(c) for c in text], max_tokens)
    assert all(window.token_ids.size <= max_tokens for window in windows)
    assert all(window.positions.min() >= 1 for window in windows)
    trained = "".join(chr(int(w.token_ids[at])) for w in windows for at in w.positions)
    assert trained == "".join(text for text, answer in pieces(one.messages, render) if answer)


def test_calls_and_results_are_marked_in_the_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    assert plain({"role": "assistant", "content": "look", "tool_calls": [call]})["content"] == (
        'look\n<tool_call>{"name": "find", "arguments": {"a": 1}}</tool_call>'
    )
    result = plain({"role": "tool", "content": "4", "tool_call_id": "c"})
    assert result == {"role": "user", "content": "<tool_response>4</tool_response>"}


def test_a_task_is_on_one_side_of_the_split() -> None:
    shares = [is_held_out(f"task-{i}", 0, 0.3) for i in range(1_000)]
    assert np.mean(shares) == pytest.approx(0.3, abs=0.05)
    assert shares == [is_held_out(f"task-{i}", 0, 0.3) for i in range(1_000)]
    assert shares != [is_held_out(f"task-{i}", 1, 0.3) for i in range(1_000)]


def test_conversations_of_one_task_are_one_witness() -> None:
    before = [Scored(f"task-{i // 10}", True, 2.0) for i in range(40)]
    after = [Scored(s.task, True, 1.0 + 0.2 * (i // 10)) for i, s in enumerate(before)]
    found = change(before, after, success=True)
    assert found is not None
    assert found.mean == pytest.approx(-0.7)
    # Of four tasks; of forty conversations it would be a third as wide.
    assert found.high - found.low == pytest.approx(2 * 3.182 * 0.2582 / 2, rel=1e-3)
    assert change(before[:10], after[:10], success=True) is None
    assert change(before, after, success=False) is None


@pytest.mark.parametrize(("number", "t"), [(2, 12.706), (10, 2.262), (11, 2.228), (31, 2.042)])
def test_an_interval_of_few_tasks_is_students(number: int, t: float) -> None:
    values = [float(i) for i in range(number)]
    middle, (low, high) = comparison.interval(values)
    assert middle == pytest.approx((number - 1) / 2)
    error = np.std(values, ddof=1) / np.sqrt(number)
    assert (high - middle) / error == pytest.approx(t, abs=0.003)
    assert middle - low == pytest.approx(high - middle)


def test_separation_is_a_chance() -> None:
    scored = [Scored("a", True, 1.0), Scored("a", True, 3.0), Scored("b", False, 2.0)]
    assert separation(scored) == 0.5
    assert separation(scored[:2]) is None
    assert comparison.report(scored, {"filtered": scored})["base"] == {
        "nats_success": 2.0, "nats_failure": 2.0, "separation": 0.5,
    }  # fmt: skip


def written(folder: Path, number: int, rewards: tuple[float, ...] = (1.0, 0.0)) -> Path:
    """Successes answer in one way, failures in another."""
    file = folder / "talks.jsonl"
    with file.open("w") as lines:
        for index in range(number):
            reward = rewards[index % len(rewards)]
            said = "here it is" if reward else "not today"
            messages = [{"role": "user", "content": f"bring number {index}"},
                        {"role": "assistant", "content": said}]  # fmt: skip
            row: dict[str, Any] = {"name": f"t{index}", "task": f"task-{index // 2 % 20}"}
            lines.write(json.dumps(row | {"reward": reward, "messages": messages}) + "\n")
    return file


def test_successes_become_likelier_than_failures_and_the_control_does_not_learn_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, 200)
    arguments = [str(file), str(tmp_path / "model"), "--base-steps", "10", "--steps", "25",
                 "--windows", "8", "--max-tokens", "32", "--learning-rate", "3e-3",
                 "--width", "64", "--layers", "2"]  # fmt: skip
    assert offline.main(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["held_out"] + found["control_from"] == 200
    assert found["learned_from"] < found["control_from"]
    assert found["filtered"]["separation"] > 0.9
    assert found["filtered"]["change_failure"][1] > found["filtered"]["change_success"][2]
    assert found["control"]["nats_failure"] < found["filtered"]["nats_failure"]
    assert (tmp_path / "model" / "config.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "talks.jsonl"}
    assert offline.main(arguments) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_model_that_was_not_saved_to_its_end_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(offline.LlamaForCausalLM, "save_pretrained", full)
    arguments = [str(written(tmp_path, 40)), str(tmp_path / "model"), "--base-steps", "0",
                 "--steps", "1", "--width", "64", "--layers", "1"]  # fmt: skip
    with pytest.raises(OSError, match="no space"):
        offline.main(arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"talks.jsonl"}


def test_nothing_to_learn_from_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, 20, rewards=(0.0,))
    assert offline.main([str(file), str(tmp_path / "model")]) == 2
    assert "0 are successes" in capsys.readouterr().err
