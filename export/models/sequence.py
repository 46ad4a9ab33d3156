"""A decoder's step at every position of a text at once, to measure what a step would compute.

The blocks are those of `decoder.py`, mapped over positions: each position sees the rows of those
before it, as it would in the cache. Nothing here is compiled for the NPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from export.models import decoder
from export.models.config import DecoderConfig
from export.models.decoder import Cached, LayerKind, Matrix, RopeRow, Weights
from export.models.float32 import Array
from export.models.norms import Stream

# What a masked row's score is lowered by: as runtime/positions.py has it.
_MASKED = -1e9


@dataclass(frozen=True, eq=False)
class SequenceResult:
    """What a text gives.

    hidden: [positions, hidden_size]; k, v: per layer [positions, kv_heads * head_dim].
    inputs: [positions, k] of each matrix that was watched.
    """

    hidden: jax.Array
    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]
    inputs: Mapping[str, jax.Array]


def layer_weights(weights: Weights, layer: int) -> Weights:
    """The weights of one layer, by names without its number: `blk.attn_q.weight`."""
    start = f"blk.{layer}."

    def own(values: Mapping[str, Matrix | Array]) -> dict[str, Matrix | Array]:
        return {
            f"blk.{name.removeprefix(start)}": value
            for name, value in values.items()
            if name.startswith(start)
        }

    return Weights(own(weights.matrices), own(weights.vectors))  # type: ignore[arg-type]


def kinds(config: DecoderConfig, positions: int, dtype: jnp.dtype) -> dict[str, LayerKind]:
    """The kinds of layers of a text of so many positions.

    RoPE rows are [positions, 1, head_dim / 2]; masks [positions, 1, positions] hide a position's
    own row, which it gets by itself, and all later ones.
    """
    at = np.arange(positions)
    before = at[:, None] - at[None, :]
    out = {}
    for name in dict.fromkeys(config.kind(layer) for layer in range(config.layers)):
        sliding = config.sliding if name == "Sliding" else None
        rope, window = (sliding.rope, sliding.window) if sliding else (config.rope, positions)
        angle = at[:, None, None] * np.asarray(rope.frequencies(config.head_dim), np.float64)
        visible = (before > 0) & (before < window)
        mask = np.where(visible, 0, _MASKED)[:, None]
        row = RopeRow(jnp.asarray(np.cos(angle), dtype), jnp.asarray(np.sin(angle), dtype))
        out[name] = LayerKind(row, jnp.asarray(mask, dtype))
    return out


class _Watched:
    """A matrix that notes by name what it is multiplied from the left with."""

    def __init__(self, matrix: Array, name: str, seen: dict[str, jax.Array]) -> None:
        self._matrix, self._name, self._seen = matrix, name, seen

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        self._seen[self._name] = x.ravel()
        return x @ self._matrix


def run_layer(
    config: DecoderConfig,
    weights: Weights,
    x: Stream,
    kind: LayerKind,
    watch: tuple[str, ...] = (),
) -> tuple[Stream, Cached, dict[str, jax.Array]]:
    """One block at every position.

    weights: as `layer_weights` names them. x: parts of [positions, 1, 1, hidden_size].
    watch: names of dense matrices whose inputs are wanted.

    Returns x after it; the rows as a cache, K [kv_heads, head_dim, positions], V [kv_heads,
    positions, head_dim]; and the inputs [positions, k] by name.
    """

    def watched(seen: dict[str, jax.Array]) -> Weights:
        matrices: dict[str, Any] = dict(weights.matrices)
        for name in watch:
            matrices[name] = _Watched(matrices[name], name, seen)
        return Weights(matrices, weights.vectors)

    def first(x: Stream, rope: RopeRow) -> tuple[jax.Array, Cached, dict[str, jax.Array]]:
        seen: dict[str, jax.Array] = {}
        query, row = decoder.heads(config, watched(seen), "blk", x, rope)
        return query, row, seen

    def second(
        x: Stream, query: jax.Array, row: Cached, mask: jax.Array
    ) -> tuple[Stream, dict[str, jax.Array]]:
        seen: dict[str, jax.Array] = {}
        return decoder.rest(config, watched(seen), "blk", x, query, row, past, mask), seen

    query, rows, seen = jax.vmap(first)(x, kind.rope)
    past = Cached(jnp.moveaxis(rows.k[..., 0], 0, -1), jnp.moveaxis(rows.v[..., 0, :], 0, 1))
    x, seen_later = jax.vmap(second)(x, query, rows, kind.mask)
    return x, past, {**seen, **seen_later}


# Without the option XLA leaves out roundings to bf16 between operations that it fuses.
_run_layer = jax.jit(
    run_layer, static_argnums=(0, 4), compiler_options={"xla_allow_excess_precision": False}
)
_output_norm = jax.jit(
    decoder.output_norm, static_argnums=0, compiler_options={"xla_allow_excess_precision": False}
)


def run(
    config: DecoderConfig, weights: Weights, embedded: np.ndarray, watch: Sequence[str] = ()
) -> SequenceResult:
    """What the step computes at each position of a text, but for the logits.

    embedded: [positions, hidden_size], scaled; its dtype, float32 or bfloat16, is that of the
        arithmetic, which rounds after every operation as the NPU's does.
    watch: dense matrices whose inputs are wanted, such as "blk.3.attn_q".
    """
    x = Stream(jnp.asarray(embedded)[:, None, None])
    shared = kinds(config, len(embedded), x.high.dtype)
    k, v, inputs = [], [], {}
    for layer in range(config.layers):
        start = f"blk.{layer}."
        own = tuple(f"blk.{n.removeprefix(start)}.weight" for n in watch if n.startswith(start))
        x, past, seen = _run_layer(
            config, layer_weights(weights, layer), x, shared[config.kind(layer)], own
        )
        k.append(jnp.moveaxis(past.k, -1, 0).reshape(len(embedded), -1))
        v.append(jnp.moveaxis(past.v, 1, 0).reshape(len(embedded), -1))
        for name, given in seen.items():
            inputs[start + name.split(".")[1]] = given
    hidden = _output_norm(config, Weights({}, weights.vectors), x)[:, 0, 0]
    return SequenceResult(hidden, tuple(k), tuple(v), inputs)
