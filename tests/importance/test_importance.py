"""The importance matrix: its values, its file, and what a packing that needs it says without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.errors import ExportError
from export.gguf import reader
from export.gguf.dense import dense
from export.models.read import read_config
from export.trace.importance import read_importance, write_importance
from export.trace.packing import Packing
from export.trace.weights import dense_weights, packed_weights
from tests.toy.toy import Toy
from tools.importance.importance import moments
from tools.report.reference import ReferenceDecoder

TEXTS = ([2, 40, 17, 200], [2, 5, 90, 91, 250, 7])


def test_the_heads_moment_is_that_of_the_steps_hidden_states(tmp_path: Path) -> None:
    gguf = reader.read(Toy().write(tmp_path / "toy.gguf"))
    config = read_config(gguf)
    weights = dense_weights(gguf, config)
    rows = dense(gguf.tensor("token_embd.weight")) * np.float32(config.embedding_scale)
    hidden = []
    for tokens in TEXTS:
        step = ReferenceDecoder(gguf, config, weights, 16)
        hidden += [step.step(token)["hidden"].ravel().astype(np.float64) for token in tokens]
    expected = np.mean([np.outer(state, state) for state in hidden], axis=0)

    found = moments(config, weights, [rows[t] for t in TEXTS], ["output", "blk.1.ffn_down"])

    np.testing.assert_allclose(found["output"], expected, rtol=1e-3, atol=1e-4)
    assert found["blk.1.ffn_down"].shape == (config.ffn_size, config.ffn_size)
    assert set(found) == {"output", "blk.1.ffn_down"}


def test_a_file_holds_what_was_written_and_the_same_bytes_twice(tmp_path: Path) -> None:
    values = {"output": np.arange(9.0).reshape(3, 3), "blk.0.attn_q": np.eye(2)}
    for name in ("one", "two"):
        write_importance(tmp_path / name, values)

    found = read_importance(tmp_path / "one")

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value.astype(np.float32))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut"])
def test_a_broken_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "matrix.npz").write_bytes(content)

    with pytest.raises(ExportError, match=r"matrix\.npz: no importance matrix"):
        read_importance(tmp_path / "matrix.npz")


def test_without_an_importance_matrix_the_tensor_is_named(tmp_path: Path) -> None:
    gguf = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))
    config = read_config(gguf)

    with pytest.raises(ExportError, match=r"output\.weight is to be Q4_GPTQ.*has no output"):
        packed_weights(gguf, config, Packing(head="Q4_GPTQ"))


def test_a_pattern_that_no_projection_has_is_refused(tmp_path: Path) -> None:
    gguf = reader.read(Toy(default_type="Q8_0").write(tmp_path / "toy.gguf"))

    with pytest.raises(ExportError, match=r"'attn_qq' matches none.*blk\.0\.attn_q"):
        packed_weights(gguf, read_config(gguf), Packing(projections=(("attn_qq", "Q4_0"),)))


def test_the_last_pattern_that_matches_counts() -> None:
    packing = Packing(
        requantise="Q8_0",
        head="Q4_1",
        projections=(("attn_*", "Q4_0"), ("blk.1.attn_q", "Q5_0"), ("blk.*.ffn_up", "Q4_1")),
    )

    assert packing.forced("blk.0.attn_q.weight") == "Q4_0"
    assert packing.forced("blk.1.attn_q.weight") == "Q5_0"
    assert packing.forced("blk.7.ffn_up.weight") == "Q4_1"
    assert packing.forced("blk.7.ffn_down.weight") == "Q8_0"
    assert packing.forced("output.weight") == "Q4_1"
