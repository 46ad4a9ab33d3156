"""The step against llama.cpp on F32 checkpoints: logits, greedy tokens, both sides of a window.

Cases 4, 11 and 12: each fault that people made, switched on, makes the same check fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from export.gguf import reader
from export.gguf.reader import GgufFile
from export.models import decoder, norms
from export.models.config import PRE_NORMS, DecoderConfig, Rope
from export.models.read import read_config
from export.trace.weights import dense_weights
from runtime.positions import LayerKind
from tests.llama.oracle import LlamaOracle
from tests.toy.toy import Toy
from tools.report.reference import ReferenceDecoder

CONTEXT = 40
MIN_COSINE = 0.99999
TOYS = {
    "as written": Toy(seed=1),
    "one K/V head": Toy(kv_heads=1, seed=2),
    "a K/V head a head": Toy(kv_heads=4, layers=3, pattern=3, seed=3),
    "keys left out": Toy(written_keys=False, layers=7, seed=4),
    "odd sizes": Toy(hidden_size=96, ffn_size=160, head_dim=16, heads=6, kv_heads=3, seed=6),
    "other bases": Toy(rope_base=500.0, rope_base_sliding=50.0, seed=7),
    "global layers scaled": Toy(rope_scale=8.0, layers=3, seed=10),
    "window of one": Toy(window=1, seed=8),
    "window beyond the context": Toy(window=64, seed=9),
    "gemma 3 1b's shape": Toy(
        layers=7, hidden_size=72, ffn_size=432, heads=4, kv_heads=1, pattern=6, window=8, seed=11
    ),
    "gemma 2": Toy(architecture="gemma2", layers=4, rope_base=10_000.0, seed=12),
    "gemma 2, low caps": Toy(architecture="gemma2", score_cap=0.5, logit_cap=3.0, seed=13),
    "llama": Toy(architecture="llama", rope_base=10_000.0, head_dim=16, seed=14),
    "llama, three heads a K/V head, its own head": Toy(
        architecture="llama",
        hidden_size=144,
        heads=9,
        kv_heads=3,
        head_dim=16,
        own_head=True,
        rope_base=100_000.0,
        seed=15,
    ),
    "llama 3's factors": Toy(
        architecture="llama",
        head_dim=16,
        rope_base=500_000.0,
        rope_factors=(1.0, 1.0, 1.5, 3.7, 8.0, 8.0, 32.0, 32.0),
        seed=16,
    ),
    "llama, biases": Toy(
        architecture="llama",
        head_dim=16,
        biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
        seed=17,
    ),
    "llama, scaled": Toy(architecture="llama", head_dim=16, rope_scale=4.0, seed=18),
    "qwen 2": Toy(architecture="qwen2", head_dim=16, own_head=True, seed=19),
    "qwen 3": Toy(architecture="qwen3", head_dim=32, seed=20),
}


def tokens_for(toy: Toy, count: int = 30) -> list[int]:
    random = np.random.default_rng(toy.seed)
    return [int(token) for token in random.integers(4, toy.vocabulary, count)]


def our_logits(
    gguf: GgufFile, config: DecoderConfig, tokens: list[int], context: int = CONTEXT
) -> np.ndarray:
    reference = ReferenceDecoder(gguf, config, dense_weights(gguf, config), context)
    return np.stack([reference.step(token)["logits"].ravel() for token in tokens])


def cosines(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    products: np.ndarray = (ours.astype(np.float64) * theirs).sum(axis=-1)
    lengths: np.ndarray = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
    return np.asarray(products / lengths)


@pytest.mark.parametrize("name", TOYS)
def test_logits_equal_llama_cpp(name: str, tmp_path: Path) -> None:
    toy = TOYS[name]
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    tokens = tokens_for(toy)

    ours = our_logits(gguf, read_config(gguf), tokens)
    theirs = LlamaOracle(path, 64).logits(tokens)

    assert cosines(ours, theirs).min() > MIN_COSINE
    np.testing.assert_array_equal(ours.argmax(axis=-1), theirs.argmax(axis=-1))


def without_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerKind, "mask", lambda self, _: np.zeros((1, self.past), np.float32))


def with_one_added_to_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        decoder, "rms_norm", lambda x, w, epsilon: norms.rms_norm(x, w + 1, epsilon)
    )


def with_interleaved_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    def rotate(x: jax.Array, rope: decoder.RopeRow) -> jax.Array:
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (even * rope.cos - odd * rope.sin, odd * rope.cos + even * rope.sin)
        return jax.numpy.stack(turned, axis=-1).reshape(x.shape)

    monkeypatch.setattr(decoder, "rotate", rotate)


PATCHES = {
    "sliding layers unmasked": without_mask,
    "one added to the norms twice": with_one_added_to_norms,
    "RoPE on neighbours": with_interleaved_rope,
}
GEMMA = Toy(seed=1, layers=4)
GEMMA2, LLAMA3, BIASES = (
    TOYS[name] for name in ("gemma 2, low caps", "llama 3's factors", "llama, biases")
)
NO_FACTORS = Rope(base=LLAMA3.rope_base)
CHANGES: dict[str, tuple[Toy, dict[str, Any]]] = {
    "embedding scale left out": (GEMMA, {"embedding_scale": 1.0}),
    "query scale of another head": (LLAMA3, {"query_scale": 1 / 8}),
    "SiLU in place of GELU": (GEMMA, {"gate": "silu"}),
    "GELU in place of SiLU": (LLAMA3, {"gate": "gelu"}),
    "global layers scaled": (GEMMA, {"rope": Rope(base=GEMMA.rope_base, scale=8.0)}),
    "scores not capped": (GEMMA2, {"score_cap": None}),
    "logits not capped": (GEMMA2, {"logit_cap": None}),
    "rows of Q and K as the file has them": (LLAMA3, {"rope_pairs": "halves"}),
    "biases of Q as the file has them": (BIASES, {"rope_pairs": "halves"}),
    "rows reordered that no converter permuted": (TOYS["qwen 2"], {"rope_pairs": "neighbours"}),
    "Llama 3's factors left out": (LLAMA3, {"rope": NO_FACTORS}),
    "norms of heads left out": (TOYS["qwen 3"], {"norms": PRE_NORMS}),
    "norms after left out": (TOYS["gemma 2"], {"norms": PRE_NORMS}),
    "the embedding in place of the head": (TOYS["qwen 2"], {"own_head": False}),
    **{
        f"bias of {name} left out": (
            BIASES,
            {"biases": tuple(other for other in BIASES.biases if other != name)},
        )
        for name in BIASES.biases
    },
}
# Changes of the sliding layers of GEMMA, whose window is 4.
SLIDING: dict[str, dict[str, Any]] = {
    "window one too wide": {"window": 5},
    "window one too narrow": {"window": 3},
    "global and sliding layers swapped": {"layers": (False, True, False, True)},
    "one base for all layers": {"rope": Rope(base=GEMMA.rope_base)},
    # Case 12: global layers must see past the window.
    "every layer capped at the window": {"layers": (True,) * 4},
}


def logits_of_both(
    toy: Toy, tmp_path: Path, change: Callable[[DecoderConfig], DecoderConfig]
) -> tuple[np.ndarray, np.ndarray]:
    """Ours by a changed config, and llama.cpp's."""
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    tokens = tokens_for(toy)
    ours = our_logits(gguf, change(read_config(gguf)), tokens)
    return ours, LlamaOracle(path, 64).logits(tokens)


