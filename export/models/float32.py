"""Arithmetic that stays float32 where the rest of a step becomes bf16.

bf16 keeps 8 bits of a number. That is enough for weights and for what a matmul reads, but not for
what is added up over layers or goes into an exponential. Two things of a step stay float32 through
`export/passes/bf16.py`, and are nothing special on a CPU:

    islands, functions of elementwise operations: what comes in is widened, what goes out rounded
    matmuls of HIGHEST precision: their operands are bf16, their results float32

The NPU's matmul accumulates and can write float32; an island is one task of its RISC-V core.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray
_Taken = ParamSpec("_Taken")
_Given = TypeVar("_Given")

# The beginning of the name of an island's function in a traced module.
ISLAND = "float32_"


def island(function: Callable[_Taken, _Given]) -> Callable[_Taken, _Given]:
    """Makes a function of elementwise operations an island: one function of the traced module.

    It widens its arguments and rounds its results by itself (`wide`, and `astype`): a traced
    module is float32 throughout, where both say nothing. An argument named `constants`, if it has
    one, is hashable and no array.
    """
    function.__name__ = ISLAND + function.__name__.lstrip("_")
    static = {"constants"} & set(inspect.signature(function).parameters)
    return jax.jit(function, static_argnames=tuple(static))


def wide(x: Array) -> jax.Array:
    """The values as float32."""
    return jnp.asarray(x, jnp.float32)


def split(x: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Inside an island: float32 values as high + low of a narrower dtype; low is 0 of float32."""
    kind = jnp.finfo(dtype)  # type: ignore[no-untyped-call]
    high = jax.lax.reduce_precision(x, kind.nexp, kind.nmant)
    return high.astype(dtype), (x - high).astype(dtype)


def matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    """x [..., m, k] times y [..., k, n] with a float32 result, whatever the operands' dtype."""
    return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)


def inner(x: jax.Array, y: jax.Array) -> jax.Array:
    """float32 [..., 1]: the sum of the products over the last axis of two [..., n]."""
    size = x.shape[-1]
    return matmul(x.reshape(-1, 1, size), y.reshape(-1, size, 1)).reshape(*x.shape[:-1], 1)
