"""A model out of pairs of texts: fresh, and one that goes on from another."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer.pretrain import encode, main

PAIRS = [("where is the red lamp", " track: red, lamp"), ("please fix the pan", " repair: pan")]


def made(folder: Path, *arguments: str) -> Path:
    """What the command makes of the pairs."""
    file = folder.parent / f"{folder.name}.jsonl"
    file.write_text("".join(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c in PAIRS))
    assert main([str(file), str(folder), "--batch", "2", *arguments]) == 0
    return folder


def nats(folder: Path) -> float:
    """How unlikely the answers are, per token."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens, learned = encode(AutoTokenizer.from_pretrained(folder), PAIRS)
    with torch.no_grad():
        logp = model(input_ids=tokens).logits[:, :-1].log_softmax(-1)
    found = logp.gather(-1, tokens[:, 1:, None])[..., 0]
    return float(-found[learned[:, 1:]].mean())


def test_a_model_that_was_named_goes_on_with_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path / "first", "--steps", "2")
    then = made(
        tmp_path / "then", "--from", str(first), "--steps", "8", "--tell-every", "4",
        "--learning-rate", "3e-3",
    )  # fmt: skip
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["2/2", "4/8", "8/8"]
    assert (then / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    assert nats(then) < nats(first) - 0.5
