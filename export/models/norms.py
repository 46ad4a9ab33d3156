"""The residual stream and the norms around it, with as much precision as each needs in bf16.

What a rounding costs, measured on Gemma 3 270M over 1,703 positions as the mean cosine to float32
of the worst layer's V (its K), weights of bf16 in both: 0.99972 (0.99983) with everything in bf16;
0.99975 (0.99987) with a stream of two parts; 0.99979 (0.99989) with scores in float32 as well;
0.99983 (0.99991) with the norm of keys; 0.99986 (0.99992) with that of attention's branch, added to
the stream in one island. With the NPU's own bf16 unpacking of weights the last is 0.99982
(0.99989), the one before 0.99979. All norms so would be 0.99989 (0.99994), but the NPU has float32
in its RISC-V core alone, by software: a key has 256 values, a branch 640.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from export.models.float32 import island, split, square_sum, wide

Array = jax.Array | np.ndarray


class Stream(NamedTuple):
    """The residual stream, high + low, each [1, 1, hidden_size]; norms read high alone.

    In bf16 the two keep 16 bits of a sum that every layer adds to, where one would keep 8; in
    float32 low is as good as nothing. It is None before the first block.
    """

    high: jax.Array
    low: jax.Array | None = None


class _Norm(NamedTuple):
    """What is constant in a norm: the size of the normed axis, epsilon, and the dtype around."""

    size: int
    epsilon: float
    dtype: np.dtype


@island
def _inverse_rms(square: jax.Array, constants: _Norm) -> tuple[jax.Array, jax.Array]:
    inverse = jax.lax.rsqrt(square / constants.size + constants.epsilon)
    return split(inverse, constants.dtype)


def _normed(x: jax.Array, factor: tuple[jax.Array, jax.Array], weight: Array) -> jax.Array:
    return wide(x) * (wide(factor[0]) + wide(factor[1])) * wide(weight)


@island
def _norm(x: jax.Array, factor: tuple[jax.Array, jax.Array], weight: Array) -> jax.Array:
    return _normed(x, factor, weight).astype(x.dtype)


@island
def _add_normed(
    stream: tuple[jax.Array, ...],
    branch: jax.Array,
    factor: tuple[jax.Array, jax.Array],
    weight: Array,
) -> tuple[jax.Array, jax.Array]:
    return split(sum(map(wide, stream), _normed(branch, factor, weight)), branch.dtype)


def _factor(x: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """1 / sqrt(mean(x^2) + epsilon) over the last axis, [..., 1], as high + low."""
    return _inverse_rms(square_sum(x), constants=_Norm(x.shape[-1], epsilon, x.dtype))


def rms_norm(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight over the last axis; GGUF stores 1 + w."""
    # A bf16 sum keeps its accuracy on the NPU, which accumulates wide (tests/torq measures it).
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(square / x.shape[-1] + epsilon) * weight


def rms_norm_wide(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """`rms_norm` with one rounding, at its end; slow on the NPU's RISC-V core, so for few values.

    That of the keys is one: the rounding of a key is one of every later score.
    """
    return _norm(x, _factor(x, epsilon), weight)


def add_normed(x: Stream, branch: jax.Array, weight: Array, epsilon: float) -> Stream:
    """The stream with the norm of a branch added, in one island."""
    parts = tuple(part for part in x if part is not None)
    return Stream(*_add_normed(parts, branch, _factor(branch, epsilon), weight))


def add(x: Stream, branch: jax.Array) -> Stream:
    """The stream with a branch added: what the sum's rounding leaves out is its low part.

    The six operations give that rounding error exactly (Knuth, TAOCP 4.2.2, theorem B).
    """
    step = branch if x.low is None else branch + x.low
    high = x.high + step
    moved = high - x.high
    return Stream(high, (x.high - (high - moved)) + (step - moved))
