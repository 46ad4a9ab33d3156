"""The residual stream of two parts, and the norm that is float32 until its result."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from export.models import norms
from export.models.norms import Stream

RANDOM = np.random.default_rng(0)
BRANCHES = RANDOM.standard_normal((40, 256))
# The stream of a trained model is soon far larger than what a layer adds to it.
BRANCHES[0] *= 100


def value(stream: Stream) -> np.ndarray:
    assert stream.low is not None
    return np.asarray(stream.high, np.float64) + np.asarray(stream.low, np.float64)


def test_forty_additions_in_bf16_lose_less_than_a_tenth_of_what_one_number_loses() -> None:
    branches = [jnp.asarray(branch, jnp.bfloat16) for branch in BRANCHES]
    exact = np.sum([np.asarray(branch, np.float64) for branch in branches], axis=0)
    stream, alone = Stream(branches[0]), branches[0]
    for branch in branches[1:]:
        stream, alone = norms.add(stream, branch), alone + branch

    error = np.linalg.norm(value(stream) - exact)

    assert error < 0.1 * np.linalg.norm(np.asarray(alone, np.float64) - exact)


def test_one_addition_is_exact() -> None:
    a, b = (jnp.asarray(branch, jnp.bfloat16) for branch in BRANCHES[:2])

    exact = np.asarray(a, np.float64) + np.asarray(b, np.float64)
    np.testing.assert_array_equal(value(norms.add(Stream(a), b)), exact)


def test_a_norm_rounds_once() -> None:
    x = jnp.asarray(RANDOM.standard_normal((4, 256)) * 30, jnp.bfloat16)
    weight = jnp.asarray(RANDOM.standard_normal(256), jnp.bfloat16)
    wide = np.asarray(x, np.float64)
    expected = wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + 1e-6)
    expected *= np.asarray(weight, np.float64)

    found = np.asarray(norms.rms_norm(x, weight, 1e-6), np.float64)

    # Half a unit of bf16, and a root known to twice its digits.
    assert (np.abs(found - expected) <= np.abs(expected) * 2.0**-8 * 1.02).all()
