"""One decode step of a decoder-only transformer, position-independent, in JAX.

The step takes the embedding of one token and a cache of fixed size, and returns the logits, the
final hidden state and this token's K and V rows. Nothing in it depends on the position: RoPE rows
and additive masks come in as ports, so that one compiled program serves a whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from export.models.config import DecoderConfig

Array = jax.Array | np.ndarray


class Projection(NamedTuple):
    """A block-quantised matrix [k, n] with w = (q - zero_point) * scale, as ports of the trace.

    q: [k / block, block, n] int8 or int4
    scale: [k / block, 1, n] bfloat16
    zero_point: [k / block, 1, n] bfloat16, or None where it is 0 everywhere
    """

    q: Array
    scale: Array
    zero_point: Array | None


class Cached(NamedTuple):
    """One layer's K and V: of the past (a port), or of the current token (a result).

    k: [kv_heads, head_dim, positions]; transposed, so that the scores are one plain matmul.
    v: [kv_heads, positions, head_dim]
    """

    k: jax.Array
    v: jax.Array


class RopeRow(NamedTuple):
    """cos and sin of the current position's angles, each [1, head_dim / 2]."""

    cos: jax.Array
    sin: jax.Array


class LayerKind(NamedTuple):
    """What layers of one kind (global, sliding) share in a step.

    rope: the RoPE row of the kind's angles.
    mask: [1, past] added to the scores of the past; 0 where attended, very negative where not.
    """

    rope: RopeRow
    mask: jax.Array


class StepResult(NamedTuple):
    """What a step returns.

    logits: [1, 1, vocabulary]
    hidden: [1, 1, hidden_size], after the output norm
    rows: per layer the current token's K [kv_heads, head_dim, 1] and V [kv_heads, 1, head_dim]
    """

    logits: jax.Array
    hidden: jax.Array
    rows: tuple[Cached, ...]


# A matrix [k, n]: dense, or packed as its parts by columns.
Matrix = tuple[Projection, ...] | Array


class Weights(NamedTuple):
    """What a step multiplies by, by GGUF tensor name.

    matrices: the projections, and the head as `output.weight`.
    vectors: [size], the weights of norms and the biases; that of a query norm includes the query
        scale.
    """

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Array]


def project(x: jax.Array, matrix: Matrix) -> jax.Array:
    """Multiplies x [..., k] by a matrix [k, n]: packed, and dequantised here, or dense."""
    if not isinstance(matrix, tuple):
        return x @ matrix
    parts = [x @ _dequantise(part, x.dtype) for part in matrix]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def _dequantise(part: Projection, dtype: jnp.dtype) -> jax.Array:
    wide = jnp.asarray(part.q, dtype)
    if part.zero_point is not None:
        wide = wide - jnp.asarray(part.zero_point, dtype)
    wide = wide * jnp.asarray(part.scale, dtype)
    return wide.reshape(-1, wide.shape[-1])


def rms_norm(x: jax.Array, weight: Array, epsilon: float) -> jax.Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight over the last axis; GGUF stores 1 + w."""
    # A bf16 sum keeps its accuracy on the NPU, which accumulates wide (tests/torq measures it).
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(square / x.shape[-1] + epsilon) * weight


def rotate(x: jax.Array, rope: RopeRow) -> jax.Array:
    """RoPE on x [heads, head_dim], the halves paired (NEOX order)."""
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [low * rope.cos - high * rope.sin, high * rope.cos + low * rope.sin], axis=-1
    )


def gelu_tanh(x: jax.Array) -> jax.Array:
    """GELU in its tanh form (Hendrycks and Gimpel 2016), inlined so that it stays one function."""
    return 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def silu(x: jax.Array) -> jax.Array:
    """x times its sigmoid, inlined so that it stays one function."""
    return x / (1 + jnp.exp(-x))


_GATES = {"gelu": gelu_tanh, "silu": silu}


def soft_cap(x: jax.Array, cap: float | None) -> jax.Array:
    """Keeps values within -cap and cap, smoothly; unchanged where there is no cap."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def attend(
    query: jax.Array, current: Cached, past: Cached, mask: jax.Array, cap: float | None = None
) -> jax.Array:
    """Softmax attention of one token over its past and itself, in two parts.

    The past and the current row are never concatenated: that would copy the whole cache.

    query: [kv_heads, group, head_dim], already scaled. Returns [kv_heads, group, head_dim].
    cap: a soft cap of the scores.
    """
    past_scores = soft_cap(query @ past.k, cap) + mask
    own_score = soft_cap(query @ current.k, cap)
    top = jnp.maximum(past_scores.max(axis=-1, keepdims=True), own_score)
    past_weights = jnp.exp(past_scores - top)
    own_weight = jnp.exp(own_score - top)
    total = past_weights.sum(axis=-1, keepdims=True) + own_weight
    return (past_weights @ past.v + own_weight * current.v) / total


