"""The parts of the step in float32, against numpy, scipy and JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from export.models import decoder, norms

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("magnitude", [0.0, 1e-4, 1e-2, 1.0, 100.0])
def test_rms_norm_is_its_formula_with_epsilon_inside_the_root(magnitude: float) -> None:
    x = RANDOM.standard_normal((1, 1, 64)) * magnitude
    weight = RANDOM.standard_normal(64)
    expected = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * weight

    found = norms.rms_norm(jnp.asarray(x), jnp.asarray(weight), 1e-6)

    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_gelu_is_that_of_jax() -> None:
    x = jnp.linspace(-6, 6, 1001)

    np.testing.assert_allclose(
        decoder.gelu_tanh(x), jax.nn.gelu(x, approximate=True), rtol=1e-5, atol=1e-6
    )


# The scores of the past may lie far above the token's own, or far below.
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("own", [-1.0, 1.0])
def test_attention_is_softmax_over_the_past_and_the_token_itself(scale: float, own: float) -> None:
    query, past_k = RANDOM.standard_normal((2, 3, 8)), RANDOM.standard_normal((2, 8, 5)) * scale
    past_v, v = RANDOM.standard_normal((2, 5, 8)), RANDOM.standard_normal((2, 1, 8))
    k = own * query[:, :1].swapaxes(1, 2)
    mask = np.array([[0, 0, -1e9, 0, 0]])
    scores = np.concatenate([query @ past_k + mask, query @ k], axis=-1)
    expected = softmax(scores, axis=-1) @ np.concatenate([past_v, v], axis=1)

    current = decoder.Cached(jnp.asarray(k), jnp.asarray(v))
    past = decoder.Cached(jnp.asarray(past_k), jnp.asarray(past_v))
    found = decoder.attend(jnp.asarray(query), current, past, jnp.asarray(mask))

    np.testing.assert_allclose(found, expected.reshape(1, 1, -1), rtol=1e-3, atol=1e-4)
