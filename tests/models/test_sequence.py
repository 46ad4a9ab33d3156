"""A text at once equals the step run token after token, whose logits are llama.cpp's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.gguf import reader
from export.gguf.dense import dense
from export.models import sequence
from export.models.read import read_config
from export.trace.packing import input_name
from export.trace.weights import dense_weights
from tests.toy.toy import Toy
from tools.report.reference import ReferenceDecoder

TOYS = {
    "gemma3, beyond its window": Toy(layers=3),
    "gemma2, with caps": Toy(architecture="gemma2"),
    "llama, without post norms": Toy(architecture="llama", head_dim=16),
    "qwen2, with biases": Toy(architecture="qwen2", head_dim=16),
}
TOKENS = [2, 40, 17, 200, 33, 101, 5, 90, 91, 250, 7, 8]


@pytest.mark.parametrize("name", TOYS)
def test_every_position_is_the_steps(name: str, tmp_path: Path) -> None:
    gguf = reader.read(TOYS[name].write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    weights = dense_weights(gguf, config)
    embedded = dense(gguf.tensor("token_embd.weight"))[TOKENS] * np.float32(config.embedding_scale)
    step = ReferenceDecoder(gguf, config, weights, 16)

    found = sequence.run(config, weights, embedded)

    for position, token in enumerate(TOKENS):
        wanted = step.step(token)
        np.testing.assert_allclose(
            found.hidden[position], wanted["hidden"].ravel(), rtol=1e-4, atol=1e-4
        )
        for layer in range(config.layers):
            for part, values in (("k", found.k), ("v", found.v)):
                row = wanted[f"l{layer}.{part}Row"].ravel()
                np.testing.assert_allclose(values[layer][position], row, rtol=1e-4, atol=1e-4)


def test_a_watched_matrix_says_what_it_was_given(tmp_path: Path) -> None:
    gguf = reader.read(Toy().write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    weights = dense_weights(gguf, config)
    embedded = dense(gguf.tensor("token_embd.weight"))[TOKENS] * np.float32(config.embedding_scale)

    found = sequence.run(config, weights, embedded, ["blk.0.attn_q", "blk.1.ffn_down"])

    # The first norm's own formula, and V is what its input gives (no norm, no RoPE in between).
    scale = np.sqrt((embedded**2).mean(axis=-1, keepdims=True) + config.rms_epsilon)
    expected = embedded / scale * weights.vectors["blk.0.attn_norm.weight"]
    np.testing.assert_allclose(found.inputs["blk.0.attn_q"], expected, rtol=1e-4, atol=1e-5)
    given = np.asarray(found.inputs["blk.0.attn_q"])
    matrix = np.asarray(weights.matrices["blk.0.attn_v.weight"])
    np.testing.assert_allclose(given @ matrix, found.v[0], rtol=1e-3, atol=1e-4)
    assert found.inputs["blk.1.ffn_down"].shape == (len(TOKENS), config.ffn_size)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.3.attn_v.weight", "blk.3.attn_q"),
        ("blk.3.attn_output.weight", "blk.3.attn_output"),
        ("blk.0.ffn_up.weight", "blk.0.ffn_gate"),
        ("output.weight", "output"),
    ],
)
def test_matrices_of_one_input_share_its_name(name: str, expected: str) -> None:
    assert input_name(name) == expected