def _projected(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """A projection by the name of its tensors, and its bias where it has one."""
    with jax.named_scope(name.rsplit(".", 1)[1]):
        result = project(x, weights.matrices[f"{name}.weight"])
        bias = weights.vectors.get(f"{name}.bias")
        return result if bias is None else result + bias


def _normed(config: DecoderConfig, weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """A norm by the name of its tensor; x itself where the decoder has no such norm."""
    weight = weights.vectors.get(f"{name}.weight")
    if weight is None:
        return x
    with jax.named_scope(name.rsplit(".", 1)[1]):
        return rms_norm(x, weight, config.rms_epsilon)


def _heads(
    config: DecoderConfig, weights: Weights, name: str, x: jax.Array, rope: RopeRow
) -> tuple[jax.Array, Cached]:
    """Scaled queries [kv_heads, group, head_dim], and the current token's K and V."""
    size = config.head_dim
    query = _projected(weights, f"{name}.attn_q", x).reshape(-1, size)
    key = _projected(weights, f"{name}.attn_k", x).reshape(-1, size)
    value = _projected(weights, f"{name}.attn_v", x).reshape(-1, 1, size)
    query = _normed(config, weights, f"{name}.attn_q_norm", query)
    key = _normed(config, weights, f"{name}.attn_k_norm", key)
    with jax.named_scope("rope"):
        query, key = rotate(query, rope), rotate(key, rope)
    if "attn_q_norm" not in config.norms:
        query = query * config.query_scale
    return query.reshape(config.kv_heads, -1, size), Cached(key[:, :, None], value)


def _block(
    config: DecoderConfig,
    weights: Weights,
    name: str,
    x: jax.Array,
    kind: LayerKind,
    past: Cached,
) -> tuple[jax.Array, Cached]:
    """One transformer block; returns the residual stream and the current token's K and V."""
    hidden = _normed(config, weights, f"{name}.attn_norm", x)
    query, row = _heads(config, weights, name, hidden, kind.rope)
    with jax.named_scope("attention"):
        hidden = attend(query, row, past, kind.mask, config.score_cap).reshape(1, 1, -1)
    hidden = _projected(weights, f"{name}.attn_output", hidden)
    x = x + _normed(config, weights, f"{name}.post_attention_norm", hidden)
    hidden = _normed(config, weights, f"{name}.ffn_norm", x)
    gate = _projected(weights, f"{name}.ffn_gate", hidden)
    up = _projected(weights, f"{name}.ffn_up", hidden)
    with jax.named_scope(config.gate):
        hidden = _GATES[config.gate](gate) * up
    hidden = _projected(weights, f"{name}.ffn_down", hidden)
    return x + _normed(config, weights, f"{name}.post_ffw_norm", hidden), row


def step(
    config: DecoderConfig,
    weights: Weights,
    embedded: jax.Array,
    kinds: Mapping[str, LayerKind],
    cache: tuple[Cached, ...],
) -> StepResult:
    """One token through the decoder.

    embedded: [1, 1, hidden_size], already scaled by the model's embedding scale.
    kinds: "Global" and, where the model has such layers, "Sliding".
    cache: per layer the past.
    """
    x = embedded
    rows = []
    for layer, past in enumerate(cache):
        kind = kinds[config.kind(layer)]
        with jax.named_scope(f"blk.{layer}"):
            x, row = _block(config, weights, f"blk.{layer}", x, kind, past)
        rows.append(row)
    with jax.named_scope("output_norm"):
        hidden = rms_norm(x, weights.vectors["output_norm.weight"], config.rms_epsilon)
    with jax.named_scope("output"):
        logits = soft_cap(project(hidden, weights.matrices["output.weight"]), config.logit_cap)
    return StepResult(logits, hidden, tuple(rows))
