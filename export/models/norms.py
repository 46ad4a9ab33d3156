"""The residual stream and the norms around it, wide where they would lose bits that count.

On the NPU a norm in bf16 takes no time of its own, and an island of float32 is a task of the
RISC-V core that the rest of a layer waits for. So a norm is an island where its rounding reaches
everything after it, which is at the residual stream; where another norm follows before the stream,
bf16 does. The inverse root has a correction of its own there: its error is common to all values
of a vector, and adds up where that of each value averages out. The simulator's root in bf16 is off
by 2^-6.9 at most and 2^-8.2 in the mean square, the corrected one by 2^-9.1 and 2^-11 (measured on
normal vectors of 256 to 640 values).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from export.models.broadcast import across, along
from export.models.float32 import Array, inner, island, split, wide


class Stream(NamedTuple):
    """The residual stream, high + low, each [1, 1, hidden_size]; norms read high alone.

    In bf16 the two keep 16 bits of a sum that every layer adds to, where one would keep 8; in
    float32 low is as good as nothing. It is None before the first block.
    """

    high: jax.Array
    low: jax.Array | None = None


def _inverse_rms(x: jax.Array, epsilon: float) -> jax.Array:
    """1 / sqrt(mean(x^2) + epsilon) over the last axis, [..., 1], to the digits of its dtype."""
    return jax.lax.rsqrt(inner(x, x).astype(x.dtype) * (1 / x.shape[-1]) + epsilon)


def _factor(x: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """1 / sqrt(mean(x^2) + epsilon) over the last axis, [..., 1], as high + low.

    Were high exact, the squares of x * high and n * epsilon * high^2 would sum to n. What they sum
    to beyond that, in float32, is twice the relative error of high.
    """
    high = _inverse_rms(x, epsilon)
    size = x.shape[-1]
    # Two parts, for a size of more than 8 significant bits.
    whole = jnp.asarray([size - size % 128, size % 128], x.dtype)
    scaled = [x * along(high, x.shape), high * (size * epsilon) ** 0.5]
    left = jnp.concatenate([*scaled, across(whole, (*x.shape[:-1], 2))], axis=-1)
    minus = jnp.full((*x.shape[:-1], 2), -1, x.dtype)
    right = jnp.concatenate([*scaled, minus], axis=-1)
    return high, high * (inner(left, right).astype(x.dtype) * (-0.5 / size))


def _wide_norm(x: jax.Array, factor: tuple[jax.Array, jax.Array], weight: Array) -> jax.Array:
    return wide(x) * (wide(factor[0]) + wide(factor[1])) * wide(weight)


@island
def _norm(x: jax.Array, factor: tuple[jax.Array, jax.Array], weight: Array) -> jax.Array:
    return _wide_norm(x, factor, weight).astype(x.dtype)


@island
def _add_normed(
    stream: tuple[jax.Array, ...],
    branch: jax.Array,
    factor: tuple[jax.Array, jax.Array],
    weight: Array,
) -> tuple[jax.Array, jax.Array]:
    return split(sum(map(wide, stream), _wide_norm(branch, factor, weight)), branch.dtype)


def rms_norm(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight over the last axis; GGUF stores 1 + w.

    An island, rounded once at its end.
    """
    return _norm(x, _factor(x, epsilon), weight)


def head_norm(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """`rms_norm` of each head, [heads, head_dim], in bf16 but for the root."""
    high, low = (along(part, x.shape) for part in _factor(x, epsilon))
    weighted = x * across(weight, x.shape)
    return weighted * high + weighted * low


def branch_norm(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """`rms_norm` in bf16 throughout, for a branch that is normed again before it is added.

    The error of the root scales the whole branch, and the norm at its end takes it out.
    """
    return x * across(weight, x.shape) * along(_inverse_rms(x, epsilon), x.shape)


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
