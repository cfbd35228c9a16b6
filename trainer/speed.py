"""`python -m trainer.speed`: tokens a second of processor time, of the trainer and of a plain step.

Both see the same sequences and the same model. The plain one is what one writes with transformers
and torch alone: pad, compute, cross-entropy of the answers, gradient, clip, AdamW. The trainer has
credit, ratio, sentinels, the probe and the comparison with the engine as well. Prints JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.atdp.training import SequenceKind
from schemas.settings import TrainerSettings
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Spec
from trainer.device import best_device
from trainer.examples import Example
from trainer.learner import Learner
from trainer.policy import Policy
from trainer.sentinels import Bounds

_VOCABULARY = 512


def main(arguments: Sequence[str] | None = None) -> int:
    """Medians over rounds in which both take turns."""
    parser = argparse.ArgumentParser(prog="python -m trainer.speed")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96, help="of the longest sequence")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=7)
    own = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    examples = _examples(own.sequences, own.tokens)
    found = measured(_model(own.width, own.layers, own.tokens), examples, own.rounds)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def measured(model: LlamaForCausalLM, examples: Sequence[Example], rounds: int) -> dict[str, float]:
    """Tokens a second of both, and the trainer's as a share of the plain one's."""
    plain, learns = _plain_step(model, examples), _trainer_step(model, examples)
    times: dict[str, list[float]] = {"plain": [], "trainer": []}
    for number in range(rounds + 1):
        for name, step in (("plain", plain), ("trainer", learns)):
            started = time.process_time()
            step(number)
            if number:  # the first one warms up
                times[name].append(time.process_time() - started)
    num_tokens = sum(example.token_ids.size for example in examples)
    rates = {name: num_tokens / median(seconds) for name, seconds in times.items()}
    return {
        "tokens": float(num_tokens),
        "plain_tokens_per_second": rates["plain"],
        "trainer_tokens_per_second": rates["trainer"],
        "share": rates["trainer"] / rates["plain"],
    }


def _trainer_step(model: LlamaForCausalLM, examples: Sequence[Example]) -> Callable[[int], None]:
    policy = _policy(model)
    # Without an anchor, as in the demo: that costs another forward pass of the same size.
    own = TrainerSettings(anchor="none", agreement_sequences=8, learning_rate=1e-6)
    learner = Learner(policy, own, Bounds(), None)
    learner.agreement.keep(1, policy.tensors())
    with torch.no_grad():
        logps = [policy.figures([example], 1.0).logp.cpu().numpy() for example in examples]
    sampled = [
        replace(example, behaviour=logp.astype(np.float64))
        for example, logp in zip(examples, logps, strict=True)
    ]

    def step(number: int) -> None:
        fresh = [replace(e, sample_id=f"{number}/{e.sample_id}") for e in sampled]
        done = learner.learn(fresh, 1)
        if done.alarm is not None:
            raise RuntimeError(f"the step was stopped: {done.alarm}")

    return step


def _plain_step(model: LlamaForCausalLM, examples: Sequence[Example]) -> Callable[[int], None]:
    device = best_device()
    own = _policy(model).model
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-6, weight_decay=0.0)
    longest = max(example.token_ids.size for example in examples)
    tokens = torch.zeros(len(examples), longest, dtype=torch.long)
    attended, targets = torch.zeros_like(tokens), torch.full_like(tokens, -100)
    for row, example in enumerate(examples):
        tokens[row, : example.token_ids.size] = torch.from_numpy(example.token_ids)
        attended[row, : example.token_ids.size] = 1
        targets[row, example.positions] = torch.from_numpy(example.token_ids[example.positions])
    tokens, attended, targets = (t.to(device) for t in (tokens, attended, targets))

    def step(_: int) -> None:
        logits = own(input_ids=tokens, attention_mask=attended, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].reshape(-1, logits.shape[-1]), targets[:, 1:].reshape(-1)
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _policy(model: LlamaForCausalLM) -> Policy:
    state = model.state_dict()
    layout = {name: Spec(Dtype.F32, tuple(tensor.shape)) for name, tensor in state.items()}
    return Policy(model, layout, best_device()).copy()


def _model(width: int, layers: int, length: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=_VOCABULARY, hidden_size=width, intermediate_size=width * 8 // 3,
            num_hidden_layers=layers, num_attention_heads=max(width // 64, 1),
            num_key_value_heads=1, tie_word_embeddings=True, max_position_embeddings=length,
        )
    )  # fmt: skip


def _examples(number: int, longest: int) -> list[Example]:
    """Prompts of three quarters, answers of a quarter; lengths from half of the longest up."""
    random = np.random.default_rng(0)
    made = []
    for index in range(number):
        size = int(random.integers(longest // 2, longest + 1))
        positions = np.arange(size * 3 // 4, size)
        made.append(
            Example(
                sample_id=f"sample-{index}", revision=1, trajectory=f"t-{index}",
                task=f"task-{index % 4}", kind=SequenceKind.POLICY_GRADIENT,
                reward=float(index % 2), replaces=None, replaced_reward=None,
                token_ids=random.integers(4, _VOCABULARY, size).astype(np.int64),
                positions=positions,
                behaviour=np.zeros(positions.size),
                versions=np.ones(positions.size, np.int64),
                turns=np.zeros(positions.size, np.int64),
                approximate=np.zeros(positions.size, np.bool_),
            )
        )  # fmt: skip
    return made


if __name__ == "__main__":
    sys.exit(main())
