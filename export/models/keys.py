"""What every architecture's file reads alike: its keys, checked, and a plain decoder of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from export.errors import ExportError
from export.gguf.dense import dense
from export.gguf.reader import GgufFile
from export.models.config import PRE_NORMS, PROJECTIONS, DecoderConfig, Rope, Sliding

_ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True)
class Keys:
    """The keys of a file that begin with its architecture's name.

    Every reader raises ExportError where a key is missing without a default, of another type, or
    not positive.
    """

    gguf: GgufFile
    architecture: str

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.gguf.integer(f"{self.architecture}.{key}", default)
        self._require_positive(key, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self.gguf.number(f"{self.architecture}.{key}", default)
        self._require_positive(key, value)
        return value

    def cap(self, key: str, default: float = 0.0) -> float | None:
        """A soft cap; None where it is 0."""
        value = self.gguf.number(f"{self.architecture}.{key}", default)
        if value:
            self._require_positive(key, value)
        return value or None

    def biases(self, names: tuple[str, ...] = PROJECTIONS) -> tuple[str, ...]:
        """Those of the projections that have a bias in the first layer."""
        return tuple(name for name in names if f"blk.0.{name}.bias" in self.gguf.tensors)

    def plain_decoder(
        self, *, rms_epsilon: float | None = None, rope_base: float = 10_000.0
    ) -> DecoderConfig:
        """A decoder with norms before attention and feed-forward, and a SiLU gate; no more.

        rms_epsilon, rope_base: where the file has no such key; the default base is llama.cpp's.
        """
        hidden_size, heads = self.size("embedding_length"), self.size("attention.head_count")
        kv_heads = self.size("attention.head_count_kv", heads)
        head_dim = self.size("attention.key_length", hidden_size // heads)
        self._check_heads(heads, kv_heads, head_dim)
        layers = self.size("block_count")
        if layers > len(self.gguf.tensors):
            raise ExportError(
                f"{self.gguf.path}: {self.architecture}.block_count is {layers}, but the file has "
                f"{len(self.gguf.tensors)} tensors"
            )
        return DecoderConfig(
            architecture=self.architecture,
            layers=layers,
            hidden_size=hidden_size,
            ffn_size=self.size("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocabulary=self.gguf.tensor("token_embd.weight").shape[0],
            context_length=self.size("context_length"),
            rms_epsilon=self.number("attention.layer_norm_rms_epsilon", rms_epsilon),
            norms=PRE_NORMS,
            biases=(),
            own_head="output.weight" in self.gguf.tensors,
            gate="silu",
            rope=self._rope(rope_base, head_dim),
            rope_pairs="halves",
            sliding=None,
            embedding_scale=1.0,
            query_scale=1 / math.sqrt(head_dim),
            score_cap=None,
            logit_cap=None,
        )

    def sliding(self, layers: int, window: int, pattern: int, rope: Rope) -> Sliding | None:
        """Which layers slide: by a flag each, or all but every n-th; None where none does.

        pattern: n, where the file has no such key.
        """
        key = "attention.sliding_window_pattern"
        flags = self.gguf.metadata.get(f"{self.architecture}.{key}")
        if isinstance(flags, np.ndarray):
            if len(flags) < layers:
                raise ExportError(
                    f"{self.gguf.path}: {self.architecture}.{key} has {len(flags)} flags for "
                    f"{layers} layers"
                )
            slides = tuple(flags.astype(bool).tolist()[:layers])
        else:
            every = self.size(key, pattern)
            slides = tuple(layer % every != every - 1 for layer in range(layers))
        return Sliding(window=window, layers=slides, rope=rope) if any(slides) else None

    def _rope(self, base: float, head_dim: int) -> Rope:
        """The angles of global layers. Raises ExportError for a scaling that is not known."""
        # As llama.cpp has it: linear where no type is named; the old key where the new is absent.
        kind = self.gguf.string(f"{self.architecture}.rope.scaling.type", "linear")
        if kind not in ("none", "linear"):
            raise self._unsupported(
                f"rope scaling {kind!r}", "'linear', and Llama 3's factors, are"
            )
        if self.number("rope.scaling.attn_factor", 1.0) != 1.0:
            raise self._unsupported("rope.scaling.attn_factor", "angles alone are scaled")
        rotated = self.size("rope.dimension_count", head_dim)
        if rotated != head_dim:
            raise self._unsupported(f"{rotated} rotated values of heads of {head_dim}", "all are")
        scale = 1.0
        if kind == "linear":
            scale = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        factors: tuple[float, ...] = ()
        if _ROPE_FACTORS in self.gguf.tensors:
            factors = self._factors(head_dim)
        return Rope(base=self.number("rope.freq_base", base), scale=scale, factors=factors)

    def _factors(self, head_dim: int) -> tuple[float, ...]:
        tensor = self.gguf.tensor(_ROPE_FACTORS)
        if tensor.shape != (head_dim // 2,):
            raise ExportError(
                f"{self.gguf.path}: {_ROPE_FACTORS}: shape {tensor.shape}; "
                f"({head_dim // 2},) was expected, half a head"
            )
        factors: list[float] = dense(tensor).tolist()
        if min(factors) <= 0:
            raise ExportError(f"{self.gguf.path}: {_ROPE_FACTORS} holds {min(factors)}, not > 0")
        return tuple(factors)

    def _check_heads(self, heads: int, kv_heads: int, head_dim: int) -> None:
        if heads % kv_heads:
            raise ExportError(
                f"{self.gguf.path}: {heads} heads do not share {kv_heads} K/V heads evenly"
            )
        if head_dim % 2:
            raise ExportError(
                f"{self.gguf.path}: heads of {head_dim} values cannot be rotated in halves"
            )
        value_dim = self.size("attention.value_length", head_dim)
        if value_dim != head_dim:
            raise self._unsupported(
                f"values of {value_dim} beside keys of {head_dim}", "one size is"
            )

    def _unsupported(self, what: str, instead: str) -> ExportError:
        return ExportError(f"{self.gguf.path}: {what}: not supported; {instead}")

    def _require_positive(self, key: str, value: float) -> None:
        if value <= 0:
            raise ExportError(
                f"{self.gguf.path}: {self.architecture}.{key} is {value}; it must be positive"
            )
