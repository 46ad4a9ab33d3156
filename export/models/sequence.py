"""A decoder's step at every position of a text at once, to measure what a step would compute.

The blocks are those of `decoder.py`, mapped over positions: each position sees the rows of those
before it, as it would in the cache. Nothing here is compiled for the NPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from export.models import decoder
from export.models.config import DecoderConfig
from export.models.decoder import Cached, LayerKind, Matrix, RopeRow, Weights
from export.models.norms import Array, Stream

# What a masked row's score is lowered by: as runtime/positions.py has it.
_MASKED = -1e9


@dataclass(frozen=True, eq=False)
class SequenceResult:
    """hidden [positions, hidden_size]; k, v: per layer [positions, kv_heads * head_dim]."""

    hidden: jax.Array
    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]


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


def run_layer(
    config: DecoderConfig, weights: Weights, x: Stream, kind: LayerKind
) -> tuple[Stream, Cached]:
    """One block at every position.

    weights: as `layer_weights` names them. x: parts of [positions, 1, 1, hidden_size].

    Returns x after it, and the rows as a cache: K [kv_heads, head_dim, positions], V [kv_heads,
    positions, head_dim].
    """

    def first(x: Stream, rope: RopeRow) -> tuple[jax.Array, Cached]:
        return decoder.heads(config, weights, "blk", x, rope)

    def second(x: Stream, query: jax.Array, row: Cached, mask: jax.Array) -> Stream:
        return decoder.rest(config, weights, "blk", x, query, row, past, mask)

    query, rows = jax.vmap(first)(x, kind.rope)
    past = Cached(jnp.moveaxis(rows.k[..., 0], 0, -1), jnp.moveaxis(rows.v[..., 0, :], 0, 1))
    return jax.vmap(second)(x, query, rows, kind.mask), past


# Without the option XLA leaves out roundings to bf16 between operations that it fuses.
_run_layer = jax.jit(
    run_layer, static_argnums=0, compiler_options={"xla_allow_excess_precision": False}
)
_output_norm = jax.jit(
    decoder.output_norm, static_argnums=0, compiler_options={"xla_allow_excess_precision": False}
)


def run(config: DecoderConfig, weights: Weights, embedded: np.ndarray) -> SequenceResult:
    """What the step computes at each position of a text, but for the logits.

    embedded: [positions, hidden_size], scaled; its dtype, float32 or bfloat16, is that of the
        arithmetic, which rounds after every operation as the NPU's does.
    """
    x = Stream(jnp.asarray(embedded)[:, None, None])
    shared = kinds(config, len(embedded), x.high.dtype)
    k, v = [], []
    for layer in range(config.layers):
        own = layer_weights(weights, layer)
        x, past = _run_layer(config, own, x, shared[config.kind(layer)])
        k.append(jnp.moveaxis(past.k, -1, 0).reshape(len(embedded), -1))
        v.append(jnp.moveaxis(past.v, 1, 0).reshape(len(embedded), -1))
    hidden = _output_norm(config, Weights({}, weights.vectors), x)
    return SequenceResult(hidden[:, 0, 0], tuple(k), tuple(v))
