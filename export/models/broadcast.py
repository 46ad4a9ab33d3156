"""Broadcasts that add an axis, as torq-compile has them on the NPU.

One that stretches an axis of size 1 is a task of the NPU's RISC-V core (measured on the compiler's
timeline), and that is what jax.numpy makes of `x[..., :1] * y`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from export.models.float32 import Array


def across(row: Array, shape: Sequence[int]) -> jax.Array:
    """One row, [..., n] with nothing but 1 before n, as every row of shape [..., n]."""
    values = jnp.asarray(row).reshape(shape[-1])
    return jax.lax.broadcast_in_dim(values, tuple(shape), (len(shape) - 1,))


def along(column: Array, shape: Sequence[int]) -> jax.Array:
    """A value for each row, [..., 1], as all of that row in shape [..., n]."""
    values = jnp.asarray(column).reshape(shape[:-1])
    return jax.lax.broadcast_in_dim(values, tuple(shape), tuple(range(len(shape) - 1)))
