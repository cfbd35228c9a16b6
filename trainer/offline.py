"""`python -m trainer.offline`: learn from stored conversations, and compare on held-out tasks.

    conversations ─▶ split by task ─┬▶ base: a model that is given, or one made of the first part
                                    ├▶ filtered: answers of the successes
                                    └▶ control: answers of all, as many steps

What is reported is how likely the recorded answers of held-out tasks are, which is not how many
tasks the model would solve.
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from jinja2 import TemplateError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from schemas.errors import ConfigError
from trainer.comparison import Scored, report
from trainer.device import best_device
from trainer.examples import Example
from trainer.objective import Options, supervised, weights_of
from trainer.policy import Policy, in_parts
from trainer.stored import Talk, examples_of, is_held_out, plain

_SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_VOCABULARY = 4_096
_PART_TOKENS = 4_096
Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """The last line of the output is the report as JSON; 2 when the data or the model cannot be."""
    parser = argparse.ArgumentParser(prog="python -m trainer.offline")
    parser.add_argument("talks", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--held-out", type=float, default=0.3)
    parser.add_argument("--success", type=float, default=0.5)
    parser.add_argument("--base-steps", type=int, default=200)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=192, help="of the small model")
    parser.add_argument("--layers", type=int, default=6, help="of the small model")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    own = parser.parse_args(arguments)

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    torch.set_num_threads(1)
    try:
        say(json.dumps(run(own, say)))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def run(own: argparse.Namespace, say: Say) -> dict[str, object]:
    """Split, learn twice, compare; the weights of `filtered` go to the folder."""
    if own.folder.exists() and (not own.folder.is_dir() or any(own.folder.iterdir())):
        raise ConfigError(f"{own.folder} is there already. Name another folder, or remove it.")
    torch.manual_seed(own.seed)
    talks = read(own.talks)
    held_out = [talk for talk in talks if is_held_out(talk.task, own.seed, own.held_out)]
    shown = [talk for talk in talks if not is_held_out(talk.task, own.seed, own.held_out)]
    successes = [talk for talk in shown if talk.reward >= own.success]
    if not held_out or not successes:
        raise ConfigError(
            f"Of {len(talks)} conversations with a reward {len(successes)} are successes to learn "
            f"from and {len(held_out)} are held out: both are needed. Store more of them."
        )
    student = Student.load(own, shown, say)
    arms = {}
    base = student.scored(held_out)
    for name, chosen in (("filtered", successes), ("control", shown)):
        learner = copy.deepcopy(student)
        learner.fit(learner.windows(chosen), own.steps, _prefixed(name, say))
        arms[name] = learner.scored(held_out)
        if name == "filtered":
            learner.save(own.folder)
    counts = {
        "conversations": len(talks), "tasks": len({talk.task for talk in talks}),
        "held_out": len(held_out), "held_out_tasks": len({talk.task for talk in held_out}),
        "held_out_successes": sum(talk.reward >= own.success for talk in held_out),
        "learned_from": len(successes), "control_from": len(shown), "steps": own.steps,
        "parameters": student.num_parameters,
    }  # fmt: skip
    return {**counts, **report(base, arms)}


def _prefixed(name: str, say: Say) -> Say:
    return lambda text: say(f"{name}: {text}")


def read(file: Path) -> list[Talk]:
    """The conversations that have a reward, in the order of the file."""
    with file.open() as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Talk(row["name"], row["task"], row["reward"], tuple(map(plain, row["messages"])))
        for row in rows
        if row["reward"] is not None
    ]


class Student:
    """A model with its tokenizer."""

    def __init__(
        self, policy: Policy, tokenizer: PreTrainedTokenizerFast, own: argparse.Namespace
    ) -> None:
        self.policy, self.tokenizer, self.own = policy, tokenizer, own

    @classmethod
    def load(cls, own: argparse.Namespace, shown: Sequence[Talk], say: Say) -> "Student":
        """The model that was named, else a small one that first reads all that was shown."""
        if own.model is not None:
            tokenizer = AutoTokenizer.from_pretrained(own.model, local_files_only=True)
            return cls(Policy.load(own.model, best_device()), tokenizer, own)
        tokenizer = _tokenizer(shown)
        student = cls(Policy(_model(len(tokenizer), own), {}, best_device()), tokenizer, own)
        windows = student.windows(shown, all_tokens=True)
        student.fit(windows, own.base_steps, _prefixed("base", say))
        return student

    @property
    def num_parameters(self) -> int:
        """Of the model, tied ones once."""
        return sum(p.numel() for p in self.policy.parameters().values())

    def windows(self, talks: Sequence[Talk], *, all_tokens: bool = False) -> list[Example]:
        """The examples of conversations."""
        longest = min(self.own.max_tokens, self.policy.max_length)

        def encode(text: str) -> list[int]:
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

        return [
            window
            for talk in talks
            for window in examples_of(talk, self._render, encode, longest, all_tokens=all_tokens)
        ]

    def fit(self, windows: Sequence[Example], num_steps: int, say: Say) -> None:
        """Steps of maximum likelihood over random windows, each of which counts the same."""
        objective, random = supervised(Options()), np.random.default_rng(self.own.seed)
        parameters = [*self.policy.parameters().values()]
        optimizer = torch.optim.AdamW(parameters, lr=self.own.learning_rate, weight_decay=0.01)
        for step in range(1, num_steps + 1):
            chosen = [windows[i] for i in random.integers(0, len(windows), self.own.windows)]
            optimizer.zero_grad(set_to_none=True)
            value = 0.0
            for part in in_parts(chosen, _PART_TOKENS):
                logp = self.policy.figures([chosen[i] for i in part], 1.0).logp
                ids = np.repeat(np.arange(len(part)), [chosen[i].positions.size for i in part])
                place = torch.from_numpy(ids).to(logp.device)
                trained = torch.ones_like(place, dtype=torch.bool)
                mask = weights_of(trained, place) * len(part) / len(chosen)
                ones = torch.ones_like(logp)
                loss, _ = objective(logp, logp.detach(), logp.detach(), ones, mask, place, ones)
                loss.backward()
                value += float(loss.detach())
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            if step % 20 == 0 or step == num_steps:
                say(f"step {step} of {num_steps}, {value:.3f} nats per token")

    def scored(self, talks: Sequence[Talk]) -> list[Scored]:
        """Nats per answer token of each conversation."""
        found = []
        for talk in talks:
            windows = self.windows([talk])
            total, number = 0.0, 0
            for part in in_parts(windows, _PART_TOKENS):
                with torch.no_grad():
                    logp = self.policy.figures([windows[i] for i in part], 1.0).logp
                total -= float(logp.sum())
                number += logp.numel()
            if number:
                found.append(Scored(talk.task, talk.reward >= self.own.success, total / number))
        return found

    def save(self, folder: Path) -> None:
        """A checkpoint folder in bf16; it appears complete."""
        disable_progress_bar()  # it would be one line of the log
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as incoming:
            made = Path(incoming) / "made"
            self.tokenizer.save_pretrained(made)
            copy.deepcopy(self.policy.model).to(torch.bfloat16).save_pretrained(made)
            made.rename(folder)

    def _render(self, messages: list[dict[str, str]], *, answers: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=answers
                )
            )
        except (TemplateError, ValueError) as error:
            raise ConfigError(
                f"The chat template of the model does not take these messages "
                f"({type(error).__name__}). Name another --model, or none."
            ) from None


def _tokenizer(shown: Sequence[Talk]) -> PreTrainedTokenizerFast:
    """Pairs of bytes, learned from what is shown: held-out text has no part in it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=[*_SPECIAL], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    texts = (message["content"] for talk in shown for message in talk.messages)
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=_SPECIAL[0], eos_token=_SPECIAL[1],
        additional_special_tokens=[*_SPECIAL[2:]],
    )  # fmt: skip
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def _model(vocabulary_size: int, own: argparse.Namespace) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-vocabulary_size // 8) * 8, hidden_size=own.width,
            intermediate_size=own.width * 8 // 3, num_hidden_layers=own.layers,
            num_attention_heads=own.width // 64, num_key_value_heads=1, head_dim=64,
            tie_word_embeddings=True, max_position_embeddings=own.max_tokens,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
