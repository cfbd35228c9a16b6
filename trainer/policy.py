"""The policy that learns: a causal language model, and its weights as the engine serves them."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from schemas.errors import ConfigError
from schemas.weights.checkpoints import read_folder
from schemas.weights.dtypes import Dtype, unsigned
from schemas.weights.tensors import Layout, Tensor, Tensors, layout_of
from trainer.examples import Example
from trainer.group import Group, put_into, whole

_DTYPES = {Dtype.BF16: torch.bfloat16, Dtype.F16: torch.float16, Dtype.F32: torch.float32}
#: Signed integers as wide: numpy knows no bf16, so bits go by them.
_BITS = {Dtype.BF16: torch.int16, Dtype.F16: torch.int16, Dtype.F32: torch.int32}


@dataclass(frozen=True, slots=True)
class Found:
    """For each trained token, in the order of the examples: its log-probability, and the entropy
    of what might have been there."""

    logp: torch.Tensor
    entropy: torch.Tensor


class Policy:
    """A model in 32 bits that is published in the number formats of its checkpoint folder."""

    def __init__(self, model: torch.nn.Module, layout: Layout, device: torch.device) -> None:
        self.model = model.to(device).eval()  # no dropout: log-probabilities are compared
        self.layout = layout
        self.device = device
        self._again: Callable[[], Policy] | None = None

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> "Policy":
        """The model in a checkpoint folder. ConfigError when it is none that can be trained."""
        layout = layout_of(read_folder(folder))
        if strange := sorted({spec.dtype for spec in layout.values()} - _DTYPES.keys()):
            raise ConfigError(f"{folder} has weights in {strange[0]}, which cannot be trained.")
        disable_progress_bar()  # it would be one line of the log
        try:
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{folder} cannot be loaded ({type(error).__name__}). Set HEADRACE_TRAINER__MODEL "
                "to the checkpoint folder of a causal language model."
            ) from None
        missing = sorted(layout.keys() - model.state_dict().keys())
        if missing:
            raise ConfigError(f"{folder} has a tensor that the model lacks: {missing[0]}.")
        return cls(model, layout, device)

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def max_length(self) -> int:
        """Tokens that a sequence may have."""
        return int(getattr(self.model.config, "max_position_embeddings", 131_072))

    def parameters(self) -> dict[str, torch.Tensor]:
        """What is trained, by name; tied weights once."""
        return dict(self.model.named_parameters())

    def figures(self, examples: Sequence[Example], temperature: float) -> Found:
        """Log-probabilities and entropies of the trained tokens. Pads on the right, so what is
        computed of a token does not depend on what it is computed together with."""
        longest = max(example.token_ids.size for example in examples)
        tokens = torch.zeros(len(examples), longest, dtype=torch.long)
        attended = torch.zeros_like(tokens)
        for row, example in enumerate(examples):
            tokens[row, : example.token_ids.size] = torch.from_numpy(example.token_ids)
            attended[row, : example.token_ids.size] = 1
        wanted = np.unique(np.concatenate([example.positions - 1 for example in examples]))
        column_of = np.zeros(longest, np.int64)
        column_of[wanted] = np.arange(wanted.size)
        logits = self.model(
            input_ids=tokens.to(self.device),
            attention_mask=attended.to(self.device),
            use_cache=False,
            logits_to_keep=torch.from_numpy(wanted).to(self.device),
        ).logits
        rows = np.repeat(np.arange(len(examples)), [e.positions.size for e in examples])
        columns = np.concatenate([column_of[e.positions - 1] for e in examples])
        targets = np.concatenate([e.token_ids[e.positions] for e in examples])
        picked = logits[self._on(rows), self._on(columns)].float() / temperature
        scores = picked.log_softmax(-1)
        logp = scores.gather(-1, self._on(targets)[:, None])[:, 0]
        return Found(logp, -(scores.detach().exp() * scores.detach()).sum(-1))

    def tensors(self) -> Tensors:
        """The weights as they are published: rounded to the number formats of the layout."""
        state = self._state()
        return {
            name: Tensor(spec, _bits_of(whole(state[name]), spec.dtype))
            for name, spec in self.layout.items()
        }

    def load_tensors(self, tensors: Tensors) -> None:
        """Take weights of this layout, in place."""
        state = self._state()
        with torch.no_grad():
            for name, spec in self.layout.items():
                put_into(state[name], _values_of(tensors[name]).reshape(spec.shape))

    def copy(self) -> "Policy":
        """A second one in memory of its own, with the same weights; where they are split among
        processes, with those of the start."""
        return self._copied() if self._again is None else self._again()

    def split(self, group: Group, again: "Callable[[], Policy]") -> "Policy":
        """Split the weights among the processes of a group; `again` makes the policy anew."""
        if group.size > 1:
            group.split(self.model)
            self._again = lambda: again().split(group, again)
        return self

    def _copied(self) -> "Policy":
        return Policy(copy.deepcopy(self.model), self.layout, self.device)

    def _state(self) -> Mapping[str, torch.Tensor]:
        """The tensors by the names of the layout; writing to them writes to the model."""
        state: Mapping[str, torch.Tensor] = self.model.state_dict()
        return state

    def _on(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def in_parts(examples: Sequence[Example], max_tokens: int) -> Iterator[list[int]]:
    """Indices of examples that are computed together: of similar length, at most `max_tokens`
    with padding, one at least."""
    order = sorted(range(len(examples)), key=lambda i: (-examples[i].token_ids.size, i))
    part: list[int] = []
    for index in order:
        longest = examples[part[0]].token_ids.size if part else 0
        if part and longest * (len(part) + 1) > max_tokens:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


def _bits_of(values: torch.Tensor, dtype: Dtype) -> np.ndarray:
    rounded = values.detach().to(_DTYPES[dtype]).contiguous().reshape(-1)
    bits: np.ndarray = rounded.view(_BITS[dtype]).cpu().numpy()
    # A copy: in 32 bits the view is of the weights themselves, which move on.
    return np.array(bits.view(unsigned(dtype)))


def _values_of(tensor: Tensor) -> torch.Tensor:
    signed = tensor.bits.view(np.int16 if tensor.bits.itemsize == 2 else np.int32)
    return torch.from_numpy(signed.copy()).view(_DTYPES[tensor.spec.dtype])
