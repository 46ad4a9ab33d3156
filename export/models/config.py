"""The hyperparameters of a decoder, read once from a checkpoint and passed down."""

from __future__ import annotations

from dataclasses import dataclass

PROJECTIONS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """What differs between checkpoints, and later between architectures, as data.

    architecture: as in general.architecture.
    context_length: positions that the model was trained for.
    window: positions that a sliding layer attends to, the current one included.
    window_pattern: every pattern-th layer is global, the others slide.
    rope_base, rope_scale: of global layers; angles are divided by rope_scale.
    rope_base_sliding: of sliding layers, which are never scaled.
    embedding_scale: what a token's embedding is multiplied by on the way in.
    query_scale: what queries are multiplied by before the scores.
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
    window: int
    window_pattern: int
    rope_base: float
    rope_base_sliding: float
    rope_scale: float
    embedding_scale: float
    query_scale: float

    def is_sliding(self, layer: int) -> bool:
        """Whether a layer attends to the window only."""
        return layer % self.window_pattern != self.window_pattern - 1

    def kind(self, layer: int) -> str:
        """The kind of a layer, "Sliding" or "Global": the suffix of its kind's ports."""
        return "Sliding" if self.is_sliding(layer) else "Global"

    def matrix_shapes(self, layer: int) -> dict[str, tuple[int, int]]:
        """The projections of one layer by GGUF tensor name, each with its shape (n, k)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = dict(
            zip(
                PROJECTIONS,
                (
                    (q, self.hidden_size),
                    (kv, self.hidden_size),
                    (kv, self.hidden_size),
                    (self.hidden_size, q),
                    (self.ffn_size, self.hidden_size),
                    (self.ffn_size, self.hidden_size),
                    (self.hidden_size, self.ffn_size),
                ),
                strict=True,
            )
        )
        return {f"blk.{layer}.{name}.weight": shape for name, shape in shapes.items()}

    def norm_sizes(self, layer: int) -> dict[str, int]:
        """The norm weights of one layer by GGUF tensor name, each with its size."""
        sizes = {
            "attn_norm": self.hidden_size,
            "attn_q_norm": self.head_dim,
            "attn_k_norm": self.head_dim,
            "post_attention_norm": self.hidden_size,
            "ffn_norm": self.hidden_size,
            "post_ffw_norm": self.hidden_size,
        }
        return {f"blk.{layer}.{name}.weight": size for name, size in sizes.items()}
