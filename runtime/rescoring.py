"""The exact logits of the most likely tokens, from the hidden state and the head's own rows.

A device's head may have 4 bits a weight, and its logits 8 bits of precision. Which tokens come near
the best it still knows, so the host computes those again: 64 rows of 640 values are 41 thousand
multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.embedding import EmbeddingRows

# Logits whose maximum is one number while the best are looked for.
_BLOCK = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
    """A head as the checkpoint has it.

    rows: its exact rows.
    mean: float32 [hidden_size], the row that the export took off every row of a device's head;
        None for none.
    cap: logits are cap * tanh(x / cap); None for no cap.
    candidates: how many of the best are worth computing again.
    """

    rows: EmbeddingRows
    mean: np.ndarray | None
    cap: float | None
    candidates: int

    @property
    def row_bytes(self) -> int:
        """The size of one exact row."""
        return int(self.rows.raw.shape[-1])

    def rescore(
        self,
        logits: np.ndarray,
        hidden: np.ndarray,
        candidates: int,
        allowed: np.ndarray | None = None,
    ) -> np.ndarray:
        """A step's logits float32 [vocabulary], the best of them exact.

        logits, hidden: as the step gave them, float32 [vocabulary] and [hidden_size].
        candidates: how many are computed again; 0 for none.
        allowed: bool [vocabulary], the tokens among which the best are looked for; None for all.

        Logits that hold NaN are returned as they are.
        """
        offset = 0.0 if self.mean is None else float(hidden @ self.mean)
        result = logits + np.float32(offset)
        if candidates and not np.isnan(logits).any():
            tokens = best(logits, candidates, allowed)
            exact = self.rows.rows(tokens) @ hidden
            result[tokens] = exact if self.cap is None else self.cap * np.tanh(exact / self.cap)
        return result


def best(logits: np.ndarray, count: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """The `count` most likely of the allowed tokens, in no order; all, where they are fewer.

    No more than `count` numbers are above the one that is `count`-th among the maxima of blocks: so
    few numbers are left to choose from, 25 times faster than among all of 262,144 (measured).
    """
    scores = logits if allowed is None else np.where(allowed, logits, -np.inf)
    tokens = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed)
    if count >= len(tokens):
        return tokens
    whole = len(scores) // _BLOCK * _BLOCK
    maxima = np.append(scores[:whole].reshape(-1, _BLOCK).max(axis=-1), scores[whole:])
    if count < len(maxima):
        bound = np.partition(maxima, len(maxima) - count)[len(maxima) - count]
        if bound > -np.inf:
            tokens = np.flatnonzero(scores >= bound)
    chosen: np.ndarray = tokens[np.argpartition(-scores[tokens], count - 1)[:count]]
    return chosen
