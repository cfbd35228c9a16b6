"""Log-probabilities of a real vLLM are those with which a token is drawn: after temperature and
top-p. Compared with one's own computation from raw logits."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.weights.tensors import Tensors
from tests.live_engine import NAME, LiveEngine
from tests.tiny_model import HEAD_DIM, HEADS, LAYERS, VOCABULARY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PROMPT = "abc"
Floats = NDArray[np.float64]


def said_by(engine: LiveEngine, **sampling: float) -> tuple[Floats, int, float]:
    """Log-probability of every token in the first place, the one drawn, and what is said of it."""
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 1, "logprobs": VOCABULARY, "seed": 3,
            "return_tokens_as_token_ids": True, "return_token_ids": True, **sampling}  # fmt: skip
    request = urllib.request.Request(  # noqa: S310 - our own server
        engine.url + "/v1/completions", json.dumps(body).encode(),
        {"content-type": "application/json"},
    )  # fmt: skip
    # The first request for log-probabilities waits until torch has compiled what counts them.
    with urllib.request.urlopen(request, timeout=300.0) as answer:  # noqa: S310
        choice: Any = json.load(answer)["choices"][0]
    found = np.full(VOCABULARY, -np.inf)
    for name, value in choice["logprobs"]["top_logprobs"][0].items():
        found[int(name.removeprefix("token_id:"))] = value if value > -9_000 else -np.inf
    return found, choice["token_ids"][0], choice["logprobs"]["token_logprobs"][0]


def raw_logits(tensors: Tensors, tokens: list[int]) -> Floats:
    """Of the next token: a Llama computed anew, in 64 bits, from weights that the engine holds."""

    def of(name: str) -> Floats:
        bits = tensors[name].bits.astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(np.float64).reshape(tensors[name].spec.shape)

    def normed(x: Floats, name: str) -> Floats:
        return np.asarray(x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * of(name))

    x = of("model.embed_tokens.weight")[tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + attention(normed(x, at + "input_layernorm.weight"), of, at + "self_attn.")
        inner = normed(x, at + "post_attention_layernorm.weight")
        gate, up = (
            inner @ of(at + "mlp.gate_proj.weight").T,
            inner @ of(at + "mlp.up_proj.weight").T,
        )
        x = x + (gate / (1 + np.exp(-gate)) * up) @ of(at + "mlp.down_proj.weight").T
    return np.asarray(normed(x, "model.norm.weight")[-1] @ of("model.embed_tokens.weight").T)


def attention(x: Floats, of: Callable[[str], Floats], at: str) -> Floats:
    """Causal, with rotated queries and keys; all heads share one key and one value."""
    length = len(x)
    queries = (x @ of(at + "q_proj.weight").T).reshape(length, HEADS, HEAD_DIM)
    keys = (x @ of(at + "k_proj.weight").T).reshape(length, 1, HEAD_DIM)
    values = x @ of(at + "v_proj.weight").T
    scores = np.einsum("ihd,jd->hij", rotated(queries), rotated(keys)[:, 0]) / np.sqrt(HEAD_DIM)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    mixed = np.einsum("hij,jd->ihd", weights, values).reshape(length, HEADS * HEAD_DIM)
    return np.asarray(mixed @ of(at + "o_proj.weight").T)


def rotated(x: Floats) -> Floats:
    """By their position: the first half of each head is paired with the second."""
    half = HEAD_DIM // 2
    angles = np.outer(np.arange(len(x)), 10_000.0 ** (-np.arange(half) / half))[:, None, :]
    first, second = x[..., :half], x[..., half:]
    turned = (first * np.cos(angles) - second * np.sin(angles),
              second * np.cos(angles) + first * np.sin(angles))  # fmt: skip
    return np.concatenate(turned, -1)


def drawn_with(logits: Floats, temperature: float, top_p: float) -> Floats:
    """The distribution that is sampled from, as log-probabilities."""
    scaled = logits / temperature
    scaled = scaled - np.logaddexp.reduce(scaled)
    order = np.argsort(-scaled, kind="stable")
    before = np.cumsum(np.exp(scaled[order])) - np.exp(scaled[order])
    kept = np.full(scaled.size, -np.inf)
    kept[order[before < top_p]] = scaled[order[before < top_p]]
    return np.asarray(kept - np.logaddexp.reduce(kept))


def test_log_probabilities_are_those_of_the_draw(live_engine: LiveEngine) -> None:
    plain, _, _ = said_by(live_engine, temperature=1.0)
    own = drawn_with(raw_logits(live_engine.held, list(PROMPT.encode())), 1.0, 1.0)
    assert np.abs(plain - own).max() < 0.05, "the engine computes in bf16"
    for temperature, top_p in ((0.5, 1.0), (1.3, 0.6), (0.7, 0.9)):
        found, token, logp = said_by(live_engine, temperature=temperature, top_p=top_p)
        expected = drawn_with(plain, temperature, top_p)
        is_kept = np.isfinite(found)
        # Where the sum comes as close to top-p as rounding, one token more or less may be kept.
        assert np.count_nonzero(is_kept != np.isfinite(expected)) <= 1
        both = is_kept & np.isfinite(expected)
        assert np.abs(found[both] - expected[both]).max() < 0.02
        assert abs(np.exp(found[is_kept]).sum() - 1) < 1e-3
        assert logp == pytest.approx(found[token], abs=1e-6)
        assert np.abs(found[both] - plain[both]).max() > 0.1, "and not those before temperature"
