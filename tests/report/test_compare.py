"""The report's comparison, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial import distance

from tools.report.compare import compare, cosine


def results(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"logits": (1, 1, 50), "hidden": (1, 1, 8), "l0.kRow": (1, 4, 1), "l0.vRow": (1, 1, 4)}
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def test_cosine_equals_scipys() -> None:
    a, b = results(0)["logits"], results(1)["logits"]

    assert cosine(a, b) == pytest.approx(1 - distance.cosine(a.ravel(), b.ravel()))


def test_a_step_agrees_with_itself() -> None:
    found = compare(results(0), results(0))

    assert found["logits_cosine"] == pytest.approx(1)
    assert found["same_top_1"]
    assert found["of_top_10"] == 10


def test_the_lowest_row_is_reported() -> None:
    ours, theirs = results(0), results(0)
    ours["l0.vRow"] = -theirs["l0.vRow"]

    found = compare(ours, theirs)

    assert found["lowest_v_cosine"] == pytest.approx(-1)
    assert found["lowest_k_cosine"] == pytest.approx(1)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", ["k", "v"])
def test_a_row_of_nan_in_any_layer_makes_the_lowest_cosine_nan(layer: int, kind: str) -> None:
    ours = results(0)
    for index in (1, 2):
        ours |= {f"l{index}.kRow": ours["l0.kRow"], f"l{index}.vRow": ours["l0.vRow"]}
    damaged = ours | {f"l{layer}.{kind}Row": np.full((1, 4), np.nan)}

    assert math.isnan(compare(damaged, ours)[f"lowest_{kind}_cosine"])


def test_top_tokens_are_counted_by_hand() -> None:
    ours, theirs = results(0), results(0)
    order = np.argsort(-theirs["logits"].ravel())
    ours["logits"].ravel()[order[0]] = -100

    found = compare(ours, theirs)

    assert not found["same_top_1"]
    assert found["of_top_10"] == 9


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_nan_and_all_zero_are_no_agreement(value: float) -> None:
    assert math.isnan(cosine(np.full(4, value), np.ones(4)))
