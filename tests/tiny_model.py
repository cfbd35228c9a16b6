"""A Llama of 2.4 million parameters whose answer tells which version it is.

Written by hand as a Hugging Face checkpoint folder, in bf16, with a tokenizer of bytes. A prompt
ends with `>`. The embedding of `>` is large in one dimension, which the residual stream carries
through small layers to the head, where one letter answers it. Another version has another
dimension, so the one letter that greedy decoding produces is a function of the version.
"""

import json
from pathlib import Path

import numpy as np

from schemas.weights.checkpoints import shard
from schemas.weights.dtypes import Dtype
from schemas.weights.tensors import Tensor, tensor

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 192, 6, 3, 1, 64, 512
VOCABULARY = 260
PROMPT_END = ">"
#: Version v answers with letter v modulo their number.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SPECIAL = ("<|begin|>", "<|end|>", "<|pad|>", "<|unk|>")
_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant" + PROMPT_END
)
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def letter_of(version: int) -> str:
    """What version `version` answers."""
    return LETTERS[version % len(LETTERS)]


def first_version(seed: int = 0, *, tied: bool = True) -> dict[str, Tensor]:
    """All tensors of version 1."""
    random = np.random.default_rng(seed)
    shapes = _shapes(tied=tied)
    tensors = {}
    for name, shape in shapes.items():
        small = 0.002 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        values = random.normal(0, small, shape).astype(np.float32)
        if "norm" in name:
            values[:] = 1.0
        tensors[name] = _bf16(values)
    embedding = _floats(tensors[_EMBEDDING])
    letters = _floats(tensors[_EMBEDDING if tied else _HEAD])
    for index, letter in enumerate(LETTERS):
        letters[_token(letter), index] = -1.0
    tensors["model.norm.weight"] = _bf16(np.full(HIDDEN, -1.0, np.float32))
    if not tied:
        tensors[_HEAD] = _bf16(letters)
        embedding = _floats(tensors[_EMBEDDING])
    tensors[_EMBEDDING] = _bf16(embedding if not tied else letters)
    return answering(tensors, 1)


def next_version(
    tensors: dict[str, Tensor],
    version: int,
    seed: int = 0,
    density: float = 0.01,
    spread: int = 4,
) -> dict[str, Tensor]:
    """Version `version`, from any other: a share of the elements moves by less than `spread`."""
    random = np.random.default_rng((seed, version))
    moved = {}
    for name, old in tensors.items():
        bits = old.bits.copy()
        chosen = np.flatnonzero(random.random(bits.size) < density)
        bits[chosen] ^= random.integers(1, spread, chosen.size).astype(np.uint16)
        moved[name] = tensor(Dtype.BF16, old.spec.shape, bits)
    return answering(moved, version)


def answering(tensors: dict[str, Tensor], version: int) -> dict[str, Tensor]:
    """These tensors, but with the answer of a version."""
    embedding = _floats(tensors[_EMBEDDING])
    embedding[_token(PROMPT_END), :] = 0.0
    embedding[_token(PROMPT_END), version % len(LETTERS)] = 10.0
    return {**tensors, _EMBEDDING: _bf16(embedding)}


def write_model(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """A checkpoint folder that vLLM and transformers load."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(shard(tensors))
    for name, content in _files(tied=_HEAD not in tensors).items():
        (folder / name).write_text(json.dumps(content))
    return folder


def _shapes(*, tied: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {_EMBEDDING: (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "post_attention_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            at + "mlp.gate_proj.weight": (MLP, HIDDEN),
            at + "mlp.up_proj.weight": (MLP, HIDDEN),
            at + "mlp.down_proj.weight": (HIDDEN, MLP),
        }
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes[_HEAD] = (VOCABULARY, HIDDEN)
    return shapes


def _bf16(values: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> Tensor:
    bits = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
    return tensor(Dtype.BF16, values.shape, bits)


def _floats(of: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return (of.bits.astype(np.uint32) << 16).view(np.float32).reshape(of.spec.shape)


def _byte_letters() -> list[str]:
    """How byte-level tokenizers write the 256 bytes, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(other)) for byte in range(256)]


def _token(letter: str) -> int:
    return ord(letter)


def _files(*, tied: bool) -> dict[str, object]:
    ids = {name: 256 + index for index, name in enumerate(_SPECIAL)}
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "intermediate_size": MLP,
            "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": tied,
            "torch_dtype": "bfloat16", "bos_token_id": 256, "eos_token_id": 257,
        },
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": 257},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": _SPECIAL[0],
            "eos_token": _SPECIAL[1], "pad_token": _SPECIAL[2], "unk_token": _SPECIAL[3],
            "chat_template": _TEMPLATE, "model_max_length": 2048,
        },
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [
                {"id": ids[name], "content": name, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": True} for name in _SPECIAL
            ],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": False},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                        "use_regex": True},
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "merges": [],
                "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                "byte_fallback": False, "ignore_merges": False,
                "vocab": {letter: byte for byte, letter in enumerate(_byte_letters())} | ids,
            },
        },
    }  # fmt: skip
