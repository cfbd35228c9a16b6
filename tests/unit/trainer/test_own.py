"""Objectives and rewards of one's own, by their names in settings, and the boards."""

import json
import re
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from schemas.atdp.training import SequenceKind
from schemas.errors import ConfigError, PermanentError, Reason
from schemas.settings import TrainerSettings
from tests.architecture.size_gates import ROOT
from tests.unit.trainer.batches import VOCABULARY, load, make_model, some_examples
from trainer.board import board_of
from trainer.learner import Learner
from trainer.objective import Options
from trainer.own import objective_of, rate_of
from trainer.sentinels import Bounds

WRONG = """
import torch
LOSS = 3
def few(logp, advantage): return logp.sum(), {}
def no_stats(logp, a, b, c, d, e, f): return logp.sum()
def no_number(logp, a, b, c, d, e, f): return logp, {}
def no_gradient(logp, a, b, c, d, e, f): return logp.detach().sum(), {}
def fails(logp, a, b, c, d, e, f): raise ValueError("secret")
def nan(prompt, answer, reward, task_key): return float("nan")
def reads(prompt, answer, reward, task_key): return float(answer)
def divides(prompt, answer, reward, task_key): return reward / 0
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_model(tmp_path_factory.mktemp("model"))
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, "w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module of the document, and one that is wrong in every way."""
    folder = tmp_path_factory.mktemp("code")
    text = (ROOT / "docs" / "training.md").read_text()
    blocks = [*re.finditer(r"```python\n# (\w+\.py)\n(.*?)```", text, re.S)]
    assert len(blocks) == 1
    assert len(blocks[0][2].splitlines()) <= 10
    (folder / "documented_mine.py").write_text(blocks[0][2])
    (folder / "wrong_mine.py").write_text(WRONG)
    (folder / "broken_mine.py").write_text("def loss(:")
    return folder


def test_the_documented_objective_learns(model: Path, code: Path) -> None:
    own = TrainerSettings.model_validate(
        {"objective": "documented_mine:loss", "code": code, "learning_rate": 1e-3, "anchor": "none"}
    )
    learner = Learner(load(model), own, Bounds(), None)
    before = {n: p.detach().clone() for n, p in learner.policy.parameters().items()}
    step = learner.learn(some_examples(learner.policy), 1)
    assert step.alarm is None
    assert step.figures["num_tokens"] > 0
    assert any(not torch.equal(p, before[n]) for n, p in learner.policy.parameters().items())


def test_sums_of_ones_own_take_the_place_of_ours(code: Path) -> None:
    (code / "masking_mine.py").write_text(
        "def loss(logp, a, b, c, mask, d, e): return (mask * logp).sum(), {'masked': mask.sum()}\n"
    )
    objective = objective_of("masking_mine:loss", Options(), code)
    logp = torch.zeros(3, requires_grad=True)
    _, stats = objective(logp, logp, logp.detach(), logp, torch.ones(3), logp, torch.zeros(3))
    assert (float(stats["masked"]), float(stats["tokens"])) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent_mine:loss", "cannot be imported (ModuleNotFoundError)"),
        ("broken_mine:loss", "cannot be imported (SyntaxError)"),
        ("wrong_mine:absent", "cannot be imported (AttributeError)"),
        ("wrong_mine:LOSS", "does not take (logp, logp_prox,"),
        ("wrong_mine:few", "does not take (logp, logp_prox,"),
        ("wrong_mine:no_stats", "has to give (loss, stats)"),
        ("wrong_mine:no_number", "has to give (loss, stats)"),
        ("wrong_mine:no_gradient", "has to give (loss, stats)"),
        ("wrong_mine:fails", "fails with two tokens (ValueError)"),
    ],
)
def test_an_objective_that_is_none_is_refused(code: Path, name: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        objective_of(name, Options(), code)
    assert says in str(error.value)
    assert "HEADRACE_TRAINER__OBJECTIVE" in str(error.value)
    assert "secret" not in str(error.value)


def test_the_documented_reward_sees_the_text(model: Path, code: Path) -> None:
    rate = rate_of("documented_mine:reward", model, code)
    examples = some_examples(load(model), 4)
    for example in examples:
        num_words = example.token_ids.size - int(example.positions[0])
        assert example.reward is not None
        assert rate(example).reward == pytest.approx(example.reward - 0.01 * num_words)
    corrected = replace(examples[0], reward=1.0, replaced_reward=0.0)
    found = rate(corrected)
    assert found.reward is not None
    assert found.replaced_reward is not None
    assert found.reward - found.replaced_reward == pytest.approx(1.0)
    retracted = replace(
        corrected, kind=SequenceKind.RETRACTION, reward=None, positions=np.array([], np.int64)
    )
    assert rate(retracted).replaced_reward is None
    assert rate_of(None, model, None)(examples[0]) is examples[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nan", Reason.NOT_FINITE), ("reads", Reason.BUG), ("divides", Reason.BUG)],
)
def test_a_reward_that_is_no_number_poisons_its_batch(
    model: Path, code: Path, name: str, reason: Reason
) -> None:
    rate = rate_of(f"wrong_mine:{name}", model, code)
    with pytest.raises(PermanentError) as error:
        rate(some_examples(load(model), 1)[0])
    assert (error.value.reason, error.value.field) == (reason, "reward")
    assert "could not convert" not in "".join(traceback.format_exception(error.value))


def test_a_reward_that_takes_other_arguments_is_refused(model: Path, code: Path) -> None:
    with pytest.raises(ConfigError, match="does not take"):
        rate_of("wrong_mine:few", model, code)


def test_tensorboard_gets_a_curve_for_each_figure(tmp_path: Path) -> None:
    own = TrainerSettings(tensorboard=True)
    pytest.importorskip("tensorboard")
    board = board_of(own, tmp_path)
    board.show(3, {"reward": 0.5, "lag": 1.0})
    board.close()
    assert json.loads((tmp_path / "steps.jsonl").read_text()) == {
        "step": 3, "reward": 0.5, "lag": 1.0
    }  # fmt: skip
    accumulator = "tensorboard.backend.event_processing.event_accumulator"
    events = import_module(accumulator).EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    [point] = events.Scalars("reward")
    assert (point.step, point.value) == (3, 0.5)


def test_a_board_that_is_not_installed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        n for n in sys.modules if n.startswith(("tensorboard", "torch.utils.tensorboard"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match="headrace\\[tensorboard\\]"):
        board_of(TrainerSettings(tensorboard=True), tmp_path)
