"""The step against llama.cpp on F32 checkpoints: logits, greedy tokens, both sides of a window.

Cases 4, 11 and 12: each fault that people made, switched on, makes the same check fail.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from export.gguf import reader
from export.gguf.reader import GgufFile
from export.models import decoder, gemma3
from export.models.config import DecoderConfig
from export.trace.weights import dense_weights
from runtime.positions import LayerKind
from tests.llama.oracle import LlamaOracle
from tests.toy.gemma3 import Toy
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

    ours = our_logits(gguf, gemma3.read_config(gguf), tokens)
    theirs = LlamaOracle(path, 64).logits(tokens)

    assert cosines(ours, theirs).min() > MIN_COSINE
    np.testing.assert_array_equal(ours.argmax(axis=-1), theirs.argmax(axis=-1))


def without_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerKind, "mask", lambda self, _: np.zeros((1, self.past), np.float32))


def with_one_added_to_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = decoder.rms_norm
    monkeypatch.setattr(decoder, "rms_norm", lambda x, w, epsilon: norm(x, w + 1, epsilon))


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
CHANGES: dict[str, dict[str, Any]] = {
    "embedding scale left out": {"embedding_scale": 1.0},
    "window one too wide": {"window": 5},
    "window one too narrow": {"window": 3},
    "global and sliding layers swapped": {"window_pattern": 3},
    "one base for all layers": {"rope_base_sliding": 1_000_000.0},
    "global layers scaled": {"rope_scale": 8.0},
}


@pytest.mark.parametrize("fault", [*PATCHES, *CHANGES])
def test_a_fault_switched_on_is_seen(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(seed=1, layers=4)
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    config = replace(gemma3.read_config(gguf), **CHANGES.get(fault, {}))
    if fault in PATCHES:
        PATCHES[fault](monkeypatch)
    tokens = tokens_for(toy)

    ours = our_logits(gguf, config, tokens)

    assert cosines(ours, LlamaOracle(path, 64).logits(tokens)).min() < 0.9999


def test_a_cache_capped_at_the_window_is_seen(tmp_path: Path) -> None:
    """Case 12: global layers must see past the window."""
    toy = Toy(seed=1, layers=4)
    path = toy.write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    tokens = tokens_for(toy, 12)
    capped = replace(gemma3.read_config(gguf), window_pattern=99)

    ours = our_logits(gguf, capped, tokens)

    found = cosines(ours, LlamaOracle(path, 64).logits(tokens))
    assert found[-1] < 0.9999


def test_two_prompts_give_two_outputs(tmp_path: Path) -> None:
    """Case 16."""
    gguf = reader.read(Toy().write(tmp_path / "toy.gguf"))
    config = gemma3.read_config(gguf)

    first, second = (our_logits(gguf, config, [2, token, 50])[-1] for token in (20, 21))

    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max()
