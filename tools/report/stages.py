"""What a model computes on texts at each stage of its export, and what its heads make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from export.models import decoder, sequence
from export.models.config import DecoderConfig
from export.models.decoder import Projection, Weights
from export.models.sequence import SequenceResult
from export.trace.packing import HEAD

BF16 = np.dtype(ml_dtypes.bfloat16)

# [positions, hidden_size] to float32 [positions, vocabulary].
HeadFunction = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage of the body: by text what its layers gave.

    weights: dense matrices [k, n] and vectors, of the dtype of the arithmetic.
    """

    name: str
    weights: Weights
    results: tuple[SequenceResult, ...]

    def hidden(self, text: int) -> np.ndarray:
        """float32 [positions, hidden_size]."""
        return np.asarray(self.results[text].hidden, np.float32)


def run_stage(
    name: str, config: DecoderConfig, weights: Weights, texts: Sequence[np.ndarray], dtype: np.dtype
) -> Stage:
    """Runs every text, as scaled embeddings float32 [positions, hidden_size], in one dtype."""
    cast = jax.tree.map(lambda value: jnp.asarray(value, dtype), body(weights))
    results = tuple(sequence.run(config, cast, text.astype(dtype)) for text in texts)
    return Stage(name, cast, results)


def body(weights: Weights) -> Weights:
    """The weights without the head."""
    matrices = {name: value for name, value in weights.matrices.items() if name != HEAD}
    return Weights(matrices, weights.vectors)


def dequantised(
    matrices: Mapping[str, tuple[Projection, ...]], dtype: np.dtype
) -> dict[str, np.ndarray]:
    """Packed matrices as dense ones [k, n], every operation rounded to a dtype as the NPU's are."""
    return {
        name: np.concatenate([decoder.dequantise(part, dtype) for part in parts], axis=-1)
        for name, parts in matrices.items()
    }


def exact_head(matrix: np.ndarray, cap: float | None) -> HeadFunction:
    """float32 arithmetic with a head [k, vocabulary]."""
    weights = jnp.asarray(matrix, jnp.float32)

    def logits(hidden: np.ndarray) -> np.ndarray:
        found = np.asarray(jnp.asarray(hidden, jnp.float32) @ weights)
        return found if cap is None else np.asarray(cap * np.tanh(found / cap))

    return logits


def device_head(matrix: np.ndarray, cap: float | None) -> HeadFunction:
    """The program's head [k, vocabulary] of bf16 values as the NPU runs it.

    Sums are wide, results bf16; without what the export took off.
    """
    wide = exact_head(matrix.astype(np.float32), None)

    def logits(hidden: np.ndarray) -> np.ndarray:
        found = wide(hidden).astype(BF16)
        if cap is not None:
            found = (BF16.type(cap) * np.tanh(found / BF16.type(cap))).astype(BF16)
        return found.astype(np.float32)

    return logits
