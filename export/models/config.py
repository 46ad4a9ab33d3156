"""The hyperparameters of a decoder, read once from a checkpoint and passed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROJECTIONS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)

# Norms of a layer by GGUF name, which says where they stand: before attention and feed-forward,
# after them and before the residual is added, and on the heads of Q and K before RoPE.
PRE_NORMS = ("attn_norm", "ffn_norm")
POST_NORMS = ("post_attention_norm", "post_ffw_norm")
HEAD_NORMS = ("attn_q_norm", "attn_k_norm")


@dataclass(frozen=True, kw_only=True)
class Rope:
    """The angles of a rotary position embedding.

    base, scale: angle i of position p is p * base^(-2i / head_dim) / scale.
    factors: [head_dim / 2] divisors besides, as Llama 3's scaling has them; () for none.
    """

    base: float
    scale: float = 1.0
    factors: tuple[float, ...] = ()

    def frequencies(self, head_dim: int) -> tuple[float, ...]:
        """The angles of position 1, in radians, [head_dim / 2]."""
        plain = [self.base ** (-2 * i / head_dim) / self.scale for i in range(head_dim // 2)]
        factors = self.factors or (1.0,) * len(plain)
        return tuple(angle / factor for angle, factor in zip(plain, factors, strict=True))


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """The layers that attend to a window.

    window: positions that they see, the current one included.
    layers: for every layer of the model whether it slides; one at least does.
    """

    window: int
    layers: tuple[bool, ...]
    rope: Rope


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """What differs between decoders, as data.

    architecture: as in general.architecture.
    context_length: positions that the model was trained for.
    norms: of each layer, by GGUF name: some of PRE_NORMS, POST_NORMS, HEAD_NORMS.
    biases: the projections that have one.
    own_head: whether the head is a matrix of its own, and not the embedding.
    gate: what the feed-forward's gate goes through; "gelu" is its tanh form.
    rope: of layers that see the whole context.
    rope_pairs: which values of a head are rotated together in the file: those half a head apart,
        or neighbours. The step rotates halves; rows of Q and K are reordered at load.
    sliding: None where every layer sees the whole context.
    embedding_scale: what a token's embedding is multiplied by on the way in.
    query_scale: what queries are multiplied by before the scores.
    score_cap, logit_cap: x becomes cap * tanh(x / cap), of attention scores and of logits; None
        for no cap.
    """

    architecture: str
    layers: int
    hidden_size: int
    ffn_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_length: int
    rms_epsilon: float
    norms: tuple[str, ...]
    biases: tuple[str, ...]
    own_head: bool
    gate: Literal["silu", "gelu"]
    rope: Rope
    rope_pairs: Literal["halves", "neighbours"]
    sliding: Sliding | None
    embedding_scale: float
    query_scale: float
    score_cap: float | None
    logit_cap: float | None

    def kind(self, layer: int) -> str:
        """The kind of a layer, "Sliding" or "Global": the suffix of its kind's ports."""
        return "Sliding" if self.sliding and self.sliding.layers[layer] else "Global"

    @property
    def head(self) -> str:
        """The tensor that holds the head."""
        return "output.weight" if self.own_head else "token_embd.weight"

    def matrix_shapes(self, layer: int) -> dict[str, tuple[int, int]]:
        """The projections of one layer by GGUF tensor name, each with its shape (n, k)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        hidden, ffn = self.hidden_size, self.ffn_size
        attention = ((q, hidden), (kv, hidden), (kv, hidden), (hidden, q))
        sizes = (*attention, (ffn, hidden), (ffn, hidden), (hidden, ffn))
        names = [f"blk.{layer}.{name}.weight" for name in PROJECTIONS]
        return dict(zip(names, sizes, strict=True))

    def vector_sizes(self, layer: int) -> dict[str, int]:
        """The norm weights and biases of one layer by GGUF tensor name, each with its size."""
        norms = {
            f"blk.{layer}.{name}.weight": self.head_dim if name in HEAD_NORMS else self.hidden_size
            for name in self.norms
        }
        outputs = {
            name.removesuffix(".weight"): n for name, (n, _) in self.matrix_shapes(layer).items()
        }
        biases = (f"blk.{layer}.{name}" for name in self.biases)
        return norms | {f"{name}.bias": outputs[name] for name in biases}
