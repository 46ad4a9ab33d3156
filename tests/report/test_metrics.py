"""The report's metrics, against scipy and llama.cpp."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from scipy.spatial import distance
from scipy.special import log_softmax, rel_entr

from export.gguf import reader
from export.gguf.dense import dense
from export.models.read import read_config
from export.trace.packing import HEAD
from export.trace.weights import dense_weights
from tests.llama.oracle import LlamaOracle
from tests.toy.toy import Toy
from tools.report import metrics, stages
from tools.report.pairs import Pair, Said
from tools.texts import Text, tokenizer_of

BF16 = np.dtype(ml_dtypes.bfloat16)
RANDOM = np.random.default_rng(3)
A = (RANDOM.standard_normal((7, 300)) * 6).astype(np.float32)
B = A + RANDOM.standard_normal(A.shape).astype(np.float32)


@pytest.mark.parametrize(
    "dtypes", list(itertools.product([BF16, np.float32, np.float64], repeat=2))
)
@pytest.mark.parametrize("of", [np.asarray, jnp.asarray])
def test_cosines_are_scipys(dtypes: tuple[np.dtype, np.dtype], of: Callable[..., Any]) -> None:
    """1 - cosine to 1 in 1,000 of it: products in bf16 would be off by 4 in 1,000 each."""
    rounded = [values.astype(dtype) for values, dtype in zip((A, B), dtypes, strict=True)]
    pairs = zip(*(values.astype(np.float64) for values in rounded), strict=True)
    expected = [distance.cosine(a, b) for a, b in pairs]

    found = metrics.cosines(*(of(values) for values in rounded))

    np.testing.assert_allclose(1 - found, expected, rtol=1e-3)


def test_a_cosine_with_zeros_or_nan_is_nan() -> None:
    broken = A[:2].copy()
    broken[0], broken[1, 5] = 0, np.nan

    assert np.isnan(metrics.cosines(A[:2], broken)).all()


def test_log_probabilities_and_kl_are_scipys() -> None:
    logs = [metrics.log_softmax(values) for values in (A, B)]
    wanted = [log_softmax(values.astype(np.float64), axis=-1) for values in (A, B)]
    expected = rel_entr(*(np.exp(values) for values in wanted)).sum(axis=-1)

    np.testing.assert_allclose(logs[0], wanted[0], atol=1e-5)
    np.testing.assert_allclose(metrics.kl_divergence(*logs), expected, rtol=1e-4)


@pytest.mark.parametrize("count", [1, 5, 10, 400])
def test_the_best_are_those_of_a_whole_sort(count: int) -> None:
    expected = np.argsort(-A, axis=-1, kind="stable")[:, :count]

    np.testing.assert_array_equal(metrics.best(A, count), expected)


def test_the_best_of_equals_is_the_lowest_token() -> None:
    assert metrics.best(np.zeros((2, 50), np.float32), 3)[:, 0].tolist() == [0, 0]


def test_the_error_is_in_ulp_of_the_largest_logit() -> None:
    reference = np.array([[20.0, 0.001]], np.float32)

    # Between 16 and 32 bf16 numbers are 0.125 apart.
    found = np.array([[20.0, 0.251]], np.float32)
    assert metrics.error_in_ulp(reference, found)[0] == pytest.approx(2)


def test_shared_is_a_share_of_the_reference() -> None:
    assert metrics.shared(np.array([[1, 2, 3, 4]]), np.array([[4, 9, 1, 8]])).tolist() == [0.5]


def test_perplexity_and_logits_are_llama_cpps_on_the_same_text(tmp_path: Path) -> None:
    path = Toy(seed=5, default_type="F32").write(tmp_path / "toy.gguf")
    gguf = reader.read(path)
    config = read_config(gguf)
    tokens = RANDOM.integers(5, 280, 40).tolist()
    weights = dense_weights(gguf, config)
    rows = dense(gguf.tensor("token_embd.weight")) * np.float32(config.embedding_scale)
    stage = stages.run_stage("file", config, weights, [rows[tokens]], np.dtype(np.float32))
    ours = stages.exact_head(np.asarray(weights.matrices[HEAD]), None)(stage.hidden(0))
    theirs = LlamaOracle(path, 64).logits(tokens)
    logs = log_softmax(theirs.astype(np.float64), axis=-1)
    expected = np.exp(-logs[np.arange(39), tokens[1:]].mean())

    pair = Pair("llama.cpp", "file")
    pair.add(Said(theirs), Said(ours), [*tokens[1:], None])
    said = pair.report([Text("text", tuple(tokens))], tokenizer_of(gguf))

    assert said["perplexity"]["reference"] == pytest.approx(expected, rel=1e-5)
    assert said["perplexity"]["found"] == pytest.approx(expected, rel=1e-3)
    assert said["logits_cosine"]["min"] > 0.99999
    assert said["divergence"] == [{"text": "text", "position": None}]


def test_a_pair_names_where_texts_part_and_the_worst_position(tmp_path: Path) -> None:
    gguf = reader.read(Toy().write(tmp_path / "toy.gguf"))
    texts = [Text("one", (2, 17, 33)), Text("two", (2, 40, 41, 42))]
    reference = np.zeros((7, 288), np.float32)
    reference[:, 50] = 9
    found = reference.copy()
    found[5, 60] = 12  # position 2 of the second text

    pair = Pair("a", "b")
    pair.add(Said(reference[:3]), Said(found[:3]), [17, 33, None])
    pair.add(Said(reference[3:]), Said(found[3:]), [40, 41, 42, None])
    said = pair.report(texts, tokenizer_of(gguf))

    assert said["divergence"] == [
        {"text": "one", "position": None},
        {"text": "two", "position": 2},
    ]
    assert (said["worst"][0]["text"], said["worst"][0]["position"]) == ("two", 2)
    assert said["top_1"] == pytest.approx(6 / 7)
    assert sum(said["kl_histogram"]["counts"]) == 7
