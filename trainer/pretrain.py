"""`python -m trainer.pretrain`: a small language model of one's own from pairs of texts.

For demos and tests: a Llama of 2.4 million parameters over the words of the pairs, or a model that
`--from` names, written as a checkpoint folder in bf16 that vLLM serves. Each line of the file is a
JSON object with `prompt` and `completion`. A chat's user messages are its prompt.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

from trainer.device import best_device

_WORDS = r" ?[a-z]+|[^a-z]"
_PAD, _END, _ASK, _UNKNOWN = "<|pad|>", "<|end|>", "<|ask|>", "<|unknown|>"
_SPECIAL = (_PAD, _END, _ASK, _UNKNOWN)
_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %} {{ m['content'] }}{% endif %}{% endfor %}"
    + _ASK
)
_MAX_LENGTH = 128


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the model; the last line of the output says how well it knows the pairs."""
    parser = argparse.ArgumentParser(prog="python -m trainer.pretrain")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--from", type=Path, dest="base", help="checkpoint folder to begin with")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--tell-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    own = parser.parse_args(arguments)
    with own.pairs.open() as lines:
        pairs = [(p["prompt"], p["completion"]) for p in map(json.loads, lines)]
    torch.set_num_threads(1)
    torch.manual_seed(own.seed)
    tokenizer, model = _fresh(pairs) if own.base is None else _loaded(own.base)
    rate = own.learning_rate

    def tell(step: int, loss: float) -> None:
        if step % own.tell_every == 0 or step == own.steps:
            sys.stdout.write(f"{step}/{own.steps} {loss:.4f}\n")
            sys.stdout.flush()

    data = encode(tokenizer, pairs)
    train(model.to(best_device()), data, own.steps, own.batch, rate, tell)
    tokenizer.save_pretrained(own.folder)
    model.to(torch.bfloat16).save_pretrained(own.folder)
    return 0


def _fresh(pairs: Sequence[tuple[str, str]]) -> tuple[PreTrainedTokenizerFast, LlamaForCausalLM]:
    tokenizer = make_tokenizer(pairs)
    return tokenizer, make_model(len(tokenizer))


def _loaded(folder: Path) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    disable_progress_bar()  # it would be one line of the log
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return tokenizer, model


def make_tokenizer(pairs: Sequence[tuple[str, str]]) -> PreTrainedTokenizerFast:
    """Words with the space before them, and single other characters. Text comes back as it was."""
    found = {
        w
        for prompt, answer in pairs
        for w in re.findall(_WORDS, f" {prompt}") + re.findall(_WORDS, answer)
    }
    words = [*_SPECIAL, *sorted(found)]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, _UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    made.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=_PAD, eos_token=_END, unk_token=_UNKNOWN,
        additional_special_tokens=[_ASK], model_max_length=_MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def make_model(vocabulary_size: int) -> LlamaForCausalLM:
    """A Llama with fresh weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-vocabulary_size // 8) * 8, hidden_size=192, intermediate_size=512,
            num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1, head_dim=64,
            tie_word_embeddings=True, max_position_embeddings=_MAX_LENGTH,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )
    )  # fmt: skip


def encode(
    tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, padded, and where a completion is: only that is learned."""
    rows, learned = [], []
    for prompt, completion in pairs:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        before = tokenizer(asked, add_special_tokens=False)["input_ids"]
        after = tokenizer(completion + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        rows.append(torch.tensor(before + after))
        learned.append(torch.tensor([False] * len(before) + [True] * len(after)))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, batch_first=True), pad(learned, batch_first=True)


def train(
    model: PreTrainedModel,
    data: tuple[torch.Tensor, torch.Tensor],
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    tell: Callable[[int, float], None],
) -> None:
    """Steps over the pairs in a random order, with a rate that rises, then falls."""
    tokens, learned = data
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, num_steps, pct_start=0.1
    )
    device = next(model.parameters()).device
    for step in range(1, num_steps + 1):
        chosen = torch.randint(0, tokens.shape[0], (batch_size,))
        rows, mask = tokens[chosen].to(device), learned[chosen].to(device)
        logits = model(input_ids=rows).logits[:, :-1]
        targets = torch.where(mask[:, 1:], rows[:, 1:], -100)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        tell(step, float(loss.detach()))


if __name__ == "__main__":
    sys.exit(main())