@pytest.mark.parametrize("fault", PATCHES)
def test_a_fault_in_the_step_is_seen(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PATCHES[fault](monkeypatch)

    assert cosines(*logits_of_both(GEMMA, tmp_path, lambda config: config)).min() < 0.9999


@pytest.mark.parametrize("fault", CHANGES)
def test_a_fault_in_the_hyperparameters_is_seen(fault: str, tmp_path: Path) -> None:
    toy, changes = CHANGES[fault]

    found = cosines(*logits_of_both(toy, tmp_path, lambda config: replace(config, **changes)))

    assert found.min() < 0.9999


@pytest.mark.parametrize("fault", SLIDING)
def test_a_fault_in_the_sliding_layers_is_seen(fault: str, tmp_path: Path) -> None:
    def change(config: DecoderConfig) -> DecoderConfig:
        assert config.sliding
        return replace(config, sliding=replace(config.sliding, **SLIDING[fault]))

    assert cosines(*logits_of_both(GEMMA, tmp_path, change))[-1] < 0.9999


def test_two_prompts_give_two_outputs(tmp_path: Path) -> None:
    """Case 16."""
    gguf = reader.read(Toy().write(tmp_path / "toy.gguf"))
    config = read_config(gguf)

    first, second = (our_logits(gguf, config, [2, token, 50])[-1] for token in (20, 21))

    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max()
