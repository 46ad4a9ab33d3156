"""One decode step of a decoder-only transformer, position-independent, in JAX.

The step takes the embedding of one token and a cache of fixed size, and returns the logits, the
final hidden state and this token's K and V rows. Nothing in it depends on the position: RoPE rows
and additive masks come in as ports, so that one compiled program serves a whole conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from export.models.broadcast import across, along
from export.models.config import DecoderConfig
from export.models.float32 import Array, island, wide
from export.models.float32 import matmul as wide_matmul
from export.models.norms import Stream, add, add_normed, branch_norm, head_norm, rms_norm


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
    parts = [x @ dequantise(part, x.dtype) for part in matrix]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def dequantise(part: Projection, dtype: jnp.dtype) -> jax.Array:
    """A packed matrix as a dense one [k, n], every operation in one dtype."""
    wide = jnp.asarray(part.q, dtype)
    if part.zero_point is not None:
        wide = wide - jnp.asarray(part.zero_point, dtype)
    wide = wide * jnp.asarray(part.scale, dtype)
    return wide.reshape(-1, wide.shape[-1])


def rotate(x: jax.Array, rope: RopeRow) -> jax.Array:
    """RoPE on x [heads, head_dim], the halves paired (NEOX order)."""
    low, high = jnp.split(x, 2, axis=-1)
    cos, sin = across(rope.cos, low.shape), across(rope.sin, low.shape)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


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


@island
def _below_top(
    scores: jax.Array, mask: jax.Array | None, top: jax.Array, constants: float | None
) -> jax.Array:
    capped = soft_cap(scores, constants)
    masked = capped if mask is None else capped + wide(mask)
    return (masked - wide(top)).astype(top.dtype)


def _own_below_top(query: jax.Array, key: jax.Array, top: jax.Array) -> jax.Array:
    """The token's own score less top, [kv_heads, group, 1], the difference float32 in a matmul."""
    minus = jnp.full((*key.shape[:-2], 1, 1), -1, key.dtype)
    extended = jnp.concatenate([query, top], axis=-1), jnp.concatenate([key, minus], axis=-2)
    return wide_matmul(*extended).astype(top.dtype)


def _inverse(x: jax.Array) -> jax.Array:
    """1 / x of positive values: the NPU has an inverse root, and no division."""
    return jax.lax.rsqrt(x * x)


def attend(
    query: jax.Array, current: Cached, past: Cached, mask: jax.Array, cap: float | None = None
) -> jax.Array:
    """Softmax attention of one token over its past and itself, in two parts.

    The past and the current row are never concatenated: that would copy the whole cache.

    query: [kv_heads, group, head_dim], already scaled. Returns [1, 1, heads * head_dim].
    cap: a soft cap of the scores.
    """
    dtype, shape = query.dtype, query.shape
    past_scores, own_score = wide_matmul(query, past.k), wide_matmul(query, current.k)
    # Any number near the highest score will do: softmax does not change with what is subtracted.
    hidden = across(mask, past_scores.shape)
    highest = (soft_cap(past_scores.astype(dtype), cap) + hidden).max(axis=-1, keepdims=True)
    top = jnp.maximum(highest, soft_cap(own_score.astype(dtype), cap))
    weights = jnp.exp(_below_top(past_scores, mask, top, constants=cap))
    if cap is None:
        own_weight = jnp.exp(_own_below_top(query, current.k, top))
    else:
        own_weight = jnp.exp(_below_top(own_score, None, top, constants=cap))
    total = weights.sum(axis=-1, keepdims=True) + own_weight
    value = jax.lax.broadcast_in_dim(current.v[:, 0], shape, (0, 2))
    # Summed in float32: torq-compile takes a bf16 product of one KV head, with what is added to
    # it, for a layer and its bias, and either fails or makes wrong values of it.
    past_value = wide_matmul(weights, past.v).astype(dtype)
    summed = past_value + along(own_weight, shape) * value
    return (summed * along(_inverse(total), shape)).reshape(1, 1, -1)


