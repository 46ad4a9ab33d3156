"""Chooses the next token of a step's logits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen, in this order: penalty, temperature, top-k, top-p, min-p.

    temperature: logits are divided by it; 0 takes the most likely token, whatever else is set.
    top_k: so many most likely tokens stay; 0 for all.
    top_p: the fewest most likely tokens stay whose probabilities reach it; 1 for all.
    min_p: tokens stay that have this fraction of the highest probability; 0 for all.
    repetition_penalty: positive logits of tokens seen are divided by it, negative ones multiplied
        (CTRL, arXiv:1909.05858); 1 for none.
    seed: of the random numbers; the same seed gives the same tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, holds, range_ in (
            ("temperature", 0 <= self.temperature < np.inf, "0 or more"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < np.inf, "above 0"),
            ("seed", self.seed >= 0, "0 or more"),
        ):
            if not holds:
                raise RunError(f"{name}={getattr(self, name)}: expected {range_}")


class Sampler:
    """Chooses tokens by one Sampling; holds the state of its random numbers."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(sampling.seed))

    def choose(
        self,
        logits: np.ndarray,
        seen: Collection[int] = (),
        allowed: np.ndarray | None = None,
    ) -> int:
        """The next token.

        logits: float32 [vocabulary]. seen: tokens that the penalty is for.
        allowed: bool [vocabulary], tokens that may be chosen; None for all.

        Raises RunError where no token can be chosen: all forbidden, or logits that are NaN.
        """
        scores = logits.astype(np.float64)
        if np.isnan(scores).any():
            raise RunError("the logits hold NaN: the program or the machine is faulty")
        if allowed is not None:
            scores[~allowed] = -np.inf
        if scores.max() == -np.inf:
            raise RunError("no token is allowed here")
        self._penalise(scores, seen)
        if self.sampling.temperature == 0:
            return int(scores.argmax())
        tokens, probabilities = self.distribution(scores)
        return int(self._random.choice(tokens, p=probabilities))

    def _penalise(self, scores: np.ndarray, seen: Collection[int]) -> None:
        penalty = self.sampling.repetition_penalty
        if penalty != 1 and seen:
            tokens = np.unique(np.fromiter(seen, np.int64))
            values = scores[tokens]
            scores[tokens] = np.where(values > 0, values / penalty, values * penalty)

    def distribution(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that stay and their probabilities, the most likely first."""
        options = self.sampling
        count = len(scores) if not options.top_k else min(options.top_k, len(scores))
        if count < len(scores):
            tokens = np.argpartition(-scores, count - 1)[:count]
            tokens = tokens[np.lexsort((tokens, -scores[tokens]))]
        else:
            tokens = np.argsort(-scores, kind="stable")
        kept = scores[tokens] / options.temperature
        probabilities = np.exp(kept - kept[0])
        probabilities /= probabilities.sum()
        before = np.cumsum(probabilities) - probabilities
        stays = before < options.top_p
        stays &= probabilities >= options.min_p * probabilities[0]
        stays &= probabilities > 0
        tokens, probabilities = tokens[stays], probabilities[stays]
        return tokens, probabilities / probabilities.sum()

    @property
    def state(self) -> dict[str, Any]:
        """The random numbers' state, as JSON values."""
        return dict(self._random.bit_generator.state)

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        self._random.bit_generator.state = value
