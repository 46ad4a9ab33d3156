"""What a position-independent step is told about the position: RoPE rows, masks and cache slots.

The cache of a kind of layer is a ring: position p is written to slot p % past. A global layer's
ring is the whole context, so it never comes around; a sliding layer's is its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Added to the score of a row that must not be attended to. Finite, because the NPU's bf16 would
# make NaN of the difference of two infinities; far below any score, so that its exp is 0.
MASKED = -1e9


@dataclass(frozen=True, kw_only=True)
class Rope:
    """A table of rotary angles, as the manifest describes it.

    name: the suffix of its ports.
    frequencies: the angles of position 1, in radians, [head_dim / 2].
    """

    name: str
    frequencies: Sequence[float]

    def row(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of a position's angles, each float32 [1, head_dim / 2]."""
        angle = position * np.asarray(self.frequencies, np.float64)
        return np.cos(angle)[None].astype(np.float32), np.sin(angle)[None].astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """One kind of layer, as the manifest describes it.

    name: "Global" or "Sliding", the suffix of its mask.
    past: rows of its caches.
    window: positions attended to, the current one included; None for all.
    rope: the name of its table.
    """

    name: str
    past: int
    window: int | None
    rope: str

    def slot(self, position: int) -> int:
        """The cache row that a position's K and V are written to."""
        return position % self.past

    def mask(self, position: int) -> np.ndarray:
        """float32 [1, past]: 0 for rows that the position attends to, MASKED for the others."""
        before = position - 1
        held = before - (before - np.arange(self.past)) % self.past
        visible = held >= 0
        if self.window is not None:
            visible &= position - held < self.window
        return np.where(visible, 0, MASKED).astype(np.float32)[None]
