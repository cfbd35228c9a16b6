"""A small real model, and micro-batches that it might have sampled."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from schemas import codec, topics
from schemas.atdp.training import MicroBatch, SequenceKind, TrainedSpan, TrainingSequence
from schemas.bus.api import Record, deliver_now
from schemas.bus.memory import MemoryBus
from schemas.ids import derive_id
from trainer.device import best_device
from trainer.examples import Example, examples_of
from trainer.policy import Policy

POLICY = "toy"
VOCABULARY = 32
AT = datetime(2026, 11, 30, tzinfo=UTC)


def make_model(folder: Path, seed: int = 0) -> Path:
    """A checkpoint folder in bf16 with about 20,000 parameters."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
        max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def load(folder: Path) -> Policy:
    return Policy.load(folder, best_device())


def sequence(number: int, random: np.random.Generator, **given: object) -> TrainingSequence:
    """A prompt of two tokens and an answer of one to five, of a task with two outcomes."""
    prompt = [int(t) for t in random.integers(4, VOCABULARY, 2)]
    answer = [int(t) for t in random.integers(4, VOCABULARY, int(random.integers(1, 6)))]
    tokens = tuple(prompt + answer)
    made = TrainingSequence(
        sample_id=f"sample-{number}",
        tenant_id="acme",
        trajectory_id=f"trajectory-{number}",
        task_key=f"task-{number % 3}",
        kind=SequenceKind.POLICY_GRADIENT,
        reward=float(random.integers(0, 2)),
        token_ids=tokens,
        trained=(TrainedSpan(first=2, end=len(tokens), version=1, step_id=f"step-{number}"),),
        oldest_version=1,
    )
    return replace(made, **given)  # type: ignore[arg-type]


def with_logprobs(policy: Policy, sequences: list[TrainingSequence]) -> list[TrainingSequence]:
    """The sequences with the log-probabilities that this policy gives their answers."""
    batch = microbatch(sequences)
    examples = examples_of(batch, policy.vocabulary_size, policy.max_length)
    with torch.no_grad():
        found = [policy.figures([example], 1.0).logp.tolist() for example in examples]
    return [replace(s, logprobs=tuple(lp)) for s, lp in zip(sequences, found, strict=True)]


def microbatch(sequences: list[TrainingSequence], policy: str = POLICY) -> MicroBatch:
    return MicroBatch(
        batch_id=derive_id("batch", *(s.sample_id for s in sequences)),
        policy=policy,
        created_at=AT,
        sequences=tuple(sequences),
        num_sequences=len(sequences),
    )


def some_examples(policy: Policy, number: int = 12, seed: int = 0) -> list[Example]:
    random = np.random.default_rng(seed)
    sequences = with_logprobs(policy, [sequence(i, random) for i in range(number)])
    return examples_of(microbatch(sequences), policy.vocabulary_size, policy.max_length)


def new_bus() -> MemoryBus:
    bus = MemoryBus()
    bus.admin().create_topics(list(topics.all_topics()), 1, 1)
    return bus


def put(bus: MemoryBus, *values: MicroBatch | bytes, policy: str = POLICY) -> None:
    records = [
        Record(topics.MICROBATCHES, policy.encode(),
               value if isinstance(value, bytes) else codec.encode(value))
        for value in values
    ]  # fmt: skip
    deliver_now(bus.producer("test"), records, 5.0)


def stream(policy: Policy, num_batches: int, size: int, seed: int = 0) -> list[MicroBatch]:
    """Micro-batches in a row, all sampled by one version."""
    random = np.random.default_rng(seed)
    return [
        microbatch(with_logprobs(policy, [sequence(size * b + i, random) for i in range(size)]))
        for b in range(num_batches)
    ]
