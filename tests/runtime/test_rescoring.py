"""Rescoring on the host, against numpy's float64 on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType as Type

from runtime import rescoring
from runtime.embedding import EmbeddingRows
from runtime.rescoring import Head

VOCABULARY, SIZE = 3000, 64
RANDOM = np.random.default_rng(0)
VALUES = RANDOM.standard_normal((VOCABULARY, SIZE)).astype(np.float32)
HIDDEN = (RANDOM.standard_normal(SIZE) * 2).astype(np.float32)


def head(
    kind: Type = Type.Q8_0, mean: np.ndarray | None = None, cap: float | None = None
) -> tuple[Head, np.ndarray]:
    """A head, and its exact logits in float64."""
    raw = quants.quantize(VALUES, kind)
    exact = quants.dequantize(raw, kind).astype(np.float64) @ HIDDEN
    rows = EmbeddingRows(raw.view(np.uint8).reshape(VOCABULARY, -1), kind, np.float32(1))
    capped = exact if cap is None else cap * np.tanh(exact / cap)
    return Head(rows=rows, mean=mean, cap=cap, candidates=64), capped


def rough(exact: np.ndarray) -> np.ndarray:
    """Logits as a 4-bit head gives them: the order of the best is another one."""
    return (exact + np.random.default_rng(1).standard_normal(VOCABULARY)).astype(np.float32)


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q4_0, Type.F16])
def test_the_best_are_exact_and_the_others_as_they_were(kind: Type) -> None:
    ours, exact = head(kind)
    logits = rough(exact)

    found = ours.rescore(logits, HIDDEN, 64)

    best = np.argsort(-logits)[:64]
    np.testing.assert_allclose(found[best], exact[best], rtol=1e-4, atol=1e-4)
    others = np.argsort(-logits)[64:]
    np.testing.assert_array_equal(found[others], logits[others])
    assert found.argmax() == exact.argmax()
    assert (np.argsort(-logits)[:10] != np.argsort(-exact)[:10]).any()


def test_what_the_export_took_off_is_put_back_everywhere() -> None:
    mean = VALUES.mean(axis=0) + 1
    ours, exact = head(mean=mean)
    device = (exact - HIDDEN.astype(np.float64) @ mean).astype(np.float32)

    for candidates in (0, 64):
        found = ours.rescore(device, HIDDEN, candidates)
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_a_cap_is_put_on_exact_logits() -> None:
    ours, exact = head(cap=20.0)

    found = ours.rescore(rough(exact), HIDDEN, 64)

    assert found.argmax() == exact.argmax()
    assert found.max() == pytest.approx(exact.max(), rel=1e-5)


def test_the_best_are_looked_for_among_the_allowed() -> None:
    ours, exact = head()
    logits = rough(exact)
    allowed = np.zeros(VOCABULARY, bool)
    allowed[np.argsort(-exact)[1000:1020]] = True

    found = ours.rescore(logits, HIDDEN, 64, allowed)

    np.testing.assert_allclose(found[allowed], exact[allowed], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[~allowed], logits[~allowed])


def test_the_logits_that_were_given_stay_as_they_were() -> None:
    ours, exact = head()
    logits = rough(exact)
    before = logits.copy()

    ours.rescore(logits, HIDDEN, 64)

    np.testing.assert_array_equal(logits, before)


def test_nan_is_left_for_whoever_chooses_to_find() -> None:
    ours, exact = head()
    logits = rough(exact)
    logits[5] = np.nan

    assert np.isnan(ours.rescore(logits, HIDDEN, 64)[5])


@pytest.mark.parametrize("size", [1, 7, 255, 256, 257, 3000, 100_000])
@pytest.mark.parametrize("count", [1, 2, 64, 5000])
@pytest.mark.parametrize("levels", [0, 3])
def test_the_best_are_those_of_a_whole_sort(size: int, count: int, levels: int) -> None:
    random = np.random.default_rng(size)
    scores = random.standard_normal(size).astype(np.float32)
    scores = np.round(scores * levels) if levels else scores

    found = rescoring.best(scores, count)

    assert len(set(found.tolist())) == len(found) == min(count, size)
    np.testing.assert_array_equal(np.sort(scores[found]), np.sort(scores)[-count:])


@pytest.mark.parametrize("allowed", [0, 1, 40, 600])
def test_no_other_than_allowed_tokens_are_best(allowed: int) -> None:
    random = np.random.default_rng(1)
    scores = random.standard_normal(10_000).astype(np.float32)
    mask = np.zeros(10_000, bool)
    mask[random.choice(10_000, allowed, replace=False)] = True

    found = rescoring.best(scores, 64, mask)

    assert mask[found].all()
    np.testing.assert_array_equal(np.sort(scores[found]), np.sort(scores[mask])[-64:])
