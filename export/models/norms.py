"""The residual stream and the norms around it, float32 where they would lose bits that count.

The mean cosine to float32 of the worst layer's V (its K), measured on the report's texts with the
weights as the NPU unpacks them to bf16, with norms in bf16 but for that of the keys and that which
is added to the stream, and with all norms float32:

    Gemma 3 270M   0.99982 (0.99989)   0.99985 (0.99990)
    SmolLM2 135M   0.99970             0.99982 (0.99995)

A norm's multiplications run on the NPU's RISC-V core in either case (measured on torq-compile's
timeline); float32 costs a task more, the square root, and not one root for each value.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
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
    """Returns x / sqrt(mean(x^2) + epsilon) * weight over the last axis; GGUF stores 1 + w.

    Rounded once, at its end.
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