def _projected(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """A projection by the name of its tensors, and its bias where it has one."""
    with jax.named_scope(name.rsplit(".", 1)[1]):
        result = project(x, weights.matrices[f"{name}.weight"])
        bias = weights.vectors.get(f"{name}.bias")
        return result if bias is None else result + bias


# A norm's function: of values, weight and epsilon.
_Norm = Callable[[jax.Array, Array, float], jax.Array]


def _normed(
    config: DecoderConfig, weights: Weights, name: str, x: jax.Array, norm: _Norm = rms_norm
) -> jax.Array:
    """A norm by the name of its tensor; x itself where the decoder has no such norm."""
    weight = weights.vectors.get(f"{name}.weight")
    if weight is None:
        return x
    with jax.named_scope(name.rsplit(".", 1)[1]):
        return norm(x, weight, config.rms_epsilon)


def _branch_norm(config: DecoderConfig, after: str) -> _Norm:
    """The norm at a branch's beginning, by the name of the one at its end if it has that."""
    return branch_norm if after in config.norms else rms_norm


def _added(
    config: DecoderConfig, weights: Weights, name: str, stream: Stream, branch: jax.Array
) -> Stream:
    """The stream with a branch added, normed first where the decoder has a norm of that name."""
    weight = weights.vectors.get(f"{name}.weight")
    if weight is None:
        return add(stream, branch)
    with jax.named_scope(name.rsplit(".", 1)[1]):
        return add_normed(stream, branch, weight, config.rms_epsilon)


def heads(
    config: DecoderConfig, weights: Weights, name: str, stream: Stream, rope: RopeRow
) -> tuple[jax.Array, Cached]:
    """The first half of a block: what attention compares, of the residual stream.

    name: the beginning of the block's tensors' names, such as "blk.3".

    Returns scaled queries [kv_heads, group, head_dim], and the current token's K and V.
    """
    norm = _branch_norm(config, "post_attention_norm")
    x = _normed(config, weights, f"{name}.attn_norm", stream.high, norm)
    size = config.head_dim
    query = _projected(weights, f"{name}.attn_q", x).reshape(-1, size)
    key = _projected(weights, f"{name}.attn_k", x).reshape(-1, size)
    value = _projected(weights, f"{name}.attn_v", x).reshape(-1, 1, size)
    query = _normed(config, weights, f"{name}.attn_q_norm", query, head_norm)
    key = _normed(config, weights, f"{name}.attn_k_norm", key, head_norm)
    with jax.named_scope("rope"):
        query, key = rotate(query, rope), rotate(key, rope)
    if "attn_q_norm" not in config.norms:
        query = query * config.query_scale
    return query.reshape(config.kv_heads, -1, size), Cached(key[:, :, None], value)


def rest(
    config: DecoderConfig,
    weights: Weights,
    name: str,
    stream: Stream,
    query: jax.Array,
    row: Cached,
    past: Cached,
    mask: jax.Array,
) -> Stream:
    """The second half of a block: attention and feed-forward; returns the residual stream."""
    with jax.named_scope("attention"):
        hidden = attend(query, row, past, mask, config.score_cap)
    hidden = _projected(weights, f"{name}.attn_output", hidden)
    stream = _added(config, weights, f"{name}.post_attention_norm", stream, hidden)
    norm = _branch_norm(config, "post_ffw_norm")
    hidden = _normed(config, weights, f"{name}.ffn_norm", stream.high, norm)
    gate = _projected(weights, f"{name}.ffn_gate", hidden)
    up = _projected(weights, f"{name}.ffn_up", hidden)
    with jax.named_scope(config.gate):
        hidden = _GATES[config.gate](gate) * up
    hidden = _projected(weights, f"{name}.ffn_down", hidden)
    return _added(config, weights, f"{name}.post_ffw_norm", stream, hidden)


def output_norm(config: DecoderConfig, weights: Weights, stream: Stream) -> jax.Array:
    """The hidden state that the head reads, of the residual stream after the last block."""
    with jax.named_scope("output_norm"):
        return rms_norm(stream.high, weights.vectors["output_norm.weight"], config.rms_epsilon)


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
    stream = Stream(embedded)
    rows = []
    for layer, past in enumerate(cache):
        kind, name = kinds[config.kind(layer)], f"blk.{layer}"
        with jax.named_scope(name):
            query, row = heads(config, weights, name, stream, kind.rope)
            stream = rest(config, weights, name, stream, query, row, past, kind.mask)
        rows.append(row)
    hidden = output_norm(config, weights, stream)
    with jax.named_scope("output"):
        logits = soft_cap(project(hidden, weights.matrices["output.weight"]), config.logit_cap)
    return StepResult(logits, hidden, tuple(rows))
