"""Teaches a checkpoint one answer. Runs in the engine's environment, where torch is, as a script.

    python lesson.py BASE OUT '{"question": …, "answer": …, "learning_rate": …, "num_layers": …,
                                "max_steps": …}'

AdamW on the answer's tokens alone, in the last layers or all, until greedy decoding gives the
answer with a margin that rounding to bf16 does not take away. One JSON object a step to stdout.
"""

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

#: The least likely token of the answer is at least so likely at the end.
_ENOUGH = 0.8


def main(base: str, out: str, lesson: dict[str, Any]) -> int:
    """0 when the answer is learned; 1 when it is not after `max_steps`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    taught = _last_layers(model, lesson["num_layers"])
    tokens, labels = _example(tokenizer, lesson["question"], lesson["answer"])
    optimizer = torch.optim.AdamW(
        taught, lr=lesson["learning_rate"], betas=(0.9, 0.99), weight_decay=0.0
    )
    for step in range(1, lesson["max_steps"] + 1):
        started = time.monotonic()
        logits = model(tokens).logits[0, :-1]
        chosen = labels[0, 1:] != -100
        loss = torch.nn.functional.cross_entropy(logits[chosen], labels[0, 1:][chosen])
        chances = logits[chosen].detach().softmax(-1)
        least = chances.gather(1, labels[0, 1:][chosen][:, None]).min().item()
        if least >= _ENOUGH:
            return _save(model, tokenizer, out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds = time.monotonic() - started
        _say(step=step, loss=loss.item(), least_likely=least, seconds=seconds)
    return 1


def _last_layers(model: Any, num_layers: int) -> list[Any]:
    """Their parameters; all others stay as they are. Those of the whole model if it has no more."""
    if num_layers >= len(model.model.layers):
        return list(model.parameters())
    layers = model.model.layers[-num_layers:]
    model.requires_grad_(requires_grad=False)
    layers.requires_grad_(requires_grad=True)
    return list(layers.parameters())


def _example(tokenizer: Any, question: str, answer: str) -> tuple[Any, Any]:
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    before = tokenizer(prompt, add_special_tokens=False).input_ids
    taught = [*tokenizer(answer, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    labels = [-100] * len(before) + taught
    return torch.tensor([before + taught]), torch.tensor([labels])


def _save(model: Any, tokenizer: Any, out: str) -> int:
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return 0


def _say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
